-- The lock_timeout of Postroom's own transactions: short, or, if p_is_patient, ten seconds or the value that the
-- session has set.
CREATE OR REPLACE FUNCTION event_patience(p_is_patient boolean) RETURNS text
LANGUAGE sql STABLE
RETURN CASE
    WHEN NOT p_is_patient THEN '50ms'
    WHEN current_setting('lock_timeout') = '0' THEN '10s'
    ELSE current_setting('lock_timeout')
END;
