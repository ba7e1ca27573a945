-- Take the locks of an append, all at once and in one order, so that appends wait for each other and never deadlock.
-- Locks end with the transaction.
--
-- The locks. A key is a tag, a type, or * for everything. * is a lock of the table event_gate, the others are advisory locks whose
-- numbers follow from a secret of the room: a role that only may connect can compute none of them.
--     each event            shared on its tags, its type and *
--     a query item          exclusive on one of its tags; without tags, on each of its types; without either, on *
--     too many keys         exclusive on * instead (each key costs a slot in a table that all connections share)
--
-- Why that is enough. Let one append write an event that matches an item of another's query. If the item has tags, the
-- event has all of them, so the tag that the item locks is locked by the event too: shared against exclusive, one of
-- the two waits. If the item has only types, the event's type is among them: the same. If it has neither, or there were
-- too many locks: every append holds at least shared * for its events. Items that merely overlap, as ([X], t) and ([X,
-- Y], t), need no common key: the event holds the keys of every item that it matches. After waiting, an append checks
-- its condition with a new snapshot, and sees the events committed meanwhile. Events conflict only with queries:
-- appends without conditions run concurrently even with the same tag.
CREATE OR REPLACE FUNCTION lock_events(p_shared text[], p_exclusive text[]) RETURNS void
LANGUAGE plpgsql
AS $$
DECLARE
    v_most CONSTANT integer := 128;
    v_room CONSTANT bigint := event_lock_seed();
BEGIN
    IF cardinality(p_shared) + cardinality(p_exclusive) > v_most
        AND (SELECT count(DISTINCT name) > v_most FROM unnest(p_shared || p_exclusive) AS keys(name))
    THEN
        LOCK TABLE event_gate IN EXCLUSIVE MODE;
        RETURN;
    END IF;
    IF '*' = ANY (p_exclusive) THEN
        LOCK TABLE event_gate IN EXCLUSIVE MODE;
    ELSIF '*' = ANY (p_shared) THEN
        LOCK TABLE event_gate IN ROW SHARE MODE;
    END IF;
    PERFORM CASE
        WHEN is_exclusive THEN pg_advisory_xact_lock(key)
        ELSE pg_advisory_xact_lock_shared(key)
    END
    FROM (
        SELECT hashtextextended(name, v_room) AS key, bool_or(is_exclusive) AS is_exclusive
        FROM (
            SELECT name, false FROM unnest(p_shared) AS s(name)
            UNION ALL
            SELECT name, true FROM unnest(p_exclusive) AS x(name)
        ) AS keys(name, is_exclusive)
        WHERE name <> '*'
        GROUP BY 1
        ORDER BY 1
    ) AS ordered;
END
$$;
