-- Delete captured mail to an address, also mail with other recipients: the bytes of a message cannot be edited.
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
