-- True if a visible event or step has a transaction id that this cluster has not assigned yet: it was restored from a dump.
CREATE OR REPLACE FUNCTION has_later_events() RETURNS boolean
LANGUAGE plpgsql STABLE
AS $$
BEGIN
    RETURN coalesce((
        SELECT last_event_transaction()::text::bigint - (SELECT epoch::bigint << 48 FROM event_clock) >= greatest(
            pg_snapshot_xmax(pg_current_snapshot())::text::bigint,
            pg_current_xact_id_if_assigned()::text::bigint + 1)
    ), false);
END
$$;
