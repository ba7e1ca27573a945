-- Accept one request: check suppression, enforce idempotency, store, and wake a sleeping worker. The rules are those of
-- accept_deliveries, which accepts many at once; for one, plain statements cost a fifth of that. Recipients are arrays
-- in the order of kind and position.
CREATE OR REPLACE FUNCTION accept_delivery(
    p_source              text,
    p_kinds               recipient_kind[],
    p_emails              text[],
    p_names               text[],
    p_channel             delivery_channel DEFAULT 'email',
    p_lane                delivery_lane    DEFAULT 'transactional',
    p_idempotency_key     text             DEFAULT NULL,
    p_idempotency_ttl     interval         DEFAULT '7 days',
    p_send_at             timestamptz      DEFAULT NULL,
    p_expires_at          timestamptz      DEFAULT NULL,
    p_ladder              text             DEFAULT 'generic',
    p_max_retries         integer          DEFAULT NULL,
    p_give_up_after       interval         DEFAULT NULL,
    p_template_id         text             DEFAULT NULL,
    p_template_version_id bigint           DEFAULT NULL,
    p_locale              text             DEFAULT NULL,
    p_variables           jsonb            DEFAULT NULL,
    p_from_email          text             DEFAULT NULL,
    p_from_name           text             DEFAULT NULL,
    p_subject             text             DEFAULT NULL,
    p_text                text             DEFAULT NULL,
    p_html                text             DEFAULT NULL,
    p_headers             jsonb            DEFAULT NULL,
    p_attachments         jsonb            DEFAULT NULL,
    p_tags                jsonb            DEFAULT NULL,
    p_custom_data         jsonb            DEFAULT NULL,
    p_traceparent         text             DEFAULT NULL,
    p_endpoint_id         bigint           DEFAULT NULL,
    p_now                 timestamptz      DEFAULT now(),
    OUT delivery_id       bigint,
    OUT state             text,
    OUT acceptance        text
)
LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan -- planning the look-up of suppressions for each mail costs more than all of its rows
SET enable_seqscan = off -- a cached plan outlives a small table
AS $$
#variable_conflict use_column
DECLARE
    v_transaction_id xid8;
    v_is_asleep      boolean; -- a worker of the lane waits for a notification
    v_is_listed      boolean;
    v_stopped        timestamptz[]; -- until when each recipient gets no mail
    v_held_until     timestamptz;
    v_is_suppressed  boolean := false;
    v_due_at         timestamptz;
    v_fingerprint    bigint;
    v_existing       record;
BEGIN
    -- One statement for all that is looked up: PostgreSQL takes longer to start a statement than to run one of these.
    SELECT t.id, EXISTS (SELECT FROM workers WHERE asleep @> ARRAY[p_lane]), s.is_listed
    INTO v_transaction_id, v_is_asleep, v_is_listed
    FROM step_transaction() AS t CROSS JOIN find_suppressions(p_emails) AS s;
    IF v_is_listed THEN
        v_is_suppressed := true;
        FOR i IN 1..cardinality(p_emails) LOOP
            CONTINUE WHEN p_kinds[i] = 'reply_to';
            v_stopped[i] := (SELECT until FROM suppressed_until(p_emails[i], p_lane, p_now));
            v_is_suppressed := v_is_suppressed AND v_stopped[i] IS NOT DISTINCT FROM 'infinity';
            v_held_until := greatest(v_held_until, nullif(v_stopped[i], 'infinity'));
        END LOOP;
    END IF;
    v_due_at := greatest(p_send_at, v_held_until, p_now);
    IF p_idempotency_key IS NOT NULL THEN
        v_fingerprint := request_fingerprint(p_channel, p_lane, p_send_at, p_template_id, p_locale, p_variables, p_from_email,
            p_from_name, p_subject, p_text, p_html, p_headers, p_attachments, p_tags, p_custom_data, p_kinds, p_emails, p_names);
    END IF;

    FOR v_round IN 1..5 LOOP
        INSERT INTO deliveries AS d (
            state, lane, channel, next_attempt_at, created_at, dated_at, expires_at, finished_at, reason, ladder, max_retries,
            give_up_after, source, idempotency_key, request_fingerprint, idempotency_expires_at, template_id,
            template_version_id, locale, traceparent, tags, custom_data, endpoint_id
        )
        VALUES (
            CASE WHEN v_is_suppressed THEN 'suppressed' ELSE 'queued' END::delivery_state, p_lane, p_channel,
            CASE WHEN NOT v_is_suppressed THEN v_due_at END, p_now, v_due_at, p_expires_at,
            CASE WHEN v_is_suppressed THEN p_now END,
            CASE WHEN v_is_suppressed THEN 'recipient_suppressed' WHEN v_held_until > p_now THEN 'recipient_held' END,
            p_ladder, p_max_retries, p_give_up_after, p_source, p_idempotency_key, v_fingerprint,
            CASE WHEN p_idempotency_key IS NOT NULL THEN p_now + p_idempotency_ttl END, p_template_id,
            p_template_version_id, p_locale, p_traceparent, p_tags, p_custom_data, p_endpoint_id
        )
        ON CONFLICT (source, idempotency_key) WHERE idempotency_key IS NOT NULL DO NOTHING
        RETURNING d.id INTO delivery_id;
        EXIT WHEN FOUND;
        -- Another delivery has this key. Its row is committed by now and a new statement sees it.
        SELECT d.id, d.state, d.request_fingerprint, d.idempotency_expires_at <= p_now AS is_expired
        INTO v_existing
        FROM deliveries AS d
        WHERE d.source = p_source AND d.idempotency_key = p_idempotency_key;
        IF v_existing.is_expired THEN
            UPDATE deliveries AS d
            SET idempotency_key = NULL, request_fingerprint = NULL, idempotency_expires_at = NULL
            WHERE d.id = v_existing.id AND d.idempotency_expires_at <= p_now;
        ELSIF v_existing.id IS NOT NULL THEN
            delivery_id := v_existing.id;
            state := v_existing.state;
            acceptance := CASE WHEN v_existing.request_fingerprint = v_fingerprint THEN 'replayed' ELSE 'conflict' END;
            RETURN;
        END IF;
    END LOOP;
    IF delivery_id IS NULL THEN
        RAISE EXCEPTION 'an idempotency key changes hands too fast' USING ERRCODE = 'serialization_failure';
    END IF;

    FOR i IN 1..cardinality(p_emails) LOOP
        INSERT INTO delivery_recipients (delivery_id, kind, position, email, name, outcome)
        VALUES (delivery_id, p_kinds[i], i - array_position(p_kinds, p_kinds[i]), p_emails[i], p_names[i],
            CASE WHEN v_stopped[i] = 'infinity' THEN 'suppressed' ELSE 'pending' END::recipient_outcome);
    END LOOP;
    IF NOT (v_is_suppressed AND p_lane = 'auth') THEN -- one that has ended keeps no content: see empty_auth_payload
        INSERT INTO delivery_payloads (
            delivery_id, from_email, from_name, subject, text_body, html_body, variables, headers, attachments
        )
        VALUES (delivery_id, p_from_email, p_from_name, p_subject, p_text, p_html, p_variables, p_headers, p_attachments);
    END IF;
    INSERT INTO delivery_steps (transaction_id, delivery_id, at, step, lane, channel, source)
    VALUES (v_transaction_id, delivery_id, p_now, 'accepted', p_lane, p_channel, p_source);

    state := CASE WHEN v_is_suppressed THEN 'suppressed' ELSE 'queued' END;
    acceptance := 'accepted';
    IF v_is_suppressed THEN
        INSERT INTO unsent_deliveries (id, state) VALUES (delivery_id, 'suppressed');
        INSERT INTO delivery_steps (transaction_id, delivery_id, at, step, lane, channel, source, reason, domain)
        VALUES (v_transaction_id, delivery_id, p_now, 'suppressed', p_lane, p_channel, p_source,
            'recipient_suppressed', CASE WHEN p_channel = 'email' THEN lower(split_part(p_emails[1], '@', -1)) END);
        RETURN;
    END IF;
    INSERT INTO due_deliveries (id, due_at, lane, channel, is_unrendered, expires_at)
    VALUES (delivery_id, v_due_at, p_lane, p_channel,
        p_template_id IS NOT NULL AND v_due_at > p_now + interval '10 seconds', p_expires_at);
    IF v_is_asleep THEN
        PERFORM wake_workers(ARRAY[p_lane::text]);
    END IF;
END
$$;
