-- Soft bounces: an accepted mail ends no hold. The first one since the last bounce resets the count if a week passes.

ALTER TABLE soft_bounces
    ADD COLUMN accepted_at timestamptz; -- the first acceptance since the last soft bounce of a mail that did not bounce

UPDATE soft_bounces SET accepted_at = cleared_at WHERE cleared_at IS NOT NULL;
