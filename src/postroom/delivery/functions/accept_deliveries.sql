-- Accept any number of requests at once: check suppression, enforce idempotency, store, and wake a sleeping worker.
--
-- One array per column, one element per request; NULL stands for an array of NULLs. One element stands for as many equal
-- ones in the columns channel, lane, source, ladder, template_id and locale, which most batches have in common. Every
-- request has a first recipient; the others are flat, in the order of kind and position, and refer to their request by
-- ordinal (from 1). JSON is passed as text, so that the codecs of the caller's connection do not matter. Returns one row
-- with an element per request: accepted (new), replayed (same key, same body: the first answer again) or conflict (same
-- key, other body). Without states and acceptances, all are queued and accepted.
--
-- A unique index decides between concurrent requests with the same key: the second waits for the first to commit and
-- then gets its answer. An expired key moves from the old delivery to the new one. A known key ends the whole INSERT, in a
-- subtransaction, and the rest is inserted again: ON CONFLICT would store the rows without a known key at once, but takes
-- PostgreSQL a lock and a WAL record for every row, a tenth of the time of accepting (ADR 74).
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
    p_email               text[],
    p_name                text[],
    p_other_ordinal       integer[],
    p_other_kind          text[],
    p_other_position      integer[],
    p_other_email         text[],
    p_other_name          text[],
    p_idempotency_ttl     interval,
    p_now                 timestamptz DEFAULT now(),
    p_endpoint_id         bigint[] DEFAULT NULL
) RETURNS TABLE (delivery_ids bigint[], states text[], acceptances text[])
LANGUAGE plpgsql
SET search_path FROM CURRENT
SET jit = off -- a plan that avoids a disabled node has a huge cost, and would be compiled
SET plan_cache_mode = force_generic_plan -- planning for each batch would cost more than its rows
SET enable_seqscan = off -- a cached plan outlives a small table
SET enable_nestloop = off -- a cached plan guesses ten rows per array and would compare every pair of five hundred
AS $$
#variable_conflict use_column
DECLARE
    -- Each statement reads only the columns that it needs: one for all of them copies every request six times. The INSERTs unnest
    -- them in the select list, because `unnest` of several arrays in FROM stores all of their rows first (ADR 74).
    v_count        integer            := cardinality(p_email);
    v_ids          bigint[]           := ARRAY(SELECT nextval('deliveries_id_seq') FROM generate_series(1, v_count));
    v_created_at   timestamptz        := CASE p_now WHEN now() THEN clock_timestamp() ELSE p_now END; -- tests give another time
    v_lane         delivery_lane[]    := p_lane::delivery_lane[]; -- a cast as an argument keeps the planner from inlining
    v_channel      delivery_channel[] := p_channel::delivery_channel[];
    v_lanes        delivery_lane[]    := repeat_single(v_lane, v_count);
    v_channels     delivery_channel[] := repeat_single(v_channel, v_count);
    v_sources      text[]             := repeat_single(p_source, v_count);
    v_ladders      text[]             := repeat_single(p_ladder, v_count);
    v_templates    text[]             := repeat_single(p_template_id, v_count);
    v_version      bigint[]           := ARRAY( -- looked up once for the template that all requests have
        SELECT v.version_id
        FROM unnest(p_template_id) WITH ORDINALITY AS t(id, ordinal), current_template_version(t.id) AS v
        ORDER BY ordinal);
    v_versions     bigint[]           := repeat_single(v_version, v_count);
    v_locales      text[]             := repeat_single(p_locale, v_count);
    v_kinds        recipient_kind[]   := p_other_kind::recipient_kind[];
    v_variables    jsonb[]            := p_variables::jsonb[];
    v_headers      jsonb[]            := p_headers::jsonb[];
    v_attachments  jsonb[]            := p_attachments::jsonb[];
    v_tags         jsonb[]            := p_tags::jsonb[];
    v_custom_data  jsonb[]            := p_custom_data::jsonb[];
    v_others       text[]; -- the recipients after the first of each request, for its fingerprint; NULL: one recipient each
    v_digests      bigint[]; -- see request_fingerprint
    v_fingerprints bigint[]; -- see keyed_fingerprint
    -- These concern requests with a suppressed recipient; NULL without one.
    v_stopped      timestamptz[]; -- until when each first recipient gets no mail
    v_stopped_other timestamptz[]; -- until when each other recipient gets no mail
    v_suppressed   boolean[];
    v_held_until   timestamptz[];
    -- The result of requests whose key is known, and of which nothing is stored; NULL: there is no such request.
    v_known_ids    bigint[];
    v_states       text[];
    v_acceptances  text[];
    v_is_stored    boolean;
    v_futile       integer := 0; -- rounds in a row that have found no key
    v_repeated     bigint[] := '{}'; -- of requests whose key an earlier request of the batch has; known after a conflict
    v_existing     record;
    v_row          record;
BEGIN
    IF (SELECT is_listed FROM find_suppressions(p_email || p_other_email)) THEN
        v_stopped := ARRAY(
            SELECT (SELECT until FROM suppressed_until(r.email, r.lane, p_now))
            FROM unnest(p_email, v_lanes) WITH ORDINALITY AS r(email, lane, ordinal)
            ORDER BY ordinal);
        v_stopped_other := ARRAY(
            SELECT CASE WHEN kind <> 'reply_to' THEN (SELECT until FROM suppressed_until(r.email, v_lanes[r.ordinal], p_now)) END
            FROM unnest(p_other_ordinal, v_kinds, p_other_email) WITH ORDINALITY AS r(ordinal, kind, email, place)
            ORDER BY place);
        SELECT array_agg(is_suppressed ORDER BY ordinal), array_agg(held_until ORDER BY ordinal)
        INTO v_suppressed, v_held_until
        FROM (
            SELECT ordinal, bool_and(until IS NOT DISTINCT FROM 'infinity') AS is_suppressed,
                max(until) FILTER (WHERE until < 'infinity') AS held_until
            FROM (
                SELECT ordinal, until FROM unnest(v_stopped) WITH ORDINALITY AS r(until, ordinal)
                UNION ALL
                SELECT ordinal, until
                FROM unnest(p_other_ordinal, v_kinds, v_stopped_other) AS r(ordinal, kind, until)
                WHERE kind <> 'reply_to'
            ) AS receiving
            GROUP BY ordinal
        ) AS request;
    END IF;
    IF p_idempotency_key IS NOT NULL THEN
        IF p_other_ordinal IS NOT NULL THEN
            v_others := ARRAY(
                SELECT others
                FROM generate_series(1, v_count) AS r(ordinal)
                LEFT JOIN (
                    SELECT ordinal, ROW(array_agg(kind ORDER BY place), array_agg(email ORDER BY place),
                        array_agg(name ORDER BY place))::text AS others
                    FROM unnest(p_other_ordinal, v_kinds, p_other_email, p_other_name) WITH ORDINALITY
                        AS o(ordinal, kind, email, name, place)
                    GROUP BY ordinal
                ) AS other USING (ordinal)
                ORDER BY ordinal);
        END IF;
        v_digests := ARRAY(
            SELECT CASE WHEN idempotency_key IS NOT NULL THEN request_fingerprint(
                    lane::text, template_id, locale, variables, subject, text_body, html_body, email,
                    rest_of_request(channel, send_at, from_email, from_name, headers, attachments, tags, custom_data, name, others)) END
            FROM (
                SELECT unnest(p_idempotency_key) AS idempotency_key, unnest(v_channels) AS channel, unnest(v_lanes) AS lane,
                    unnest(p_send_at) AS send_at, unnest(v_templates) AS template_id, unnest(v_locales) AS locale,
                    unnest(v_variables) AS variables, unnest(p_from_email) AS from_email, unnest(p_from_name) AS from_name,
                    unnest(p_subject) AS subject, unnest(p_text) AS text_body, unnest(p_html) AS html_body,
                    unnest(v_headers) AS headers, unnest(v_attachments) AS attachments, unnest(v_tags) AS tags,
                    unnest(v_custom_data) AS custom_data, unnest(p_email) AS email, unnest(p_name) AS name,
                    unnest(v_others) AS others, generate_series(1, v_count) AS ordinal
            ) AS r
            ORDER BY ordinal);
        v_fingerprints := ARRAY(
            SELECT CASE WHEN digest IS NOT NULL THEN keyed_fingerprint(digest) END
            FROM unnest(v_digests) WITH ORDINALITY AS r(digest, ordinal)
            ORDER BY ordinal);
    END IF;

    LOOP
        BEGIN
            INSERT INTO deliveries (
                id, state, lane, channel, next_attempt_at, created_at, dated_at, expires_at, finished_at, reason, ladder,
                max_retries, give_up_after, source, idempotency_key, request_fingerprint, idempotency_expires_at,
                template_id, template_version_id, locale, traceparent, tags, custom_data, endpoint_id, recipient_email,
                recipient_name, recipient_outcome, transaction_id
            )
            SELECT id, CASE WHEN is_suppressed THEN 'suppressed' ELSE 'queued' END::delivery_state, lane, channel,
                CASE WHEN is_suppressed IS NOT TRUE THEN greatest(send_at, held_until, p_now) END,
                v_created_at, greatest(send_at, held_until, v_created_at), expires_at,
                CASE WHEN is_suppressed THEN v_created_at END,
                CASE WHEN is_suppressed THEN 'recipient_suppressed' WHEN held_until > p_now THEN 'recipient_held' END,
                ladder, max_retries, give_up_after, source, idempotency_key, fingerprint,
                CASE WHEN idempotency_key IS NOT NULL THEN v_created_at + p_idempotency_ttl END, template_id, version_id,
                locale, traceparent, tags, custom_data, endpoint_id, email, name,
                CASE WHEN until = 'infinity' THEN 'suppressed' ELSE 'pending' END::recipient_outcome,
                (SELECT s.id FROM step_transaction() AS s) AS transaction_id -- not id, by which the rows are sorted
            FROM (
                SELECT unnest(v_ids) AS id, unnest(v_suppressed) AS is_suppressed, unnest(v_held_until) AS held_until,
                    unnest(v_lanes) AS lane, unnest(v_channels) AS channel, unnest(p_send_at) AS send_at,
                    unnest(p_expires_at) AS expires_at, unnest(v_ladders) AS ladder, unnest(p_max_retries) AS max_retries,
                    unnest(p_give_up_after) AS give_up_after, unnest(v_sources) AS source,
                    unnest(p_idempotency_key) AS idempotency_key, unnest(v_fingerprints) AS fingerprint,
                    unnest(v_templates) AS template_id, unnest(v_versions) AS version_id, unnest(v_locales) AS locale,
                    unnest(p_traceparent) AS traceparent, unnest(v_tags) AS tags, unnest(v_custom_data) AS custom_data,
                    unnest(p_endpoint_id) AS endpoint_id, unnest(p_email) AS email, unnest(p_name) AS name,
                    unnest(v_stopped) AS until
            ) AS r
            WHERE id IS NOT NULL AND id <> ALL (v_repeated)
            -- Keys in one order for all batches: two that share some keys wait for each other without a deadlock.
            ORDER BY source COLLATE "C", idempotency_key COLLATE "C", id;
            v_is_stored := true;
        EXCEPTION WHEN unique_violation THEN
            v_is_stored := false;
        END;
        EXIT WHEN v_is_stored AND v_repeated = '{}';

        -- Other deliveries have some of the keys. Their rows are committed by now, or of this batch, and a new statement sees them.
        v_known_ids := coalesce(v_known_ids, array_fill(NULL::bigint, ARRAY[cardinality(v_ids)]));
        v_states := coalesce(v_states, array_fill(NULL::text, ARRAY[cardinality(v_ids)]));
        v_acceptances := coalesce(v_acceptances, array_fill(NULL::text, ARRAY[cardinality(v_ids)]));
        v_futile := v_futile + 1;
        FOR v_row IN
            SELECT ordinal, source, idempotency_key, fingerprint, digest, lane, template_id, email
            FROM unnest(v_ids, v_sources, p_idempotency_key, v_fingerprints, v_digests, v_lanes, v_templates, p_email)
                WITH ORDINALITY AS r(id, source, idempotency_key, fingerprint, digest, lane, template_id, email, ordinal)
            WHERE id IS NOT NULL AND (NOT v_is_stored OR id = ANY (v_repeated))
        LOOP
            -- Fingerprints of release 0.1.0 are digests. Ended mail of the lane auth has none: its content is not compared.
            SELECT d.id, d.state,
                coalesce(d.request_fingerprint IN (v_row.fingerprint, v_row.digest), (d.lane, d.template_id, d.recipient_email)
                    IS NOT DISTINCT FROM (v_row.lane, v_row.template_id, v_row.email)) AS is_same,
                NOT v_is_stored AND d.idempotency_expires_at <= p_now AS is_expired
            INTO v_existing
            FROM deliveries AS d
            WHERE d.source = v_row.source AND d.idempotency_key = v_row.idempotency_key;
            IF v_existing.is_expired THEN
                UPDATE deliveries AS d
                SET idempotency_key = NULL, request_fingerprint = NULL, idempotency_expires_at = NULL
                WHERE d.id = v_existing.id AND d.idempotency_expires_at <= p_now;
            END IF;
            CONTINUE WHEN v_existing.id IS NULL OR v_existing.is_expired; -- deleted or expired: the next round takes the key
            v_futile := 0;
            v_ids[v_row.ordinal] := NULL;
            v_known_ids[v_row.ordinal] := v_existing.id;
            v_states[v_row.ordinal] := v_existing.state;
            v_acceptances[v_row.ordinal] := CASE WHEN v_existing.is_same THEN 'replayed' ELSE 'conflict' END;
        END LOOP;
        EXIT WHEN v_is_stored;
        v_repeated := ARRAY(
            SELECT id
            FROM (
                SELECT id, row_number() OVER (PARTITION BY source, idempotency_key ORDER BY id) AS place
                FROM unnest(v_ids, v_sources, p_idempotency_key) AS r(id, source, idempotency_key)
                WHERE id IS NOT NULL AND idempotency_key IS NOT NULL
            ) AS r
            WHERE place > 1);
        IF v_futile = 5 THEN
            RAISE EXCEPTION 'another transaction stores deliveries with the same idempotency keys; retry this transaction'
                USING ERRCODE = 'serialization_failure';
        END IF;
    END LOOP;

    IF p_other_ordinal IS NOT NULL THEN
        INSERT INTO other_recipients (delivery_id, kind, position, email, name, outcome)
        SELECT v_ids[ordinal], kind, position, email, name,
            CASE WHEN until = 'infinity' THEN 'suppressed' ELSE 'pending' END::recipient_outcome
        FROM unnest(p_other_ordinal, v_kinds, p_other_position, p_other_email, p_other_name, v_stopped_other)
            AS r(ordinal, kind, position, email, name, until)
        WHERE v_ids[ordinal] IS NOT NULL;
    END IF;
    INSERT INTO delivery_payloads (
        delivery_id, from_email, from_name, subject, text_body, html_body, variables, headers, attachments
    )
    SELECT id, from_email, from_name, subject, text_body, html_body, variables, headers, attachments
    FROM (
        SELECT unnest(v_ids) AS id, unnest(v_lanes) AS lane, unnest(v_suppressed) AS is_suppressed,
            unnest(p_from_email) AS from_email, unnest(p_from_name) AS from_name, unnest(p_subject) AS subject,
            unnest(p_text) AS text_body, unnest(p_html) AS html_body, unnest(v_variables) AS variables,
            unnest(v_headers) AS headers, unnest(v_attachments) AS attachments
    ) AS r
    WHERE id IS NOT NULL AND (is_suppressed AND lane = 'auth') IS NOT TRUE; -- it has ended: see empty_auth_payload
    INSERT INTO due_deliveries (id, due_at, lane, channel, watch_at)
    SELECT id, greatest(send_at, held_until, p_now), lane, channel,
        CASE WHEN template_id IS NOT NULL AND greatest(send_at, held_until, p_now) > p_now + interval '10 seconds'
            THEN '-infinity' ELSE expires_at END
    FROM (
        SELECT unnest(v_ids) AS id, unnest(v_suppressed) AS is_suppressed, unnest(p_send_at) AS send_at,
            unnest(v_held_until) AS held_until, unnest(v_lanes) AS lane, unnest(v_channels) AS channel,
            unnest(v_templates) AS template_id, unnest(p_expires_at) AS expires_at
    ) AS r
    WHERE id IS NOT NULL AND is_suppressed IS NOT TRUE;
    IF v_suppressed IS NOT NULL THEN
        INSERT INTO unsent_deliveries (id, state)
        SELECT id, 'suppressed'
        FROM unnest(v_ids, v_suppressed) AS r(id, is_suppressed)
        WHERE id IS NOT NULL AND is_suppressed;
        INSERT INTO delivery_steps (transaction_id, delivery_id, at, step, lane, channel, source, reason, domain)
        SELECT (SELECT s.id FROM step_transaction() AS s), id, p_now, 'suppressed', lane, channel, source,
            'recipient_suppressed', CASE WHEN channel = 'email' THEN lower(split_part(email, '@', -1)) END
        FROM unnest(v_ids, v_suppressed, v_lanes, v_channels, v_sources, p_email)
            AS r(id, is_suppressed, lane, channel, source, email)
        WHERE id IS NOT NULL AND is_suppressed;
    END IF;

    PERFORM wake_workers(p_lane);

    delivery_ids := v_ids;
    IF v_suppressed IS NOT NULL OR v_known_ids IS NOT NULL THEN
        SELECT array_agg(coalesce(id, known_id) ORDER BY ordinal),
            array_agg(CASE WHEN id IS NULL THEN known_state WHEN is_suppressed THEN 'suppressed' ELSE 'queued' END ORDER BY ordinal),
            array_agg(coalesce(known, 'accepted') ORDER BY ordinal)
        INTO delivery_ids, states, acceptances
        FROM unnest(v_ids, v_known_ids, v_states, v_acceptances, v_suppressed) WITH ORDINALITY
            AS r(id, known_id, known_state, known, is_suppressed, ordinal);
    END IF;
    RETURN NEXT;
END
$$;
