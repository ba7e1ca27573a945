-- Keep a process registered in which this room sleeps, and find when the room has work: the seconds from now, not
-- positive if it has work already, NULL if it has none. After the first registration the caller asks once more: a mail
-- that was accepted at the same time sent no notification.
CREATE OR REPLACE FUNCTION watch_room(
    p_pid integer, p_host text, p_collects_tokens boolean, p_publishers text[],
    OUT room text, OUT is_new boolean, OUT wait_s float8
)
LANGUAGE plpgsql
SET search_path FROM CURRENT
AS $$
BEGIN
    room := current_schema();
    is_new := register_sleeper(p_pid, p_host);
    IF is_new THEN
        PERFORM put_followers_to_sleep(
            ARRAY(SELECT follower_id FROM outbox_topic_progress WHERE follower_id IS NOT NULL)
        );
    END IF;
    wait_s := extract(epoch FROM next_work_at(p_collects_tokens, p_publishers) - now());
END
$$;
