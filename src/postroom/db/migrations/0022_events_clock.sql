-- Which cluster the room's transaction ids were counted in, so that a dump restored into another one is noticed even if it
-- holds no event that could tell; see functions/has_restored_events.sql. NULL: the cluster would not say.
ALTER TABLE event_clock ADD COLUMN system_identifier bigint;

-- A room with an event or a publisher further than this cluster has counted came with a dump: 0 is nobody's identifier, and
-- so the next append begins an epoch.
DO $$
BEGIN
    IF has_function_privilege('pg_catalog.pg_control_system()', 'EXECUTE') THEN
        UPDATE event_clock
        SET system_identifier = CASE
            WHEN (
                SELECT max(reached.transaction_id::text::bigint)
                FROM (
                    SELECT max(transaction_id) FROM events
                    UNION ALL
                    SELECT max(last_transaction_id) FROM outbox_topic_progress
                ) AS reached(transaction_id)
            ) - (epoch::bigint << 48) > pg_snapshot_xmax(pg_current_snapshot())::text::bigint THEN 0
            ELSE (SELECT system_identifier FROM pg_control_system())
        END;
    END IF;
END
$$;

-- Infinity, and years before 1 or after 9999, cannot be read back everywhere. NOT VALID: what is there stays.
ALTER TABLE events
    ADD CONSTRAINT events_occurred_at_range
    CHECK (occurred_at >= '0001-01-01 00:00:00+00' AND occurred_at < '10000-01-01 00:00:00+00') NOT VALID;
