-- Lock due mail that can be sent: accounts are reserved first, as much mail is locked as they may carry, mail over the
-- limits of its destination is postponed, and the rest is dealt out to the accounts round robin. Reservation and claim
-- are one transaction.
CREATE OR REPLACE FUNCTION lock_routed_mail(
    p_lane delivery_lane, p_limit integer, p_now timestamptz, p_use_senders boolean, p_bytes bigint DEFAULT NULL,
    p_busy bigint[] DEFAULT '{}'
)
RETURNS TABLE (
    id bigint, ordinal bigint, claim_id bigint, sender_account_id bigint, start_in interval, send_delay interval,
    shaped_domain text, domain_connections integer
)
LANGUAGE plpgsql
ROWS 100
AS $$
#variable_conflict use_column
DECLARE
    v_sender   record;
    v_room     integer := p_limit;
    v_ids      bigint[];
    v_found    integer;
    v_mail     record;
    v_slot     record;
    v_claim_id bigint;
BEGIN
    -- A busy lane looks every ten milliseconds; without mail, to reserve accounts takes most of the time.
    IF NOT EXISTS (
        SELECT FROM due_deliveries AS w WHERE w.lane = p_lane AND w.channel = 'email' AND w.due_at <= p_now
    ) THEN
        RETURN;
    END IF;
    v_claim_id := unrepeatable_id();
    SELECT array_agg(r.account_id) AS ids, array_agg(r.granted) AS granted, array_agg(r.wait) AS waits,
        array_agg(r.send_delay) AS delays, coalesce(sum(r.granted), 0)::integer AS total
    INTO v_sender
    FROM reserve_senders(p_lane, p_limit, p_now, p_busy) AS r
    WHERE p_use_senders;
    IF p_use_senders THEN
        v_room := v_sender.total;
    END IF;
    IF v_room < 1 THEN
        IF p_lane <> 'bulk' AND lock_due_mail(p_lane, 1, p_now) <> '{}' THEN
            PERFORM want_senders(p_lane, p_now);
        END IF;
        RETURN;
    END IF;
    FOR v_round IN 1..20 LOOP
        v_ids := lock_due_mail(p_lane, v_room, p_now, p_bytes);
        v_found := cardinality(v_ids);
        SELECT array_agg(s.id) AS ids, array_agg(s.domain) AS domains, array_agg(s.start_in) AS starts,
            array_agg(s.connections) AS connections, count(*)::integer AS count
        INTO v_mail
        FROM shape_mail(p_lane, v_ids, p_now) AS s;
        EXIT WHEN v_mail.count > 0 OR v_found < v_room; -- all were postponed: others may be free to go
    END LOOP;
    -- As arrays beside those of the mail: without hash joins, a join by place would compare every pair of a batch.
    SELECT array_agg(d.account_id) AS ids, array_agg(d.start_in) AS starts, array_agg(d.send_delay) AS delays
    INTO v_slot
    FROM (
        SELECT account_id, start_in, send_delay
        FROM deal_slots(v_sender.ids, v_sender.granted, v_sender.waits, v_sender.delays)
        ORDER BY place
        LIMIT v_mail.count
    ) AS d;
    PERFORM take_senders(array_agg(s.account_id), array_agg(s.used), v_claim_id, p_now)
    FROM (
        SELECT account_id, count(*)::integer AS used
        FROM unnest(v_slot.ids) AS i(account_id)
        GROUP BY account_id
    ) AS s
    HAVING count(*) > 0;
    RETURN QUERY
    SELECT m.id, m.place, v_claim_id, m.account_id, greatest(m.slot_start_in, m.start_in), m.send_delay, m.domain, m.connections
    FROM unnest(v_mail.ids, v_mail.domains, v_mail.starts, v_mail.connections, v_slot.ids, v_slot.starts, v_slot.delays)
        WITH ORDINALITY AS m(id, domain, start_in, connections, account_id, slot_start_in, send_delay, place)
    ORDER BY m.place;
END
$$;
