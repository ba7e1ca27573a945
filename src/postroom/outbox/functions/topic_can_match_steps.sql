-- True if a topic may contain facts about deliveries; the publishers of every other topic leave the steps alone.
CREATE OR REPLACE FUNCTION topic_can_match_steps(p_topic outbox_topics) RETURNS boolean
LANGUAGE sql IMMUTABLE
RETURN can_match_steps(p_topic.types, p_topic.exact_tags)
    AND p_topic.required_keys <@ ARRAY['postroom.delivery']
    AND (p_topic.any_keys = '{}' OR 'postroom.delivery' = ANY (p_topic.any_keys));
