-- Register a process, and remove processes that have not been seen for a day. Waits for the second phase of a migration, which
-- locks the table. The caller then checks the applied files, of which `applied` is a digest; it is NULL while a restore is unfinished.
CREATE OR REPLACE FUNCTION register_process(
    p_pid integer, p_release integer, p_host text, p_command text, OUT process_id bigint, OUT applied text
)
LANGUAGE plpgsql
SET search_path FROM CURRENT
AS $$
BEGIN
    DELETE FROM processes
    WHERE id IN ( -- FOR UPDATE checks again that a process has not been seen meanwhile
        SELECT id FROM processes WHERE seen_at < now() - interval '1 day' LIMIT 1000 FOR UPDATE SKIP LOCKED
    );
    INSERT INTO processes (id, pid, release, host, command)
    VALUES (unrepeatable_id(), p_pid, p_release, p_host, p_command)
    RETURNING id INTO process_id;
    IF to_regclass('restoring') IS NULL THEN
        SELECT md5(string_agg(concat_ws(' ', name, checksum, release), E'\n' ORDER BY name)) INTO applied FROM migrations;
    END IF;
END
$$;
