-- Write an entry to the audit log, in the transaction of the action that it records.
CREATE OR REPLACE FUNCTION record_audit(
    p_actor text, p_action text, p_subject text, p_before jsonb DEFAULT NULL, p_after jsonb DEFAULT NULL
) RETURNS void
LANGUAGE sql
AS $$
    INSERT INTO audit_log (actor, action, subject, before, after)
    VALUES (p_actor, p_action, p_subject, p_before, p_after)
$$;
