-- Follow a change of jobs.last_seq by another program. A higher one is a dequeue: it read the tokens up to there that were
-- visible to its statement, so Postroom's collector leaves those out and keeps its own cursor. Every other change moves
-- the cursor of the collector. STABLE, because then pg_current_snapshot() is that of the statement.
CREATE OR REPLACE FUNCTION keep_cursor() RETURNS trigger
LANGUAGE plpgsql STABLE
SET search_path FROM CURRENT
AS $$
DECLARE
    v_most CONSTANT integer := 1000; -- tokens of older dequeues have expired
BEGIN
    IF NEW.last_transaction_id = OLD.last_transaction_id AND NEW.last_seq > OLD.last_seq THEN
        NEW.last_id := coalesce(OLD.last_id, OLD.last_seq);
        NEW.outside := (OLD.outside || ROW(OLD.last_seq, NEW.last_seq, pg_current_snapshot())::outside_dequeue)[
            greatest(1, cardinality(OLD.outside) + 2 - v_most):];
    ELSE
        NEW.last_id := NULL;
        NEW.outside := '{}';
    END IF;
    RETURN NEW;
END
$$;

CREATE OR REPLACE TRIGGER jobs_keep_cursor
    BEFORE UPDATE OF last_seq ON jobs
    FOR EACH ROW
    WHEN (NEW.last_id IS NOT DISTINCT FROM OLD.last_id AND (NEW.last_seq, NEW.last_transaction_id) <> (OLD.last_seq, OLD.last_transaction_id))
    EXECUTE FUNCTION keep_cursor();
