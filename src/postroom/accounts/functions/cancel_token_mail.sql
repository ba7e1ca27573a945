-- Cancel the waiting mail of a token that is ended early: its account gets another address or is deleted, another recovery
-- was used, after five wrong codes, or by an operator.
--
-- The triggers hold the conditions, so that a sign-up, a used token, an expired token and retention do not call the
-- function. Mail that is being sent at that moment leaves; mail that is being accepted in another transaction is not seen.
CREATE OR REPLACE FUNCTION cancel_token_mail() RETURNS trigger
LANGUAGE plpgsql
SECURITY DEFINER -- a role that may end a token needs no right on deliveries
SET search_path FROM CURRENT -- an application has one of its own
SET enable_seqscan = off -- a plan made while the queue was short must still be right when it is not
AS $$
BEGIN
    PERFORM cancel_deliveries(
        ARRAY(SELECT id FROM deliveries WHERE source = 'accounts' AND idempotency_key = 'token:' || OLD.id), 'token_ended');
    RETURN NULL;
END
$$;

CREATE OR REPLACE TRIGGER cancel_token_mail
    AFTER UPDATE OF expires_at ON tokens
    FOR EACH ROW
    WHEN (
        NEW.consumed_at IS NULL
        AND NEW.expires_at <= extract(epoch FROM now()) AND OLD.expires_at > extract(epoch FROM now())
    )
    EXECUTE FUNCTION cancel_token_mail();

CREATE OR REPLACE TRIGGER cancel_deleted_token_mail
    AFTER DELETE ON tokens
    FOR EACH ROW
    WHEN (OLD.consumed_at IS NULL AND OLD.expires_at > extract(epoch FROM now()))
    EXECUTE FUNCTION cancel_token_mail();
