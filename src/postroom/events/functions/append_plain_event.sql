-- An event written by a plain INSERT, which leaves its place to the store: the trigger checks it and takes the locks of an
-- append, so that followers never skip it and conditional appends see it. It has no horizon; appends of the functions
-- have one. Rows of one INSERT are locked one by one: against appends with conditions, PostgreSQL may end one of two such
-- transactions with 40P01.
CREATE OR REPLACE FUNCTION append_plain_event() RETURNS trigger
LANGUAGE plpgsql
SET search_path FROM CURRENT
AS $$
BEGIN
    PERFORM check_events(ARRAY[NEW.type], ARRAY[NEW.tags::text], ARRAY[NEW.data]);
    IF has_restored_events() THEN
        PERFORM adopt_restored_events();
    END IF;
    PERFORM lock_events(
        ARRAY['*', 'type ' || NEW.type] || ARRAY(SELECT event_tag_key(tag) FROM unnest(NEW.tags) AS carried(tag)), '{}');
    NEW.transaction_id := event_transaction_id();
    NEW.horizon := event_horizon(); -- before the position is assigned: the default was too early
    NEW.position := nextval('events_position_seq');
    INSERT INTO event_tags (tag, transaction_id, position, type)
    SELECT DISTINCT tag, NEW.transaction_id, NEW.position, NEW.type
    FROM unnest(NEW.tags) AS carried(tag);
    PERFORM wake_event_followers();
    RETURN NEW;
END
$$;

CREATE OR REPLACE TRIGGER events_append_plain
    BEFORE INSERT ON events
    FOR EACH ROW WHEN (NEW.horizon IS NULL) EXECUTE FUNCTION append_plain_event();
