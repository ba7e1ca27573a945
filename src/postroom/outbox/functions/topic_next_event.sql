-- The first settled event or fact of a topic after a place; NULLs without any.
CREATE OR REPLACE FUNCTION topic_next_event(
    p_topic outbox_topics, p_transaction_id xid8, p_position bigint,
    OUT transaction_id xid8, OUT "position" bigint, OUT type text
)
LANGUAGE sql STABLE
AS $$
    SELECT next.*
    FROM (
        (SELECT e.transaction_id, e.position, e.type
            FROM events AS e
            WHERE (e.transaction_id, e.position) > (p_transaction_id, p_position) AND e.transaction_id < event_horizon()
                AND outbox_topic_matches(p_topic, e.type, e.tags)
            ORDER BY e.transaction_id, e.position
            LIMIT 1)
        UNION ALL
        (SELECT s.transaction_id, s.position, step_fact_type(s.step)
            FROM all_steps AS s
            WHERE (s.transaction_id, s.position) > (p_transaction_id, p_position) AND s.transaction_id < event_horizon()
                AND topic_can_match_steps(p_topic)
                AND outbox_topic_matches(p_topic, step_fact_type(s.step), step_fact_tags(s.delivery_id))
                AND s.transaction_id >= (SELECT f.since FROM recorded_facts AS f WHERE f.type = step_fact_type(s.step))
            ORDER BY s.transaction_id, s.position
            LIMIT 1)
    ) AS next
    ORDER BY next.transaction_id, next.position
    LIMIT 1
$$;
