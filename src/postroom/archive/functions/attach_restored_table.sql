-- Attach a restored month to its table.
CREATE OR REPLACE FUNCTION attach_restored_table(p_table text, p_name text, p_from timestamptz) RETURNS void
LANGUAGE plpgsql
SECURITY DEFINER -- changing tables needs the owner; other workers may archive and nothing more
SET search_path FROM CURRENT
SET TimeZone = 'UTC' -- months begin in UTC, independent of the session's time zone
SET lock_timeout = '5s' -- writers of the table queue behind a waiting lock
AS $$
BEGIN
    PERFORM check_archive_name(p_table, p_name, 'restored_');
    EXECUTE format('ALTER TABLE %I ATTACH PARTITION %I FOR VALUES FROM (%L) TO (%L)',
        p_table, p_name, p_from, p_from + interval '1 month');
END
$$;
