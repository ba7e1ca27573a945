-- A token that ends before its time takes its mail along: what still waits to leave does not leave. It ends when its account
-- gets another address or is deleted, when another recovery was used, after five wrong codes, or by hand.
--
-- The conditions stand in the triggers, so a sign-up, a used token, one that runs out and one that is forgotten long after
-- call nothing. Mail that is being sent at that moment has left; mail that is being accepted at that moment is not seen.
CREATE OR REPLACE FUNCTION cancel_token_mail() RETURNS trigger
LANGUAGE plpgsql
SECURITY DEFINER -- who may end a token need not be allowed to touch deliveries
SET search_path FROM CURRENT -- an application has one of its own
SET enable_seqscan = off -- a plan made while the queue was short must still be right when it is not
AS $$
BEGIN
    UPDATE deliveries
    SET state = 'cancelled', next_attempt_at = NULL, finished_at = now(), reason = 'token_ended'
    WHERE source = 'accounts' AND idempotency_key = 'token:' || OLD.id AND state IN ('queued', 'rendered');
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
