-- Apply destination limits to locked mails: postpone those over a limit, without counting an attempt, and return the
-- others in their order, with their start times.
CREATE OR REPLACE FUNCTION shape_mail(p_lane delivery_lane, p_ids bigint[], p_now timestamptz)
RETURNS TABLE (id bigint, domain text, start_in interval, connections integer)
LANGUAGE plpgsql
ROWS 100
AS $$
#variable_conflict use_column
DECLARE
    v_domains text[];
    v_shaped  record;
BEGIN
    IF NOT EXISTS (SELECT FROM destination_domains) THEN -- the usual case
        RETURN QUERY SELECT i.id, NULL::text, NULL::interval, NULL::integer FROM unnest(p_ids) AS i(id);
        RETURN;
    END IF;
    v_domains := ARRAY(
        SELECT (SELECT lower(substring(d.recipient_email FROM '[^@]*$')) FROM deliveries AS d WHERE d.id = i.id)
        FROM unnest(p_ids) WITH ORDINALITY AS i(id, n)
        ORDER BY i.n);
    SELECT array_agg(s.id) AS ids, array_agg(s.domain) AS domains, array_agg(s.start_in) AS starts,
        array_agg(s.connections) AS connections, array_agg(s.postponed_until) AS postponed
    INTO v_shaped
    FROM shape_destinations(p_lane, p_ids, v_domains, p_now) AS s;
    UPDATE deliveries AS d
    SET next_attempt_at = s.postponed_until
    FROM unnest(v_shaped.ids, v_shaped.postponed) AS s(id, postponed_until)
    WHERE d.id = s.id AND s.postponed_until IS NOT NULL;
    RETURN QUERY
    SELECT i.id, s.domain, s.start_in, s.connections
    FROM unnest(p_ids) WITH ORDINALITY AS i(id, n)
    LEFT JOIN unnest(v_shaped.ids, v_shaped.domains, v_shaped.starts, v_shaped.connections, v_shaped.postponed)
        AS s(id, domain, start_in, connections, postponed_until) ON s.id = i.id
    WHERE s.postponed_until IS NULL
    ORDER BY i.n;
END
$$;
