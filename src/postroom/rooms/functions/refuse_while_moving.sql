-- Refuse writes to a room that is moving to another server. The SQLSTATE is that of a read-only server, which clients
-- and workers treat as temporary; the constraint name marks the error as ours. A move that was killed leaves the room
-- closed, so the hint names the commands of the operator. The session of the move itself sets postroom.mover.
CREATE OR REPLACE FUNCTION refuse_while_moving() RETURNS trigger
LANGUAGE plpgsql
SET search_path FROM CURRENT
AS $$
DECLARE
    v_mark text := obj_description(to_regclass('moving'), 'pg_class'); -- moving from a to b, or moved from a to b
BEGIN
    IF current_setting('postroom.mover', true) IS DISTINCT FROM 'on' THEN
        RAISE EXCEPTION 'The room % is %. It refuses writes: nothing was stored, retry later.',
                current_schema(), coalesce(v_mark, 'moving to another server')
            USING ERRCODE = 'read_only_sql_transaction',
                CONSTRAINT = 'moving',
                HINT = CASE
                    WHEN v_mark LIKE 'moved %' THEN
                        format('Use the room on server %s.', split_part(v_mark, ' ', 5))
                    ELSE format('If no command is moving the room now, run "postroom rooms move %1$s --to %2$s" to continue, '
                        'or "postroom rooms move %1$s --undo".', current_schema(), split_part(v_mark, ' ', 5))
                END;
    END IF;
    RETURN NULL;
END
$$;
