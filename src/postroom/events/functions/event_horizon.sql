-- The oldest transaction that may still write events. Nothing below it changes: a follower that reads only there, in
-- the order (transaction_id, position), never skips an event. Not for conflict checks: one old transaction, even in
-- another database, holds it back.
CREATE OR REPLACE FUNCTION event_horizon() RETURNS xid8
LANGUAGE plpgsql STABLE
AS $$
BEGIN
    RETURN (SELECT ((epoch::bigint << 48) + pg_snapshot_xmin(pg_current_snapshot())::text::bigint)::text::xid8
        FROM event_clock);
END
$$;
