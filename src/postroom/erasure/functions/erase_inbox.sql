-- Captured mail to a person goes, whoever else got it: the bytes of a message cannot be mended.
CREATE OR REPLACE FUNCTION erase_inbox(p_address text) RETURNS bigint
LANGUAGE plpgsql
SET search_path FROM CURRENT
AS $$
DECLARE
    v_deleted bigint;
BEGIN
    DELETE FROM inbox_messages WHERE recipients @> ARRAY[p_address];
    GET DIAGNOSTICS v_deleted = ROW_COUNT;
    RETURN v_deleted;
END
$$;
