-- Delete the recipients, payloads and dead letters of deleted deliveries, for every client. Their step accepted moves
-- to the log, which is kept for longer; it keeps its place, so readers of all_steps see no change. Retention of release
-- 0.1.0 does the same in its own statement, which this trigger finds done.
CREATE OR REPLACE FUNCTION delete_parts() RETURNS trigger
LANGUAGE plpgsql
SECURITY DEFINER -- a role that may delete a delivery needs no right on its parts
SET search_path FROM CURRENT
SET jit = off -- compiling would cost more than the few rows of a batch
AS $$
DECLARE
    v_ids bigint[] := ARRAY(SELECT id FROM old_rows);
BEGIN
    DELETE FROM other_recipients WHERE delivery_id = ANY (v_ids);
    DELETE FROM delivery_payloads WHERE delivery_id = ANY (v_ids);
    DELETE FROM dead_letters WHERE delivery_id = ANY (v_ids);
    INSERT INTO delivery_steps (transaction_id, position, delivery_id, at, campaign_id, step, lane, channel, source)
    SELECT o.transaction_id, o.position, o.id, o.created_at, o.campaign_id, 'accepted', o.lane, o.channel, o.source
    FROM old_rows AS o
    WHERE NOT EXISTS (
        SELECT FROM delivery_steps AS s
        WHERE s.at = o.created_at AND s.transaction_id = o.transaction_id AND s.position = o.position
    );
    RETURN NULL;
END
$$;

CREATE OR REPLACE TRIGGER deliveries_delete_parts
    AFTER DELETE ON deliveries
    REFERENCING OLD TABLE AS old_rows
    FOR EACH STATEMENT EXECUTE FUNCTION delete_parts();
