-- Fill the queue of one campaign up to `p_target`: the next recipients of every due zone become deliveries in the bulk
-- lane, or are marked as suppressed. One transaction holds the campaign's row lock, so any number of feeders may call
-- it: a second feeder skips the locked row and gets no result.
--  Campaigns share the lane through the due times of their mail. A slice is spread evenly over the time since this
-- campaign's latest waiting mail or, without any, since the oldest waiting mail of the lane. It therefore interleaves
-- with the mail of other campaigns instead of queueing behind it.
--  The slice is one range of the primary key, updated and returned without a join, so that the planner cannot choose a
-- slow plan.
CREATE OR REPLACE FUNCTION feed_campaign(p_campaign_id bigint, p_target integer, p_now timestamptz DEFAULT now())
RETURNS TABLE (fed integer, suppressed integer, waiting integer) -- waiting: deliveries already in the queue
LANGUAGE plpgsql
SET search_path FROM CURRENT
SET jit = off -- a plan that avoids a disabled node has a huge cost, and would be compiled
SET enable_seqscan = off -- a plan cached while the table was small must still be right when it is large
AS $$
#variable_conflict use_column
DECLARE
    v_zone       record;
    v_slice      record;
    v_since      timestamptz;
    v_last_id    bigint;
    v_room       integer;
    v_fed        integer := 0;
    v_suppressed integer := 0;
    v_waiting    integer;
BEGIN
    PERFORM FROM campaigns WHERE id = p_campaign_id AND status = 'active' FOR NO KEY UPDATE SKIP LOCKED;
    IF NOT FOUND THEN
        RETURN;
    END IF;

    SELECT count(*), max(due_at)
    INTO v_waiting, v_since
    FROM (
        SELECT due_at
        FROM due_deliveries
        WHERE campaign_id = p_campaign_id AND due_at <= p_now
        ORDER BY due_at
        LIMIT p_target
    ) AS due;
    IF v_since IS NULL THEN
        SELECT min(due_at)
        INTO v_since
        FROM due_deliveries
        WHERE lane = 'bulk' AND channel = 'email';
    END IF;
    v_since := least(v_since, p_now);
    v_room := p_target - v_waiting;

    FOR v_zone IN
        SELECT time_zone, fed_through, last_id
        FROM campaign_zones
        WHERE campaign_id = p_campaign_id AND due_at <= p_now AND fed_through < last_id
        ORDER BY due_at, time_zone
    LOOP
        EXIT WHEN v_room <= 0;
        SELECT max(id)
        INTO v_last_id
        FROM (
            SELECT id
            FROM campaign_recipients
            WHERE campaign_id = p_campaign_id AND time_zone = v_zone.time_zone AND id > v_zone.fed_through
                AND state = 'waiting'
            ORDER BY id
            LIMIT v_room
        ) AS next;

        WITH marked AS (
            UPDATE campaign_recipients AS r
            SET (state, delivery_id) = (
                SELECT CASE WHEN is_listed THEN 'suppressed' ELSE 'fed' END::campaign_recipient_state,
                    CASE WHEN NOT is_listed THEN nextval('deliveries_id_seq') END
                FROM (
                    SELECT until IS NOT DISTINCT FROM 'infinity' AS is_listed
                    FROM suppressed_until(r.email, 'bulk', p_now)
                    OFFSET 0 -- evaluated once, not once per column
                ) AS asked
            )
            WHERE campaign_id = p_campaign_id AND time_zone = v_zone.time_zone AND id > v_zone.fed_through
                AND id <= v_last_id AND state = 'waiting'
            RETURNING r.id, r.delivery_id, r.email, r.name, r.custom_data
        ),
        slice AS MATERIALIZED (
            SELECT *, v_since + (p_now - v_since) * (row_number() OVER (ORDER BY id) / v_room::float8) AS due_at,
                -- the end of a hold after a soft bounce
                (SELECT until FROM suppressed_until(email, 'bulk', p_now)) AS held_until
            FROM marked
        )
        SELECT count(*) AS size, count(*) FILTER (WHERE delivery_id IS NULL) AS suppressed,
            array_agg(delivery_id) FILTER (WHERE delivery_id IS NOT NULL) AS ids,
            array_agg(due_at) FILTER (WHERE delivery_id IS NOT NULL) AS due_at,
            array_agg(held_until) FILTER (WHERE delivery_id IS NOT NULL) AS held_until,
            array_agg(email) FILTER (WHERE delivery_id IS NOT NULL) AS emails,
            array_agg(name) FILTER (WHERE delivery_id IS NOT NULL) AS names,
            array_agg(custom_data) FILTER (WHERE delivery_id IS NOT NULL) AS variables
        INTO v_slice
        FROM slice;
        IF v_slice.ids IS NOT NULL THEN
            PERFORM enqueue_deliveries(
                v_slice.ids, v_slice.due_at, v_slice.held_until, v_slice.emails, v_slice.names, v_slice.variables, 'bulk',
                'campaign:' || p_campaign_id, p_campaign_id, p_now);
        END IF;

        -- Fewer recipients than requested: the zone is finished.
        UPDATE campaign_zones
        SET fed_through = CASE WHEN v_slice.size < v_room THEN v_zone.last_id ELSE v_last_id END
        WHERE campaign_id = p_campaign_id AND time_zone = v_zone.time_zone;
        v_fed := v_fed + v_slice.size - v_slice.suppressed;
        v_suppressed := v_suppressed + v_slice.suppressed;
        v_room := v_room - v_slice.size;
    END LOOP;

    IF v_fed + v_suppressed > 0 THEN
        UPDATE campaigns
        SET fed_count = fed_count + v_fed, suppressed_count = suppressed_count + v_suppressed
        WHERE id = p_campaign_id;
    END IF;
    RETURN QUERY SELECT v_fed, v_suppressed, v_waiting;
END
$$;
