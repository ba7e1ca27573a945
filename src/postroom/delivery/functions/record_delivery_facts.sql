-- Append every fact about a delivery in the statement that makes it true, for any client: an operator's UPDATE in psql
-- is
-- recorded like a worker's. The table `recorded_facts` selects the facts; with none selected the cost is one look-up.
-- Facts
-- name no person: the recipients are in the ledger.
CREATE OR REPLACE FUNCTION record_delivery_facts() RETURNS trigger
LANGUAGE plpgsql
SECURITY DEFINER -- a role that may send need not be allowed to write events
SET search_path FROM CURRENT
SET jit = off -- the disabled nested loops raise the estimated cost, and the plan would be compiled
SET enable_nestloop = off -- the size of transition tables is unknown, and every pair would be compared
AS $$
DECLARE
    v_recorded CONSTANT text[] := ARRAY(SELECT type FROM recorded_facts);
    v_types    text[];
    v_ids      bigint[];
    v_data     jsonb[];
BEGIN
    IF v_recorded = '{}' THEN
        RETURN NULL;
    END IF;
    IF TG_OP = 'INSERT' THEN
        SELECT array_agg('DeliveryAccepted'::text), array_agg(id),
            array_agg(jsonb_build_object('delivery', id, 'lane', lane, 'channel', channel, 'source', source))
        INTO v_types, v_ids, v_data
        FROM new_rows
        WHERE 'DeliveryAccepted' = ANY (v_recorded);
        IF EXISTS (SELECT FROM new_rows WHERE state = 'suppressed') AND 'DeliverySuppressed' = ANY (v_recorded) THEN
            SELECT v_types || array_agg('DeliverySuppressed'::text), v_ids || array_agg(id), v_data || array_agg(jsonb_build_object(
                'delivery', id, 'lane', lane, 'channel', channel, 'source', source, 'reason', reason))
            INTO v_types, v_ids, v_data
            FROM new_rows
            WHERE state = 'suppressed';
        END IF;
    ELSIF EXISTS (SELECT FROM new_rows WHERE state NOT IN ('sending', 'rendered'))
        OR EXISTS (SELECT FROM old_rows WHERE state NOT IN ('queued', 'rendered'))
    THEN -- skips claims and renderings, which are the most frequent statements and no facts
        SELECT array_agg(type), array_agg(id), array_agg(data)
        INTO v_types, v_ids, v_data
        FROM (
            SELECT n.id, delivery_fact(o.state, n.state, n.attempt_count - o.attempt_count) AS type,
                jsonb_build_object('delivery', n.id, 'lane', n.lane, 'channel', n.channel, 'source', n.source,
                    'attempt', n.attempt_count, 'reason', n.reason) AS data
            FROM new_rows AS n
            JOIN old_rows AS o USING (id)
            WHERE n.state <> o.state
        ) AS fact
        WHERE type = ANY (v_recorded);
    END IF;
    IF v_types IS NOT NULL THEN
        PERFORM append_facts('postroom.delivery', v_types, v_ids, v_data);
    END IF;
    RETURN NULL;
END
$$;

CREATE OR REPLACE TRIGGER deliveries_insert_facts
    AFTER INSERT ON deliveries
    REFERENCING NEW TABLE AS new_rows
    FOR EACH STATEMENT EXECUTE FUNCTION record_delivery_facts();

CREATE OR REPLACE TRIGGER deliveries_update_facts
    AFTER UPDATE ON deliveries
    REFERENCING OLD TABLE AS old_rows NEW TABLE AS new_rows
    FOR EACH STATEMENT EXECUTE FUNCTION record_delivery_facts();
