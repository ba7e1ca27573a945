-- One bounded step of retention: delete malformed commands that were recorded before p_before. Returns their ids.
CREATE OR REPLACE FUNCTION delete_old_malformed_commands(p_before timestamptz, p_limit integer) RETURNS SETOF bigint
LANGUAGE sql
AS $$
    DELETE FROM malformed_commands
    WHERE id IN (SELECT id FROM malformed_commands WHERE recorded_at < p_before ORDER BY recorded_at LIMIT p_limit)
    RETURNING id
$$;
