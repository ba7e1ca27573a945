-- What DuckDB is told before it sees a question.

-- name: allow_files :exec
-- These files may be read.
SET allowed_paths = :paths;

-- name: close_everything_else :exec
-- No other file, no network, no extension.
SET enable_external_access = false;

-- name: lock_settings :exec
-- And nobody changes that.
SET lock_configuration = true;
