-- True if no follower needs the rows of a month any more. Steps are read by the rollup of statistics, and by the
-- publishers of topics that may contain facts about deliveries: a month stays in the database until all of them have
-- passed its last step. Other tables have no followers.
CREATE OR REPLACE FUNCTION is_month_read(p_table text, p_from timestamptz, p_to timestamptz) RETURNS boolean
LANGUAGE plpgsql STABLE
AS $$
DECLARE
    v_last record;
BEGIN
    IF p_table <> 'delivery_steps' THEN
        RETURN true;
    END IF;
    SELECT s.transaction_id, s.position INTO v_last
    FROM delivery_steps AS s
    WHERE s.at >= p_from AND s.at < p_to
    ORDER BY s.transaction_id DESC, s.position DESC
    LIMIT 1;
    RETURN NOT EXISTS (
        SELECT FROM stats_cursor AS c
        WHERE (c.transaction_id, c.position) < (v_last.transaction_id, v_last.position)
    ) AND NOT EXISTS (
        SELECT
        FROM outbox_topic_progress AS p
        JOIN outbox_topics AS t ON t.name = p.topic
        WHERE (p.last_transaction_id, p.last_position) < (v_last.transaction_id, v_last.position)
            AND topic_can_match_steps(t)
            AND (SELECT steps FROM visible_steps(t.types)) IS NOT NULL
    );
END
$$;
