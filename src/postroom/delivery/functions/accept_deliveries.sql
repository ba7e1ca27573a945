-- Accept any number of requests at once: check suppression, enforce idempotency, store, and wake a sleeping worker.
--
-- One array per column, one element per request; recipients are flat and refer to their request by ordinal (from 1).
-- JSON is passed as text, so that the codecs of the caller's connection do not matter. Returns one row per request:
-- accepted (new), replayed (same key, same body: the first answer again) or conflict (same key, other body).
--
-- A unique index decides between concurrent requests with the same key: the second waits for the first to commit and
-- then gets its answer. An expired key moves from the old delivery to the new one.
CREATE OR REPLACE FUNCTION accept_deliveries(
    p_channel             text[],
    p_lane                text[],
    p_source              text[],
    p_idempotency_key     text[],
    p_send_at             timestamptz[],
    p_expires_at          timestamptz[],
    p_ladder              text[],
    p_max_retries         integer[],
    p_give_up_after       interval[],
    p_template_id         text[],
    p_locale              text[],
    p_variables           text[],
    p_from_email          text[],
    p_from_name           text[],
    p_subject             text[],
    p_text                text[],
    p_html                text[],
    p_headers             text[],
    p_attachments         text[],
    p_tags                text[],
    p_custom_data         text[],
    p_traceparent         text[],
    p_recipient_ordinal   integer[],
    p_recipient_kind      text[],
    p_recipient_position  integer[],
    p_recipient_email     text[],
    p_recipient_name      text[],
    p_idempotency_ttl     interval,
    p_now                 timestamptz DEFAULT now(),
    p_endpoint_id         bigint[] DEFAULT NULL
) RETURNS TABLE (ordinal integer, delivery_id bigint, state text, acceptance text)
LANGUAGE plpgsql
SET search_path FROM CURRENT
SET jit = off
SET enable_seqscan = off -- a cached plan outlives a small table
SET enable_nestloop = off -- a cached plan guesses ten rows per array and would compare every pair of five hundred
AS $$
#variable_conflict use_column
DECLARE
    v_ids          bigint[]  := array_fill(NULL::bigint, ARRAY[cardinality(p_lane)]);
    v_states       text[]    := array_fill(NULL::text, ARRAY[cardinality(p_lane)]);
    v_acceptances  text[]    := array_fill(NULL::text, ARRAY[cardinality(p_lane)]);
    v_row          record;
    v_existing     record;
    v_unresolved   integer := cardinality(p_lane);
BEGIN
    FOR v_round IN 1..5 LOOP
        FOR v_row IN
            WITH request AS MATERIALIZED (
                SELECT r.*, nextval('deliveries_id_seq') AS id, r.lane::delivery_lane AS lane_name
                FROM unnest(
                    p_channel, p_lane, p_source, p_idempotency_key, p_send_at, p_expires_at, p_ladder, p_max_retries,
                    p_give_up_after, p_template_id, p_locale, p_variables::jsonb[], p_from_email, p_from_name, p_subject, p_text, p_html,
                    p_headers::jsonb[], p_attachments::jsonb[], p_tags::jsonb[], p_custom_data::jsonb[], p_traceparent, p_endpoint_id
                ) WITH ORDINALITY AS r(
                    channel, lane, source, idempotency_key, send_at, expires_at, ladder, max_retries,
                    give_up_after, template_id, locale, variables, from_email, from_name, subject, text_body, html_body,
                    headers, attachments, tags, custom_data, traceparent, endpoint_id, ordinal
                )
                WHERE v_round = 1 OR v_ids[r.ordinal] IS NULL
            ),
            recipient AS MATERIALIZED (
                SELECT request.id, request.ordinal, r.kind::recipient_kind AS kind, r.position, r.email, r.name,
                    CASE WHEN r.kind <> 'reply_to' THEN (
                        SELECT until
                        FROM suppressed_until(r.email, request.lane_name, p_now)
                    ) END AS stopped_until
                FROM unnest(
                    p_recipient_ordinal, p_recipient_kind, p_recipient_position, p_recipient_email, p_recipient_name
                ) AS r(ordinal, kind, position, email, name)
                JOIN request USING (ordinal)
            ),
            addressed AS (
                SELECT ordinal,
                    bool_and(stopped_until IS NOT DISTINCT FROM 'infinity') FILTER (WHERE kind <> 'reply_to') AS is_suppressed,
                    max(stopped_until) FILTER (WHERE stopped_until < 'infinity') AS held_until,
                    array_agg(kind ORDER BY kind, position) AS kinds,
                    array_agg(email ORDER BY kind, position) AS emails,
                    array_agg(name ORDER BY kind, position) AS names
                FROM recipient
                GROUP BY ordinal
            ),
            prepared AS MATERIALIZED (
                SELECT request.*, version.version_id, coalesce(addressed.is_suppressed, false) AS is_suppressed,
                    greatest(send_at, addressed.held_until, p_now) AS due_at, addressed.held_until > p_now AS is_held,
                    addressed.emails[1] AS first_email,
                    CASE WHEN idempotency_key IS NOT NULL THEN request_fingerprint(
                        channel::delivery_channel, lane_name, send_at, template_id, locale, variables, from_email, from_name,
                        subject, text_body, html_body, headers, attachments, tags, custom_data, kinds, emails, names
                    ) END AS fingerprint
                FROM request
                LEFT JOIN addressed USING (ordinal)
                CROSS JOIN LATERAL current_template_version(request.template_id) AS version
            ),
            inserted AS (
                INSERT INTO deliveries AS d (
                    id, state, lane, channel, next_attempt_at, created_at, dated_at, expires_at, finished_at,
                    reason, ladder, max_retries, give_up_after, source, idempotency_key, request_fingerprint, idempotency_expires_at,
                    template_id, template_version_id, locale, traceparent, tags, custom_data, endpoint_id
                )
                SELECT id,
                    CASE WHEN is_suppressed THEN 'suppressed' ELSE 'queued' END::delivery_state,
                    lane_name, channel::delivery_channel,
                    CASE WHEN NOT is_suppressed THEN due_at END,
                    p_now, due_at, expires_at,
                    CASE WHEN is_suppressed THEN p_now END,
                    CASE WHEN is_suppressed THEN 'recipient_suppressed' WHEN is_held THEN 'recipient_held' END,
                    ladder, max_retries, give_up_after, source, idempotency_key, fingerprint,
                    CASE WHEN idempotency_key IS NOT NULL THEN p_now + p_idempotency_ttl END,
                    template_id, version_id, locale, traceparent, tags, custom_data, endpoint_id
                FROM prepared
                -- Keys in one order for all batches: two that share some keys wait for each other without a deadlock.
                ORDER BY source COLLATE "C", idempotency_key COLLATE "C", ordinal
                ON CONFLICT (source, idempotency_key) WHERE idempotency_key IS NOT NULL DO NOTHING
                RETURNING d.id, d.state
            ),
            waiting AS (
                INSERT INTO due_deliveries (id, due_at, lane, channel, is_unrendered, expires_at)
                SELECT id, due_at, lane_name, channel::delivery_channel,
                    template_id IS NOT NULL AND due_at > p_now + interval '10 seconds', expires_at
                FROM prepared
                WHERE id IN (SELECT id FROM inserted) AND NOT is_suppressed
            ),
            unsent AS (
                INSERT INTO unsent_deliveries (id, state)
                SELECT id, state
                FROM inserted
                WHERE state = 'suppressed'
            ),
            steps AS (
                INSERT INTO delivery_steps (transaction_id, delivery_id, at, step, lane, channel, source, reason, domain)
                SELECT (SELECT id FROM step_transaction()), id, p_now, step, lane_name, channel::delivery_channel, source,
                    CASE WHEN step = 'suppressed' THEN 'recipient_suppressed' END,
                    CASE WHEN step = 'suppressed' AND channel = 'email' THEN lower(split_part(first_email, '@', -1)) END
                FROM prepared
                CROSS JOIN LATERAL unnest(CASE WHEN is_suppressed THEN '{accepted,suppressed}' ELSE '{accepted}' END
                    ::delivery_step[]) AS step
                WHERE id IN (SELECT id FROM inserted)
            ),
            addresses AS (
                INSERT INTO delivery_recipients (delivery_id, kind, position, email, name, outcome)
                SELECT id, kind, position, email, name,
                    CASE WHEN stopped_until = 'infinity' THEN 'suppressed' ELSE 'pending' END::recipient_outcome
                FROM recipient
                WHERE id IN (SELECT id FROM inserted)
            ),
            payloads AS (
                INSERT INTO delivery_payloads (
                    delivery_id, from_email, from_name, subject, text_body, html_body, variables, headers, attachments
                )
                SELECT id, from_email, from_name, subject, text_body, html_body, variables, headers, attachments
                FROM prepared
                WHERE id IN (SELECT id FROM inserted)
                    AND NOT (is_suppressed AND lane_name = 'auth') -- it has ended: see empty_auth_payload
            )
            SELECT prepared.ordinal, prepared.source, prepared.idempotency_key, prepared.fingerprint, prepared.lane,
                inserted.id, inserted.state
            FROM prepared
            LEFT JOIN inserted USING (id)
        LOOP
            IF v_row.id IS NULL THEN
                -- Another delivery has this key. Its row is committed by now and a new statement sees it.
                SELECT d.id, d.state, d.request_fingerprint, d.idempotency_expires_at <= p_now AS is_expired
                INTO v_existing
                FROM deliveries AS d
                WHERE d.source = v_row.source AND d.idempotency_key = v_row.idempotency_key;
                IF v_existing.is_expired THEN
                    UPDATE deliveries AS d
                    SET idempotency_key = NULL, request_fingerprint = NULL, idempotency_expires_at = NULL
                    WHERE d.id = v_existing.id AND d.idempotency_expires_at <= p_now;
                END IF;
                CONTINUE WHEN v_existing.id IS NULL OR v_existing.is_expired; -- deleted or expired: the next round takes the key
                v_ids[v_row.ordinal] := v_existing.id;
                v_states[v_row.ordinal] := v_existing.state;
                v_acceptances[v_row.ordinal] :=
                    CASE WHEN v_existing.request_fingerprint = v_row.fingerprint THEN 'replayed' ELSE 'conflict' END;
            ELSE
                v_ids[v_row.ordinal] := v_row.id;
                v_states[v_row.ordinal] := v_row.state;
                v_acceptances[v_row.ordinal] := 'accepted';
            END IF;
            v_unresolved := v_unresolved - 1;
        END LOOP;
        EXIT WHEN v_unresolved = 0;
    END LOOP;
    IF v_unresolved > 0 THEN
        RAISE EXCEPTION 'an idempotency key changes hands too fast' USING ERRCODE = 'serialization_failure';
    END IF;

    PERFORM wake_workers(p_lane);

    RETURN QUERY SELECT o::integer, v_ids[o], v_states[o], v_acceptances[o] FROM generate_series(1, cardinality(p_lane)) AS o;
END
$$;
