-- Accept one mail from SQL, inside the caller's own transaction: SELECT postroom.send('{ada@example.org}', p_subject =>
-- …) Returns the delivery's id; the same key with the same content returns the first id again.
--
-- It runs as the owner of the room, so that an application needs EXECUTE on this function and no right on any table.
-- The source is bound to the application's role: see bind_source.
CREATE OR REPLACE FUNCTION send(
    p_to              text[]      DEFAULT NULL,
    p_subject         text        DEFAULT NULL,
    p_text            text        DEFAULT NULL,
    p_html            text        DEFAULT NULL,
    p_template        text        DEFAULT NULL,
    p_variables       jsonb       DEFAULT NULL,
    p_locale          text        DEFAULT NULL,
    p_lane            text        DEFAULT 'transactional',
    p_source          text        DEFAULT NULL,
    p_idempotency_key text        DEFAULT NULL,
    p_send_at         timestamptz DEFAULT NULL,
    p_expires_at      timestamptz DEFAULT NULL,
    p_from            text        DEFAULT NULL,
    p_cc              text[]      DEFAULT NULL,
    p_bcc             text[]      DEFAULT NULL,
    p_reply_to        text[]      DEFAULT NULL,
    p_headers         jsonb       DEFAULT NULL,
    p_attachments     jsonb       DEFAULT NULL,
    p_tags            jsonb       DEFAULT NULL,
    p_custom_data     jsonb       DEFAULT NULL,
    p_idempotency_ttl interval    DEFAULT '7 days',
    p_max_retries     integer     DEFAULT NULL,
    p_give_up_after   interval    DEFAULT NULL,
    p_traceparent     text        DEFAULT NULL,
    p_email           text        DEFAULT NULL -- in place of p_to: of a usual mail that Python has checked
) RETURNS bigint
LANGUAGE plpgsql
SECURITY DEFINER -- an application may send without rights on other people's mail
SET search_path FROM CURRENT
SET plan_cache_mode = force_generic_plan -- planning the look-up of suppressions for each mail costs more than all of its rows
SET enable_seqscan = off -- a cached plan outlives a small table
AS $$
#variable_conflict use_column
-- PL/pgSQL prepares each expression that runs again in every transaction, and PostgreSQL each value of an INSERT. So the usual
-- mail, which has one plain recipient, runs few of them and leaves every variable NULL that concerns another kind of mail.
-- send_again accepts mail to suppressed recipients and mail whose key is known.
DECLARE
    v_address        text; -- p_email in lower case; NULL: it is in lower case
    v_role           text; -- of the session, see bind_source
    v_name           text;
    v_has_content    boolean; -- a body that needs no further check
    v_from           text[];
    v_from_email     text; -- of v_from, because an INSERT prepares each subscript and cast
    v_from_name      text;
    v_max_retries    smallint;
    v_others         text[]; -- the other recipients; NULL: there is one recipient
    v_kinds          recipient_kind[];
    v_positions      integer[];
    v_names          text[];
    v_due_at         timestamptz; -- NULL: now
    v_watch_at       timestamptz; -- see due_deliveries
    v_rest           text; -- see request_fingerprint
    v_id             bigint;
    v_created_at     timestamptz; -- by the clock: times follow ids (ADR 68)
    v_lane           delivery_lane;
    v_version_id     bigint;
    v_transaction_id xid8;
    v_marks          bigint; -- see room_marks
    v_is_listed      boolean;
    v_is_asleep      boolean; -- a worker of the lane waits for a notification
BEGIN
    -- With p_email and no rare field, Python has checked the mail. Postroom's own roles, which may write `deliveries`, need no
    -- second check. From here on p_email is the first recipient of every mail.
    IF (p_email IS NOT NULL AND current_setting('role') = 'none'
        AND num_nonnulls(p_to, p_cc, p_bcc, p_reply_to, p_send_at, p_expires_at, p_max_retries, p_give_up_after, p_from,
            p_headers, p_attachments, p_tags, p_custom_data, p_traceparent) = 0
        AND has_table_privilege(session_user, 'deliveries'::regclass, 'INSERT')) IS NOT TRUE
    THEN
        IF p_to IS NOT NULL THEN
            p_to := CASE WHEN p_email IS NULL THEN p_to ELSE p_to || p_email END;
            p_email := CASE WHEN cardinality(p_to) = 1 THEN p_to[1] END;
        END IF;
        v_role := coalesce(nullif(current_setting('role'), 'none'), session_user);
        -- bind_source, for an application that sends under the name of its role and for Postroom's own roles
        IF ((p_source = v_role OR has_table_privilege(v_role, 'deliveries'::regclass, 'INSERT'))
            AND p_source ~ '^[!-~]+$' AND length(p_source) <= 100
            AND p_source NOT IN ('accounts', 'admin', 'campaigns', 'operators', 'outbox', 'schedule')) IS NOT TRUE
        THEN
            p_source := bind_source(p_source);
        END IF;
        IF p_template IS NULL THEN
            v_has_content := p_subject ~ '^[^\r\n]*[!-~][^\r\n]*$' AND length(p_subject) <= 998 AND num_nonnulls(p_text, p_html) > 0
                AND coalesce(octet_length(p_text), 0) <= 5242880 AND coalesce(octet_length(p_html), 0) <= 5242880;
        END IF;
        -- One expression that is true for the usual mail. For any other, the functions name the field or accept it.
        IF (num_nonnulls(p_cc, p_bcc, p_reply_to, p_send_at, p_expires_at, p_max_retries, p_give_up_after, p_from, p_headers,
                p_attachments, p_tags, p_custom_data, p_traceparent) = 0
            AND is_plain_address(p_email)
            AND p_lane IN ('auth', 'transactional', 'bulk')
            AND (p_idempotency_key IS NULL OR p_idempotency_key ~ '^[ -~]+$' AND length(p_idempotency_key) <= 255)
            AND coalesce(p_locale, 'en') ~ '^[a-z]{2}$'
            -- NULL if they are no object. A text is at most six times as long in JSON as in jsonb, and the sum is never compressed.
            AND (p_variables IS NULL
                OR NOT p_variables @? 'strict $.* ? (@.type() != "string")' AND pg_column_size('{}' || p_variables) <= 43690)
            AND p_idempotency_ttl = interval '7 days'
            AND (v_has_content OR p_template IS NOT NULL AND num_nonnulls(p_subject, p_text, p_html) = 0)) IS NOT TRUE
        THEN
            p_to := CASE WHEN p_to IS NULL AND p_email IS NOT NULL THEN ARRAY[p_email] ELSE p_to END;
            PERFORM check_send(p_to, p_cc, p_bcc, p_reply_to, p_subject, p_text, p_html, p_template, p_lane, p_idempotency_key,
                p_send_at, p_expires_at);
            PERFORM check_patience(p_max_retries, p_give_up_after);
            PERFORM check_send_data(p_locale, p_variables, p_headers, p_attachments, p_tags, p_custom_data, p_idempotency_ttl);
            IF p_from IS NOT NULL THEN
                v_from := CASE WHEN is_plain_address(p_from) THEN ARRAY[p_from, NULL] ELSE parse_address('from', p_from) END;
                v_from_email := v_from[1];
                v_from_name := v_from[2];
            END IF;
            v_max_retries := p_max_retries;
            v_due_at := CASE WHEN p_send_at > now() THEN p_send_at END;
            v_watch_at := CASE
                WHEN p_template IS NOT NULL AND v_due_at > now() + interval '10 seconds' THEN '-infinity' ELSE p_expires_at END;
            p_traceparent := substring(p_traceparent FROM '^[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$');
            IF is_plain_address(p_email) IS NOT TRUE OR num_nonnulls(p_cc, p_bcc, p_reply_to) > 0 THEN
                SELECT kinds[2:], positions[2:], emails[1], emails[2:], names[1], names[2:]
                INTO v_kinds, v_positions, p_email, v_others, v_name, v_names
                FROM parse_recipients(p_to, p_cc, p_bcc, p_reply_to);
                v_others := nullif(v_others, '{}');
            END IF;
            v_address := lower(p_email);
            v_rest := rest_of_request('email', p_send_at, v_from_email, v_from_name, p_headers, p_attachments, p_tags, p_custom_data,
                v_name, CASE WHEN v_others IS NOT NULL THEN ROW(v_kinds, v_others, v_names)::text END);
        END IF;
    END IF;

    -- One statement for all that is looked up: PostgreSQL takes longer to start a statement than to run one of these. Functions of
    -- the owners in FROM would be joined, which takes longer than reading the tables.
    SELECT p_lane::delivery_lane, nextval('deliveries_id_seq'), clock_timestamp(), pg_current_xact_id(), room_marks(),
        EXISTS (SELECT FROM suppressions WHERE address = coalesce(v_address, p_email)),
        (SELECT t.version_id FROM templates AS t WHERE t.id = p_template),
        EXISTS (SELECT FROM workers WHERE p_lane::delivery_lane = ANY (asleep))
    INTO v_lane, v_id, v_created_at, v_transaction_id, v_marks, v_is_listed, v_version_id, v_is_asleep
    WHERE keep_heap();
    IF v_marks <> 0 OR v_is_listed OR v_others IS NOT NULL OR p_template IS NOT NULL AND v_version_id IS NULL THEN
        IF p_template IS NOT NULL AND v_version_id IS NULL THEN
            RAISE EXCEPTION 'template: there is no template %', quote_literal(p_template)
                USING ERRCODE = 'PR001', COLUMN = 'template';
        END IF;
        IF NOT are_marks_known(v_marks) THEN
            v_marks := -1; -- every mark: their tables are read
        END IF;
        v_transaction_id := (SELECT id FROM step_transaction());
        IF v_marks & 2 > 0 THEN
            PERFORM check_room_limits(v_from_email);
        END IF;
        v_is_listed := v_is_listed
            OR v_marks & 1 > 0 AND find_erased(coalesce(v_address, p_email))
            OR v_others IS NOT NULL AND (SELECT is_listed FROM find_suppressions(v_others));
    END IF;
    IF NOT v_is_listed THEN
        INSERT INTO deliveries (
            id, lane, next_attempt_at, created_at, dated_at, expires_at, ladder, max_retries, give_up_after, source,
            idempotency_key, request_fingerprint, idempotency_expires_at, template_id, template_version_id, locale,
            traceparent, tags, custom_data, recipient_email, recipient_name, transaction_id
        )
        VALUES (
            v_id, v_lane, coalesce(v_due_at, CURRENT_TIMESTAMP), v_created_at, coalesce(v_due_at, v_created_at),
            p_expires_at, CASE v_lane WHEN 'auth' THEN 'auth' ELSE 'generic' END, v_max_retries, p_give_up_after, p_source,
            p_idempotency_key,
            CASE WHEN p_idempotency_key IS NOT NULL THEN keyed_fingerprint(request_fingerprint(
                p_lane, p_template, p_locale, p_variables, p_subject, p_text, p_html, p_email, v_rest))
                END,
            CASE WHEN p_idempotency_key IS NOT NULL THEN v_created_at + p_idempotency_ttl END,
            p_template, v_version_id, p_locale, p_traceparent, p_tags, p_custom_data, p_email, v_name,
            v_transaction_id
        )
        ON CONFLICT (source, idempotency_key) WHERE idempotency_key IS NOT NULL DO NOTHING;
    END IF;
    IF v_is_listed OR NOT FOUND THEN
        RETURN send_again(p_subject, p_text, p_html, p_template, p_variables, p_locale, p_lane, p_source, p_idempotency_key,
            p_send_at, p_expires_at, v_from, p_headers, p_attachments, p_tags, p_custom_data, p_idempotency_ttl, p_max_retries,
            p_give_up_after, p_traceparent, p_email, v_name, v_kinds::text[], v_positions, v_others, v_names);
    END IF;
    INSERT INTO delivery_payloads (
        delivery_id, from_email, from_name, subject, text_body, html_body, variables, headers, attachments
    )
    VALUES (v_id, v_from_email, v_from_name, p_subject, p_text, p_html, p_variables, p_headers, p_attachments);
    INSERT INTO due_deliveries (id, due_at, lane, channel, watch_at)
    VALUES (v_id, coalesce(v_due_at, CURRENT_TIMESTAMP), v_lane, 'email', v_watch_at);
    IF v_is_asleep OR v_others IS NOT NULL THEN -- one expression for what most mail does not need
        INSERT INTO other_recipients (delivery_id, kind, position, email, name)
        SELECT v_id, kind, position, email, name
        FROM unnest(v_kinds, v_positions, v_others, v_names) AS r(kind, position, email, name);
        PERFORM wake_workers(ARRAY[p_lane]);
    END IF;
    RETURN v_id;
END
$$;
