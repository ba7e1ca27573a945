-- One bounded step of retention: delete Postroom's own facts of feedback and tracking that are older than a time,
-- oldest first, with their tags. Only events with one of their types and a single tag postroom.… are taken, so events
-- of applications stay, and none that a publisher of the outbox has not reached yet. Returns the number of deleted
-- facts.
CREATE OR REPLACE FUNCTION delete_old_facts(p_before timestamptz, p_limit integer) RETURNS integer
LANGUAGE plpgsql
SET jit = off -- a plan that avoids a disabled node has a huge cost, and would be compiled
SET enable_seqscan = off -- a plan cached while the table was small must still be right when it is large
AS $$
DECLARE
    v_deleted integer;
BEGIN
    WITH oldest AS MATERIALIZED (
        SELECT found.*
        FROM unnest(ARRAY['RecipientUnsubscribed', 'RecipientBounced', 'RecipientComplained', 'RecipientSuppressed',
                'SuppressionLifted']) AS own(type), LATERAL (
            SELECT e.position, e.transaction_id, e.type, e.tags, e.occurred_at
            FROM events AS e
            WHERE e.type = own.type AND cardinality(e.tags) = 1 AND starts_with(e.tags[1], 'postroom.')
            ORDER BY e.transaction_id, e.position
            LIMIT p_limit
        ) AS found
    ),
    old AS MATERIALIZED (
        SELECT o.position, o.transaction_id, o.tags
        FROM oldest AS o
        WHERE o.occurred_at < p_before AND NOT EXISTS (
            SELECT
            FROM outbox_topic_progress AS p
            JOIN outbox_topics AS t ON t.name = p.topic
            WHERE (p.last_transaction_id, p.last_position) < (o.transaction_id, o.position)
                AND outbox_topic_matches(t, o.type, o.tags)
        )
        LIMIT p_limit
    ),
    untagged AS (
        DELETE FROM event_tags AS t
        USING old
        WHERE t.tag = old.tags[1] AND t.transaction_id = old.transaction_id AND t.position = old.position
    ),
    gone AS (
        DELETE FROM events WHERE position IN (SELECT position FROM old) RETURNING position
    )
    SELECT count(*) INTO v_deleted FROM gone;
    RETURN v_deleted;
END
$$;
