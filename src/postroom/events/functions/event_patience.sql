-- How long a transaction of our own waits for a lock, as lock_timeout: a moment, or, if it is patient, ten seconds or what the
-- session has chosen for itself.
CREATE OR REPLACE FUNCTION event_patience(p_is_patient boolean) RETURNS text
LANGUAGE sql STABLE
RETURN CASE
    WHEN NOT p_is_patient THEN '50ms'
    WHEN current_setting('lock_timeout') = '0' THEN '10s'
    ELSE current_setting('lock_timeout')
END;
