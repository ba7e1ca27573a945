-- Refuse writes to a room that is moving to another server. The SQLSTATE is that of a read-only server, which clients
-- and workers treat as temporary. The session of the move itself sets postroom.mover.
CREATE OR REPLACE FUNCTION refuse_while_moving() RETURNS trigger
LANGUAGE plpgsql
SET search_path FROM CURRENT
AS $$
BEGIN
    IF current_setting('postroom.mover', true) IS DISTINCT FROM 'on' THEN
        RAISE EXCEPTION 'The room % is moving to another server. This is temporary: nothing was stored, retry later.', current_schema()
            USING ERRCODE = 'read_only_sql_transaction';
    END IF;
    RETURN NULL;
END
$$;
