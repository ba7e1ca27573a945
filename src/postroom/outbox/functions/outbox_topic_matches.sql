-- True if an event matches the conditions of a topic. Plain SQL, so that PostgreSQL can inline it.
CREATE OR REPLACE FUNCTION outbox_topic_matches(p_topic outbox_topics, p_type text, p_tags text[]) RETURNS boolean
LANGUAGE sql IMMUTABLE
RETURN ((p_topic).types = '{}' OR p_type = ANY ((p_topic).types))
    AND p_tags @> (p_topic).exact_tags
    AND ((p_topic).required_keys = '{}'
        OR ARRAY(SELECT split_part(carried.tag, '=', 1) FROM unnest(p_tags) AS carried(tag)) @> (p_topic).required_keys)
    AND ((p_topic).any_keys = '{}'
        OR ARRAY(SELECT split_part(carried.tag, '=', 1) FROM unnest(p_tags) AS carried(tag)) && (p_topic).any_keys);
