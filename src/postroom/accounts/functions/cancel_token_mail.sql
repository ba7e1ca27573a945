-- Cancel the queued mail of a token that is expired early: its account gets another address or is deleted, another
-- recovery was used, after five wrong codes, or by an operator.
--
-- The triggers have the conditions, so that sign-ups, used tokens, expired tokens and retention do not call the
-- function. Mail that is being sent at that moment is sent; mail that another transaction is accepting is not visible
-- here.
CREATE OR REPLACE FUNCTION cancel_token_mail() RETURNS trigger
LANGUAGE plpgsql
SECURITY DEFINER -- a role that may end a token needs no right on deliveries
SET search_path FROM CURRENT -- an application's connection has another search path
SET enable_seqscan = off -- a plan cached while the queue was short would scan it when it is long
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
