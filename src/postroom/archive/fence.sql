-- Settings that restrict DuckDB before it runs a query.

-- name: allow_files :exec
-- Allow reading these files.
SET allowed_paths = :paths;

-- name: close_everything_else :exec
-- Deny every other file, the network and extensions.
SET enable_external_access = false;

-- name: lock_settings :exec
-- Prevent a query from changing these settings.
SET lock_configuration = true;
