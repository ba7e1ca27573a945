-- The topics of a list for which no webhooks are made now: the topic does not exist, or its publisher `webhook` is
-- missing, paused or failed.
CREATE OR REPLACE FUNCTION webhook_silent_topics(p_topics text[]) RETURNS text[]
LANGUAGE sql STABLE
RETURN ARRAY(
    SELECT named.topic
    FROM unnest(p_topics) WITH ORDINALITY AS named(topic, place)
    WHERE NOT EXISTS (
        SELECT FROM outbox_topic_progress AS p
        WHERE p.topic = named.topic AND p.publisher = 'webhook' AND p.status = 'ACTIVE'
    )
    ORDER BY named.place
);
