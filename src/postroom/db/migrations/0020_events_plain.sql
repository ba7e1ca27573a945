-- Events: the containment operator of tags in plain SQL.

-- A build on a larger table stops appends for seconds; `postroom events index-tags` builds beside them.
DO $$
BEGIN
    IF (SELECT reltuples < 1000000 FROM pg_class WHERE oid = 'events'::regclass) THEN
        CREATE INDEX IF NOT EXISTS events_tags_idx ON events USING gin (tags); -- tags @> … in plain SQL; the store itself reads event_tags
    ELSE
        RAISE NOTICE 'events_tags_idx was not built: run postroom events index-tags';
    END IF;
END
$$;
