-- Apply the limits of destinations to mails about to be claimed, in their order: each leaves now (within a second,
-- after `start_in`) or is postponed until `postponed_until`. Mails to domains without a row are not returned.
--
-- A rate defines slots; those of the next second are granted in any lane. Bulk mail beyond them is scheduled after the
-- bulk mail that already has a time (`planned_until`, but no later than the mail that is really queued: end_of_plan),
-- so that each is postponed once. Other lanes try again at their slot and never wait for that plan.
CREATE OR REPLACE FUNCTION shape_destinations(
    p_lane delivery_lane, p_ids bigint[], p_domains text[], p_now timestamptz
)
RETURNS TABLE (id bigint, domain text, start_in interval, connections integer, postponed_until timestamptz)
LANGUAGE plpgsql
ROWS 100
AS $$
#variable_conflict use_column
BEGIN
    -- The rows serialise claims: two must not grant the same slot. One lock order prevents deadlocks.
    PERFORM FROM destination_domains WHERE domain = ANY (p_domains) ORDER BY domain FOR UPDATE;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    RETURN QUERY
    WITH destination AS MATERIALIZED (
        SELECT domain, max_connections, messages_per_second, paused_until, next_start_at,
            CASE WHEN p_lane = 'bulk' AND planned_until > p_now + interval '1 second' THEN
                end_of_plan(domain, messages_per_second, planned_until, p_now)
            END AS planned_until
        FROM destination_domains
        WHERE domain = ANY (p_domains)
    ),
    mail AS (
        SELECT i.id, d.domain, d.max_connections, d.messages_per_second AS rate, d.paused_until, d.planned_until,
            greatest(d.next_start_at, p_now) + coalesce(
                (row_number() OVER (PARTITION BY d.domain ORDER BY i.n) - 1) / d.messages_per_second, 0
            ) * interval '1 second' AS slot_at
        FROM unnest(p_ids, p_domains) WITH ORDINALITY AS i(id, domain, n)
        JOIN destination AS d ON d.domain = i.domain
    ),
    sorted AS (
        SELECT *, slot_at < p_now + interval '1 second' AS is_now, row_number() OVER (
                PARTITION BY domain, slot_at < p_now + interval '1 second' ORDER BY slot_at, id) AS place
        FROM mail
    ),
    shaped AS (
        SELECT id, domain, max_connections, rate, slot_at, is_now,
            CASE
                WHEN paused_until > p_now THEN -- spread over time: released together they would be throttled again
                    paused_until + random() * least(paused_until - p_now, interval '1 minute')
                WHEN is_now THEN NULL
                WHEN p_lane = 'bulk' THEN
                    greatest(planned_until, p_now + interval '1 second') + (place - 1) / rate * interval '1 second'
                ELSE slot_at
            END AS postponed_until
        FROM sorted
    ),
    counted AS (
        UPDATE destination_domains AS d
        SET next_start_at = coalesce(s.last_at + 1 / d.messages_per_second * interval '1 second', d.next_start_at),
            planned_until = CASE WHEN p_lane = 'bulk' THEN
                coalesce(s.planned + 1 / d.messages_per_second * interval '1 second', d.planned_until)
                ELSE d.planned_until END
        FROM (
            SELECT domain, max(slot_at) FILTER (WHERE postponed_until IS NULL) AS last_at, max(postponed_until) AS planned
            FROM shaped
            GROUP BY domain
        ) AS s
        WHERE d.domain = s.domain AND d.messages_per_second IS NOT NULL
            AND (d.paused_until IS NULL OR d.paused_until <= p_now)
    )
    SELECT id, domain, CASE WHEN rate IS NULL THEN interval '0' ELSE slot_at - p_now END, max_connections, postponed_until
    FROM shaped;
END
$$;
