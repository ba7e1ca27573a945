-- Now if an event is newer than the progress of an active topic and one of these publishers, otherwise NULL. A step
-- counts only for topics that may contain facts about deliveries: the others never move past steps.
CREATE OR REPLACE FUNCTION next_publication_at(p_publishers text[]) RETURNS timestamptz
LANGUAGE plpgsql STABLE
AS $$
DECLARE
    v_progress outbox_topic_progress;
    v_topic    outbox_topics;
BEGIN
    FOR v_progress IN
        SELECT * FROM outbox_topic_progress WHERE status = 'ACTIVE' AND publisher = ANY(p_publishers)
    LOOP
        SELECT * INTO v_topic FROM outbox_topics WHERE name = v_progress.topic;
        IF EXISTS (
            SELECT FROM events
            WHERE (transaction_id, position) > (v_progress.last_transaction_id, v_progress.last_position)
        ) OR (topic_can_match_steps(v_topic) AND EXISTS (
            SELECT FROM all_steps
            WHERE (transaction_id, position) > (v_progress.last_transaction_id, v_progress.last_position)
        )) THEN
            RETURN now();
        END IF;
    END LOOP;
    RETURN NULL;
END
$$;
