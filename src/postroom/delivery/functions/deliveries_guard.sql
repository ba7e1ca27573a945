-- Reject every transition that the state machine does not allow. The condition is in the trigger itself, so an allowed
-- transition costs a comparison and no function call.
CREATE OR REPLACE FUNCTION deliveries_guard() RETURNS trigger
LANGUAGE plpgsql
AS $$
BEGIN
    RAISE EXCEPTION 'a delivery that is % cannot become %', OLD.state, NEW.state
        USING ERRCODE = 'PR004', COLUMN = 'state';
END
$$;

CREATE OR REPLACE TRIGGER deliveries_guard
    AFTER UPDATE OF state ON deliveries -- BEFORE would lock each row, with a WAL record of its own
    FOR EACH ROW
    WHEN (OLD.state <> NEW.state AND CASE OLD.state
        WHEN 'queued'      THEN NEW.state IN ('sent', 'dead_letter')
        WHEN 'rendered'    THEN NEW.state NOT IN ('sending', 'cancelled', 'suppressed')
        WHEN 'sending'     THEN false
        WHEN 'dead_letter' THEN NEW.state NOT IN ('queued', 'rendered', 'sent')
        ELSE true
    END)
    EXECUTE FUNCTION deliveries_guard();
