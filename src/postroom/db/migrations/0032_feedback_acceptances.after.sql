-- Processes of release 1 cleared holds when a relay had accepted a mail.
DROP FUNCTION IF EXISTS clear_soft_bounces(text[], timestamptz);
ALTER TABLE soft_bounces DROP COLUMN cleared_at;
