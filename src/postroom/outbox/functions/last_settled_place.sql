-- The place of the last event or step below the oldest open transaction; NULLs without any.
CREATE OR REPLACE FUNCTION last_settled_place(OUT transaction_id xid8, OUT "position" bigint)
LANGUAGE sql STABLE
AS $$
    SELECT place.transaction_id, place.position
    FROM (
        (SELECT e.transaction_id, e.position FROM events AS e WHERE e.transaction_id < event_horizon()
            ORDER BY e.transaction_id DESC, e.position DESC LIMIT 1)
        UNION ALL
        (SELECT s.transaction_id, s.position FROM all_steps AS s WHERE s.transaction_id < event_horizon()
            ORDER BY s.transaction_id DESC, s.position DESC LIMIT 1)
    ) AS place
    ORDER BY place.transaction_id DESC, place.position DESC
    LIMIT 1
$$;
