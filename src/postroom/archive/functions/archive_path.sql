-- A path for a piece that no file had before: postroom-3f2a9c01/attempts/2026-01/part-001-9b1c04d7.parquet. Every
-- export gets a new path, so that neither another room nor this room restored from an older state overwrites a file.
CREATE OR REPLACE FUNCTION archive_path(p_table text, p_month timestamptz, p_part integer) RETURNS text
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT
AS $$
BEGIN
    RETURN format('%s/%s/%s/part-%s-%s.parquet', archive_folder(), p_table, to_char(p_month AT TIME ZONE 'UTC', 'YYYY-MM'),
        lpad(p_part::text, 3, '0'), left(gen_random_uuid()::text, 8));
END
$$;
