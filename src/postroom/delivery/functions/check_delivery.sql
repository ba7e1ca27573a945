-- Reject a row that contradicts itself: each state has exactly its columns, and Python can read every time. An inserted row is
-- checked by the function, whose expression is prepared once per connection. An updated row is checked by the condition of its
-- trigger, prepared once per statement, so that batches pay for no function call: only an invalid row gets here. Both have the
-- same rules; one table of cases tests both (tests/delivery/test_state_machine.py).
CREATE OR REPLACE FUNCTION check_delivery() RETURNS trigger
LANGUAGE plpgsql
AS $$
BEGIN
    -- A new row of the usual kind: fewer terms, which PL/pgSQL prepares in each transaction (3 % of SQL send).
    IF NEW.state = 'queued' AND NEW.attempt_count = 0 AND NEW.next_attempt_at IS NOT NULL
        AND num_nonnulls(NEW.claim_id, NEW.first_attempt_at, NEW.expires_at, NEW.finished_at, NEW.max_retries,
            NEW.give_up_after) = 0
        AND num_nulls(NEW.idempotency_key, NEW.request_fingerprint, NEW.idempotency_expires_at) IN (0, 3)
        AND least(NEW.next_attempt_at, NEW.created_at, NEW.dated_at, NEW.idempotency_expires_at)
            >= timestamptz '1900-01-01 00:00:00Z'
        AND greatest(NEW.next_attempt_at, NEW.created_at, NEW.dated_at, NEW.idempotency_expires_at)
            < timestamptz '9999-12-31 00:00:00Z'
    THEN
        RETURN NEW;
    END IF;
    IF (NEW.state < 'sending') = (NEW.next_attempt_at IS NOT NULL)
        AND (NEW.state = 'sending') = (NEW.claim_id IS NOT NULL)
        AND (NEW.state > 'sending') = (NEW.finished_at IS NOT NULL)
        AND (NEW.state <= 'sent' OR NEW.reason IS NOT NULL)
        AND (NEW.state <> 'rendered' OR NEW.template_version_id IS NOT NULL)
        AND (num_nulls(NEW.idempotency_key, NEW.request_fingerprint, NEW.idempotency_expires_at) IN (0, 3)
            OR NEW.lane = 'auth' AND NEW.request_fingerprint IS NULL AND num_nulls(NEW.idempotency_key, NEW.idempotency_expires_at) = 0)
        AND NEW.attempt_count >= 0
        AND coalesce(NEW.max_retries BETWEEN 0 AND 100, true)
        AND coalesce(NEW.give_up_after BETWEEN interval '1 second' AND interval '30 days', true)
        AND least(NEW.next_attempt_at, NEW.created_at, NEW.dated_at, NEW.first_attempt_at, NEW.expires_at, NEW.finished_at,
            NEW.idempotency_expires_at) >= timestamptz '1900-01-01 00:00:00Z'
        AND greatest(NEW.next_attempt_at, NEW.created_at, NEW.dated_at, NEW.first_attempt_at, NEW.expires_at,
            NEW.finished_at, NEW.idempotency_expires_at) < timestamptz '9999-12-31 00:00:00Z'
    THEN
        RETURN NEW;
    END IF;
    RAISE EXCEPTION 'a delivery that is % has a column that contradicts its state, or a value out of range', NEW.state
        USING ERRCODE = 'check_violation', DETAIL = format('Failing row: %s.', NEW), TABLE = 'deliveries';
END
$$;

CREATE OR REPLACE TRIGGER deliveries_check_inserted
    BEFORE INSERT ON deliveries
    FOR EACH ROW EXECUTE FUNCTION check_delivery();

-- The states are in the order of their type: those before sending wait, those behind it have ended, behind sent badly.
CREATE OR REPLACE TRIGGER deliveries_check_updated
    AFTER UPDATE ON deliveries
    FOR EACH ROW
    WHEN (NOT (
        (NEW.state < 'sending') = (NEW.next_attempt_at IS NOT NULL)
        AND (NEW.state = 'sending') = (NEW.claim_id IS NOT NULL)
        AND (NEW.state > 'sending') = (NEW.finished_at IS NOT NULL)
        AND (NEW.state <= 'sent' OR NEW.reason IS NOT NULL)
        AND (NEW.state <> 'rendered' OR NEW.template_version_id IS NOT NULL)
        AND (num_nulls(NEW.idempotency_key, NEW.request_fingerprint, NEW.idempotency_expires_at) IN (0, 3)
            OR NEW.lane = 'auth' AND NEW.request_fingerprint IS NULL AND num_nulls(NEW.idempotency_key, NEW.idempotency_expires_at) = 0)
        AND NEW.attempt_count >= 0
        AND coalesce(NEW.max_retries BETWEEN 0 AND 100, true)
        AND coalesce(NEW.give_up_after BETWEEN interval '1 second' AND interval '30 days', true)
        -- Python's datetime ends with the year 9999: one later time makes the driver fail for every row of its result.
        AND least(NEW.next_attempt_at, NEW.created_at, NEW.dated_at, NEW.first_attempt_at, NEW.expires_at, NEW.finished_at,
            NEW.idempotency_expires_at) >= timestamptz '1900-01-01 00:00:00Z'
        AND greatest(NEW.next_attempt_at, NEW.created_at, NEW.dated_at, NEW.first_attempt_at, NEW.expires_at,
            NEW.finished_at, NEW.idempotency_expires_at) < timestamptz '9999-12-31 00:00:00Z'))
    EXECUTE FUNCTION check_delivery();
