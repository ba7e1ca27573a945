-- Replace an address by its pseudonym in the texts of the audit log, for an erasure that runs, and record that.
-- refuse_audit_change rejects every other change. An address with letters beyond ASCII has other spellings, which only
-- the caller knows: they are accepted for an erasure of such an address.
CREATE OR REPLACE FUNCTION erase_audit(p_address text, p_pseudonym text) RETURNS bigint
LANGUAGE plpgsql
SECURITY DEFINER -- the role that erases has no UPDATE privilege on the log
SET search_path FROM CURRENT
AS $$
DECLARE
    v_erasure_id bigint;
    v_touched bigint;
BEGIN
    SELECT id INTO v_erasure_id
    FROM erasures
    WHERE state = 'database' AND pseudonym = p_pseudonym AND pseudonym = erased_address(address)
        AND (
            p_address = address
            OR (address ~ '[^ -~]|["\\]|xn--' AND p_address ~ '.@.' AND p_address ~ '[^ -~]|\\')
        );
    IF v_erasure_id IS NULL THEN
        RAISE EXCEPTION 'the audit log is append-only' USING ERRCODE = 'PR003';
    END IF;
    PERFORM set_config('postroom.erasing', 'on', true); -- with a SET clause only a superuser could create the function
    UPDATE audit_log
    SET actor = erase_text(actor, p_address, p_pseudonym),
        subject = erase_text(subject, p_address, p_pseudonym),
        before = erase_text(before::text, p_address, p_pseudonym)::jsonb,
        after = erase_text(after::text, p_address, p_pseudonym)::jsonb
    WHERE strpos(lower(concat_ws(' ', actor, subject, before, after)), p_address) > 0
        AND concat_ws(' ', actor, subject, before, after) ~* address_pattern(p_address);
    GET DIAGNOSTICS v_touched = ROW_COUNT;
    PERFORM set_config('postroom.erasing', '', true); -- a later change in this transaction is rejected again
    IF v_touched > 0 THEN
        PERFORM record_audit(
            'sql:' || session_user, 'erasure.audit', 'erasure:' || v_erasure_id,
            p_after => jsonb_build_object('entries', v_touched)
        );
    END IF;
    RETURN v_touched;
END
$$;
