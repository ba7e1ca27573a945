-- The snapshot of the calling statement, in the transaction ids of events. The own transaction counts as not yet
-- visible: PostgreSQL omits it from the list of open ones, but it may append more, which a reader with this snapshot
-- must see.
CREATE OR REPLACE FUNCTION event_snapshot() RETURNS pg_snapshot
LANGUAGE plpgsql STABLE
AS $$
DECLARE
    v_snapshot pg_snapshot := pg_current_snapshot();
    v_own      xid8 := pg_current_xact_id_if_assigned();
    v_offset   bigint := (SELECT epoch::bigint << 48 FROM event_clock);
    v_open     text;
BEGIN
    IF v_offset = 0 AND (v_own IS NULL OR v_own >= pg_snapshot_xmax(v_snapshot)) THEN
        RETURN v_snapshot;
    END IF;
    SELECT string_agg(id::text, ',' ORDER BY id) INTO v_open
    FROM (
        SELECT open.id::text::bigint + v_offset
        FROM pg_snapshot_xip(v_snapshot) AS open(id)
        UNION
        SELECT v_own::text::bigint + v_offset
        WHERE v_own < pg_snapshot_xmax(v_snapshot)
    ) AS opened(id);
    RETURN format('%s:%s:%s', pg_snapshot_xmin(v_snapshot)::text::bigint + v_offset,
        pg_snapshot_xmax(v_snapshot)::text::bigint + v_offset, v_open)::pg_snapshot;
END
$$;
