-- UPDATE email_queue SET status = 'cancelled' cancels a waiting mail. Every other change is rejected with the name of
-- the column: workers claim mail under a lease, which a status alone does not have.
CREATE OR REPLACE FUNCTION update_email_queue() RETURNS trigger
LANGUAGE plpgsql
SET search_path FROM CURRENT
AS $$
DECLARE
    v_column text;
BEGIN
    SELECT changed.key INTO v_column
    FROM jsonb_each(to_jsonb(NEW)) AS changed
    WHERE changed.value IS DISTINCT FROM to_jsonb(OLD) -> changed.key
        AND NOT (changed.key = 'status' AND NEW.status = 'cancelled')
    ORDER BY changed.key <> 'status', changed.key
    LIMIT 1;
    IF NEW.status = 'assigned' AND OLD.status = 'pending' THEN
        RAISE EXCEPTION 'status: a mail is assigned by a worker of Postroom, with a lease that a status does not have'
            USING ERRCODE = 'PR101', COLUMN = 'status', HINT = 'Two commands do the same:
postroom senders add ADDRESS --host HOST
postroom work';
    END IF;
    IF FOUND THEN
        RAISE EXCEPTION '%: cannot be changed here; a waiting mail can be cancelled, by status = ''cancelled''', v_column
            USING ERRCODE = 'PR101', COLUMN = v_column;
    END IF;
    IF NEW.status IS NOT DISTINCT FROM OLD.status THEN
        RETURN NEW;
    END IF;
    IF NOT EXISTS (SELECT FROM cancel_deliveries(ARRAY[OLD.id], 'cancelled_by_operator')) THEN
        RAISE EXCEPTION 'status: a mail that is % cannot be cancelled', OLD.status
            USING ERRCODE = 'PR100', COLUMN = 'status';
    END IF;
    PERFORM record_audit('sql:' || session_user, 'delivery.cancel', 'delivery:' || OLD.id);
    SELECT queue.* INTO NEW FROM email_queue AS queue WHERE queue.id = OLD.id; -- the values of RETURNING
    RETURN NEW;
END
$$;

CREATE OR REPLACE TRIGGER update_email_queue
    INSTEAD OF UPDATE ON email_queue
    FOR EACH ROW EXECUTE FUNCTION update_email_queue();
