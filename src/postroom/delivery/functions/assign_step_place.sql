-- The place of the next step of a delivery whose row this transaction has just changed: the transaction id to store, and the
-- own one if it is another.
--
-- A transaction gets its id with its first write, which may be long before it changes this delivery. Then the delivery may
-- have steps of later transactions, and with the own id the new step would come before them: cancelled before accepted.
-- So it is stored at the highest transaction id of the delivery's steps; its position comes from the sequence now,
-- after theirs.
--
-- No follower skips it. The own id is still open, so pg_snapshot_xmin is at most that, and no follower has read a place as high;
-- when the transaction has ended, those of the earlier steps, which had committed before, have ended too. A cursor of
-- read_events may have seen the transaction at whose id the step is stored. It is compared with written_by.
--
-- The caller has changed the row of the delivery, so that no other transaction adds a step before this one has ended,
-- and calls this function for each row that its change returned. The function is volatile: at READ COMMITTED its query
-- has a snapshot of its own and sees the steps that were committed while the change waited for the row. At REPEATABLE READ
-- and above a row with such steps cannot be changed (40001).
--
-- Not for accept_deliveries, which writes the first steps of a delivery, nor for `complete` and `recover_claims`, which
-- get their transaction id in a statement that sees the claim: steps before the claim have a lower one, and those
-- after it end the claim, so that nothing is written.
CREATE OR REPLACE FUNCTION assign_step_place(p_delivery_id bigint, OUT transaction_id xid8, OUT written_by xid8)
LANGUAGE plpgsql VOLATILE
SET enable_seqscan = off -- a plan cached while the tables were small must still be right when they are large
AS $$
DECLARE
    v_own xid8 := (SELECT s.id FROM step_transaction() AS s);
BEGIN
    transaction_id := greatest(v_own, (
        SELECT max(found.transaction_id)
        FROM ( -- OFFSET keeps the planner from reading all steps in order until it has found those of the delivery
            SELECT s.transaction_id
            FROM all_steps AS s
            WHERE s.delivery_id >> 6 = p_delivery_id >> 6 AND s.delivery_id = p_delivery_id
            OFFSET 0
        ) AS found));
    written_by := nullif(v_own, transaction_id);
END
$$;
