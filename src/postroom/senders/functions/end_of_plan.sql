-- The time at which a destination has room for more bulk mail: one step of its rate after the last mail that is really
-- queued before `p_until`; NULL if no mail is. Cancelled, held and deleted mail frees its time. If the plan is
-- accurate, the first row answers. Otherwise at most 1000 rows are read per call, and the next claim continues where
-- this one stopped.
CREATE OR REPLACE FUNCTION end_of_plan(p_domain text, p_per_second real, p_until timestamptz, p_now timestamptz)
RETURNS timestamptz
LANGUAGE plpgsql STABLE
SET enable_seqscan = off -- the order of the index ends the search at the first row
SET enable_bitmapscan = off -- it has no order
SET enable_sort = off -- it would read all rows before the first
AS $$
DECLARE
    v_due  record;
    v_read integer := 0;
BEGIN
    FOR v_due IN
        SELECT w.due_at, EXISTS (
                SELECT FROM delivery_recipients AS r
                WHERE r.delivery_id = w.id AND r.kind <> 'reply_to' AND lower(substring(r.email FROM '[^@]*$')) = p_domain
            ) AS is_to_domain
        FROM due_deliveries AS w
        WHERE w.lane = 'bulk' AND w.channel = 'email' AND w.due_at > p_now AND w.due_at < p_until
        ORDER BY w.due_at DESC, w.id DESC
        LIMIT 1000
    LOOP
        v_read := v_read + 1;
        IF v_due.is_to_domain THEN
            RETURN v_due.due_at + 1 / p_per_second * interval '1 second';
        ELSIF v_read = 1000 THEN
            RETURN v_due.due_at;
        END IF;
    END LOOP;
    RETURN NULL;
END
$$;
