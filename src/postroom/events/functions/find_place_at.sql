-- The place of the first event or step that occurred at a time or later; NULL if all occurred earlier. The order of the
-- store is that of the appends, and no index is by time: the search halves the range of transaction ids, about forty
-- times, and reads one row of each table per step. An event that its writer dated back or ahead can move the result.
CREATE OR REPLACE FUNCTION find_place_at(p_at timestamptz, OUT transaction_id xid8, OUT "position" bigint)
LANGUAGE plpgsql STABLE
SET search_path FROM CURRENT
SET enable_seqscan = off -- a plan cached while the table was small must still be right when it is large
SET enable_bitmapscan = off -- the same reason
AS $$
#variable_conflict use_column
DECLARE
    v_low   bigint := 0;
    v_high  bigint := last_event_transaction()::text::bigint + 1; -- the first event from here on is known to be late enough
    v_first record;
    v_step  record;
BEGIN
    WHILE v_low < v_high LOOP
        SELECT e.transaction_id, e.position, e.occurred_at AS at INTO v_first
        FROM events AS e
        WHERE e.transaction_id >= ((v_low + (v_high - v_low) / 2)::text::xid8)
        ORDER BY e.transaction_id, e.position
        LIMIT 1;
        IF to_regclass('all_steps') IS NOT NULL THEN -- the event store can be installed alone
            SELECT s.transaction_id, s.position, s.at INTO v_step
            FROM all_steps AS s
            WHERE s.transaction_id >= ((v_low + (v_high - v_low) / 2)::text::xid8)
            ORDER BY s.transaction_id, s.position
            LIMIT 1;
            IF v_first.position IS NULL OR (v_step.transaction_id, v_step.position) < (v_first.transaction_id, v_first.position) THEN
                v_first := v_step;
            END IF;
        END IF;
        IF v_first.at < p_at THEN
            v_low := v_first.transaction_id::text::bigint + 1;
        ELSE
            v_high := v_low + (v_high - v_low) / 2;
            transaction_id := v_first.transaction_id;
            position := v_first.position;
        END IF;
    END LOOP;
END
$$;
