-- Where a piece lies in the archive: attempts/2026-01/part-001.parquet. The same piece always lies in the same place, so
-- that what a killed export left behind is written over and not kept beside it.
CREATE OR REPLACE FUNCTION archive_path(p_table text, p_month timestamptz, p_part integer) RETURNS text
LANGUAGE sql IMMUTABLE
AS $$
    SELECT format('%s/%s/part-%s.parquet', p_table, to_char(p_month AT TIME ZONE 'UTC', 'YYYY-MM'), lpad(p_part::text, 3, '0'))
$$;
