-- Reject limits of retries that send() cannot accept, naming the field; delivery/retry.py has the same numbers.
CREATE OR REPLACE FUNCTION check_patience(p_max_retries integer, p_give_up_after interval) RETURNS void
LANGUAGE plpgsql STABLE
AS $$
BEGIN
    IF p_max_retries NOT BETWEEN 0 AND 100 THEN
        RAISE EXCEPTION 'max_retries: must be between 0 and 100' USING ERRCODE = 'PR001', COLUMN = 'max_retries';
    END IF;
    IF p_give_up_after NOT BETWEEN interval '1 second' AND interval '30 days' THEN
        RAISE EXCEPTION 'give_up_after: must be between 1 second and 30 days'
            USING ERRCODE = 'PR001', COLUMN = 'give_up_after';
    END IF;
END
$$;
