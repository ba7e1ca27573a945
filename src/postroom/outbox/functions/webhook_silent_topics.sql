-- Those of these topics that no webhook is made of now: there is none of this name, nobody posts it, or who does is paused
-- or has failed.
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
