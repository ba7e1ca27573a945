-- Statements of delivery, in alphabetical order. Those that depend on the time take :now; with NULL they use the
-- database's clock.

-- name: accept :one
-- Accept requests; see functions/accept_deliveries.sql.
SELECT delivery_ids, states, acceptances
FROM accept_deliveries(
    p_channel => :channel::text[],
    p_lane => :lane::text[],
    p_source => :source::text[],
    p_idempotency_key => :idempotency_key::text[],
    p_send_at => :send_at::timestamptz[],
    p_expires_at => :expires_at::timestamptz[],
    p_ladder => :ladder::text[],
    p_max_retries => :max_retries::integer[],
    p_give_up_after => :give_up_after::interval[],
    p_template_id => :template::text[],
    p_locale => :locale::text[],
    p_variables => :variables::text[],
    p_from_email => :from_email::text[],
    p_from_name => :from_name::text[],
    p_subject => :subject::text[],
    p_text => :text::text[],
    p_html => :html::text[],
    p_headers => :headers::text[],
    p_attachments => :attachments::text[],
    p_tags => :tags::text[],
    p_custom_data => :custom_data::text[],
    p_traceparent => :traceparent::text[],
    p_email => :email::text[],
    p_name => :name::text[],
    p_other_ordinal => :other_ordinal::integer[],
    p_other_kind => :other_kind::text[],
    p_other_position => :other_position::integer[],
    p_other_email => :other_email::text[],
    p_other_name => :other_name::text[],
    p_idempotency_ttl => :idempotency_ttl::interval,
    p_now => coalesce(:now::timestamptz, now()),
    p_endpoint_id => :endpoint_id::bigint[]
);

-- name: accept_usual :one
-- Accept one usual request (see delivery/rows.py); see functions/accept_usual.sql.
SELECT delivery_id, state, acceptance
FROM accept_usual(
    p_email => :to::text,
    p_subject => :subject::text,
    p_text => :text::text,
    p_html => :html::text,
    p_template => :template::text,
    p_variables => :variables::text::jsonb,
    p_locale => :locale::text,
    p_lane => :lane::text,
    p_source => :source::text,
    p_idempotency_key => :idempotency_key::text,
    p_idempotency_ttl => :idempotency_ttl::interval
);

-- name: add_erased_attempts :many
-- Add the attempts of mail whose only recipient was erased while it was being sent: the delivery has ended as cancelled and stays
-- so, but the ledger has each mail that left. Nothing that could name the person is stored. The claim lists the mail that its
-- worker began, so that a late result of any other mail is not added; a repetition adds nothing.
INSERT INTO attempts (
    delivery_id, attempt_no, outcome, lane, code, claim_id, started_at, finished_at, transport, stage, enhanced_code,
    remote_host, tls, campaign_id, sender_account_id, recipient, template_id
)
SELECT d.id, d.attempt_count, i.outcome::attempt_outcome, d.lane, i.code, i.claim_id,
    coalesce(:now::timestamptz, now()) - i.elapsed, coalesce(:now::timestamptz, now()), i.transport, i.stage,
    i.enhanced_code, i.remote_host, i.tls, d.campaign_id, d.sender_account_id, d.recipient_email, d.template_id
FROM unnest(
    :delivery_id::bigint[], :claim_id::bigint[], :outcome::text[], :elapsed::interval[], :transport::text[],
    :stage::text[], :code::integer[], :enhanced::text[], :remote_host::text[], :tls::text[]
) AS i(delivery_id, claim_id, outcome, elapsed, transport, stage, code, enhanced_code, remote_host, tls)
JOIN claims AS c ON c.id = i.claim_id AND c.worker_id = :worker_id AND i.delivery_id = ANY(c.delivery_ids)
JOIN deliveries AS d ON d.id = i.delivery_id AND d.state = 'cancelled' AND d.reason = 'erased' AND d.claim_id IS NULL
WHERE NOT EXISTS (SELECT FROM attempts AS a WHERE a.delivery_id = d.id AND a.attempt_no = d.attempt_count)
RETURNING delivery_id AS id;

-- name: cancel :many
-- Cancel these deliveries, except the ones that no longer wait.
SELECT cancel_deliveries(:delivery_ids::bigint[], :reason::text, coalesce(:now::timestamptz, now())) AS id;

-- name: choose_facts :exec
-- Record these facts from now on, and no others. Facts about deliveries of other types are no longer visible.
WITH dropped AS (
    DELETE FROM recorded_facts
    WHERE type <> ALL(:types::text[])
)
INSERT INTO recorded_facts (type, since)
SELECT unnest(:types::text[]), event_transaction_id()
ON CONFLICT DO NOTHING;

-- name: claim_due :many
-- Lease the due deliveries of one lane, oldest first; mark_started reads their content. With sender accounts, mail is
-- claimed up to their quota, and the id of the claim that holds them is reserved before. The lease counts from the
-- moment the claim is written, however long it took to find the rows. Its commit does not wait for the disk: nothing is
-- sent before mark_started has committed, which writes the log of the claim to disk too.
WITH due AS MATERIALIZED (
    SELECT id, ordinal, claim_id, sender_account_id, start_in, send_delay, shaped_domain, domain_connections
    FROM lock_due_deliveries(
        :lane::text::delivery_lane, :batch_limit, coalesce(:now::timestamptz, now()), :use_senders, :webhook_limit,
        :byte_limit, :busy_accounts, :with_mail)
),
claim AS MATERIALIZED (
    SELECT coalesce(min(claim_id), unrepeatable_id()) AS id
    FROM due
    HAVING count(*) > 0
),
taken AS (
    DELETE FROM due_deliveries
    WHERE id IN (SELECT id FROM due)
),
claimed AS (
    UPDATE deliveries AS d
    SET state = 'sending', claim_id = claim.id, next_attempt_at = NULL, attempt_count = attempt_count + 1, sender_account_id = due.sender_account_id
    FROM due, claim
    WHERE d.id = due.id AND d.next_attempt_at IS NOT NULL -- a waiting row whose record does not wait is only deleted
    RETURNING due.ordinal, due.start_in, due.send_delay, due.shaped_domain, due.domain_connections, d.id, d.claim_id, d.channel, d.ladder, d.attempt_count, d.attempt_base,
        d.created_at, d.dated_at, d.first_attempt_at, d.max_retries, d.give_up_after, d.throttled_by, d.doubtful_account_id,
        d.expires_at, d.traceparent, d.campaign_id, d.sender_account_id, d.template_id, d.template_version_id, d.locale,
        d.endpoint_id, CASE WHEN d.channel = 'webhook' THEN d.idempotency_key END AS idempotency_key
),
held AS ( -- not all of `due`: mail that was committed after this statement began is locked, but not updated
    INSERT INTO claims (id, lane, worker_id, claimed_at, expires_at, delivery_ids)
    SELECT min(claim_id), :lane::text::delivery_lane, :worker_id, coalesce(:now::timestamptz, now()),
        coalesce(:now::timestamptz, clock_timestamp()) + :lease::interval, array_agg(id ORDER BY ordinal)
    FROM claimed
    HAVING count(*) > 0
    RETURNING wake_event_followers() -- accepting this mail has notified none
)
SELECT claimed.id, claim_id, channel::text, ladder, attempt_count, attempt_base, created_at,
    nullif(dated_at, created_at) AS dated_at, coalesce(:now::timestamptz, now()) - first_attempt_at AS age, max_retries, give_up_after, throttled_by,
    doubtful_account_id, expires_at, traceparent, campaign_id, template_id, template_version_id, locale,
    sender_account_id, start_in, send_delay, shaped_domain,
    domain_connections, idempotency_key, endpoint_id,
    coalesce(octet_length(text_body), 0) + coalesce(octet_length(html_body), 0)
        + coalesce(pg_column_size(attachments), 0) + coalesce(pg_column_size(variables), 0)
        + coalesce(pg_column_size(headers), 0) AS size
FROM claimed
LEFT JOIN delivery_payloads ON delivery_id = claimed.id
WHERE (SELECT set_config('synchronous_commit', 'off', true)) IS NOT NULL -- until the end of this transaction
ORDER BY ordinal;

-- name: close_claims :exec
-- Delete claims that hold no delivery any more. The commit does not wait for the disk: a claim that is back after a
-- crash of the server expires and holds nothing.
DELETE FROM claims
WHERE id = ANY(:claim_ids::bigint[])
    AND (SELECT set_config('synchronous_commit', 'off', true)) IS NOT NULL -- until the end of this transaction
    -- Only the transaction that inserts a claim gives it deliveries: what holds none now will never hold one.
    AND NOT EXISTS (SELECT FROM deliveries AS d WHERE d.id = ANY(claims.delivery_ids) AND d.claim_id = claims.id);

-- name: complete :many
-- Write the results of claimed deliveries: the delivery, its recipients, the attempt and the dead letter together, and
-- record the acceptances of plain results; those of other results follow in the transaction of the ledger. Only rows
-- still held by the claim are changed, and their ids returned; for all others the claim was lost. `mine`: a claim never
-- changes its worker, so it is safe to read it beside the row lock.
WITH mine AS MATERIALIZED (
    SELECT id FROM claims WHERE id = ANY(:claim_id::bigint[]) AND worker_id = :worker_id
),
input AS MATERIALIZED (
    SELECT delivery_id, retry_in, reason, detail, dead_letter_reason, elapsed, is_forgiven, is_throttled, domain, recipient,
        other_recipients, message_id, first_outcome, first_code, first_enhanced_code, first_detail,
        -- the last value of a shorter column applies to all further results: most have the same
        CASE WHEN n > cardinality(:claim_id) THEN (:claim_id)[cardinality(:claim_id)] ELSE claim_id END AS claim_id,
        CASE WHEN n > cardinality(:outcome) THEN (:outcome)[cardinality(:outcome)] ELSE outcome END AS outcome,
        CASE WHEN n > cardinality(:state) THEN (:state)[cardinality(:state)] ELSE state END AS state,
        CASE WHEN n > cardinality(:transport) THEN (:transport)[cardinality(:transport)] ELSE transport END AS transport,
        CASE WHEN n > cardinality(:stage) THEN (:stage)[cardinality(:stage)] ELSE stage END AS stage,
        CASE WHEN n > cardinality(:code) THEN (:code)[cardinality(:code)] ELSE code END AS code,
        CASE WHEN n > cardinality(:enhanced_code) THEN (:enhanced_code)[cardinality(:enhanced_code)]
            ELSE enhanced_code END AS enhanced_code,
        CASE WHEN n > cardinality(:remote_host) THEN (:remote_host)[cardinality(:remote_host)]
            ELSE remote_host END AS remote_host,
        CASE WHEN n > cardinality(:tls) THEN (:tls)[cardinality(:tls)] ELSE tls END AS tls,
        CASE WHEN n > cardinality(:reply_text) THEN (:reply_text)[cardinality(:reply_text)]
            ELSE reply_text END AS reply_text,
        CASE WHEN n > cardinality(:is_plain) THEN (:is_plain)[cardinality(:is_plain)] ELSE is_plain END AS is_plain
    FROM unnest(
        :delivery_id::bigint[], :claim_id::bigint[], :outcome::text[], :state::text[], :retry_in::interval[],
        :reason::text[], :detail::text[], :dead_letter_reason::text[], :elapsed::interval[], :transport::text[],
        :stage::text[], :code::integer[], :enhanced_code::text[], :remote_host::text[], :tls::text[],
        :reply_text::text[], :is_plain::boolean[], :is_forgiven::boolean[], :is_throttled::boolean[], :domain::text[],
        :recipient::text[], :other_recipients::text[], :message_id::text[], :first_outcome::text[], :first_code::integer[],
        :first_enhanced_code::text[], :first_detail::text[]
    ) WITH ORDINALITY AS i(
        delivery_id, claim_id, outcome, state, retry_in,
        reason, detail, dead_letter_reason, elapsed, transport,
        stage, code, enhanced_code, remote_host, tls, reply_text, is_plain, is_forgiven, is_throttled, domain,
        recipient, other_recipients, message_id, first_outcome, first_code, first_enhanced_code, first_detail, n
    )
    ORDER BY delivery_id -- every writer locks several deliveries in this order
),
done AS (
    UPDATE deliveries AS d
    SET state = CASE
            WHEN i.state <> 'waiting' THEN i.state::delivery_state
            WHEN d.template_version_id IS NULL THEN 'queued'
            WHEN i.message_id IS NOT NULL THEN 'rendered' -- a message was composed
            ELSE released_state(d.id, d.template_version_id, d.attempt_count - 1)
        END,
        next_attempt_at = CASE WHEN i.state = 'waiting' THEN coalesce(:now::timestamptz, now()) + i.retry_in END,
        finished_at = CASE WHEN i.state <> 'waiting' THEN coalesce(:now::timestamptz, now()) END,
        claim_id = NULL,
        attempt_base = d.attempt_base + CASE WHEN i.is_forgiven THEN 1 ELSE 0 END, -- an attempt that does not count
        first_attempt_at = CASE WHEN i.state = 'waiting' THEN
            coalesce(d.first_attempt_at, coalesce(:now::timestamptz, now()) - i.elapsed) END,
        throttled_by = CASE WHEN i.is_throttled THEN d.throttled_by || d.sender_account_id ELSE d.throttled_by END,
        doubtful_account_id = CASE WHEN i.outcome = 'ambiguous' THEN d.sender_account_id ELSE d.doubtful_account_id END,
        reason = i.reason,
        detail = i.detail,
        recipient_outcome = CASE
            WHEN i.is_plain THEN 'delivered'
            WHEN d.recipient_outcome = 'suppressed' AND i.first_outcome IN ('pending', 'ambiguous') THEN 'suppressed' -- erased meanwhile
            ELSE coalesce(i.first_outcome::recipient_outcome, d.recipient_outcome)
        END,
        recipient_code = CASE WHEN i.is_plain THEN i.code WHEN i.first_outcome IS NULL THEN d.recipient_code ELSE i.first_code END,
        recipient_enhanced_code = CASE
            WHEN i.is_plain THEN i.enhanced_code WHEN i.first_outcome IS NULL THEN d.recipient_enhanced_code ELSE i.first_enhanced_code
        END,
        recipient_detail = CASE WHEN NOT i.is_plain AND i.first_outcome IS NULL THEN d.recipient_detail ELSE i.first_detail END
    FROM input AS i
    WHERE d.id = i.delivery_id AND d.claim_id = i.claim_id AND (i.claim_id IN (SELECT id FROM mine)) IS TRUE
    RETURNING d.id, d.lane, d.channel, d.source, d.attempt_count, d.next_attempt_at, d.campaign_id, d.sender_account_id,
        d.idempotency_key, d.template_id, d.tags, d.custom_data, i.claim_id, i.outcome, i.state, i.reason, i.detail,
        i.dead_letter_reason, i.elapsed, i.transport, i.stage, i.code, i.enhanced_code, i.remote_host, i.tls, i.reply_text,
        i.is_plain, i.other_recipients, i.message_id,
        -- The address of a plain result is that of the delivery. "C" changes ASCII only, as the worker does for these.
        coalesce(i.recipient, CASE WHEN NOT i.is_plain THEN NULL
            WHEN d.channel = 'email' THEN lower(d.recipient_email COLLATE "C") ELSE d.recipient_email END) AS recipient,
        coalesce(i.domain, CASE WHEN i.is_plain AND d.channel = 'email'
            THEN lower(split_part(d.recipient_email, '@', -1) COLLATE "C") END) AS domain
),
stepped AS (
    INSERT INTO delivery_steps (
        transaction_id, delivery_id, at, step, lane, channel, source, reason, attempt_no, campaign_id, sender_account_id,
        outcome, domain
    )
    SELECT (SELECT s.id FROM step_transaction() AS s), id, coalesce(:now::timestamptz, now()),
        CASE state WHEN 'waiting' THEN 'deferred' WHEN 'dead_letter' THEN 'dead_lettered' ELSE state END::delivery_step,
        lane, channel, source, reason, attempt_count, campaign_id, sender_account_id, outcome::attempt_outcome,
        CASE WHEN channel = 'email' THEN coalesce(domain, nullif(first_domain(id), '')) END
    FROM done
),
attempted AS (
    INSERT INTO attempts (
        delivery_id, attempt_no, outcome, lane, code, claim_id, started_at, finished_at, next_attempt_at, transport,
        stage, enhanced_code, remote_host, tls, reply_text, campaign_id, sender_account_id, domain, recipient,
        other_recipients, message_id, idempotency_key, template_id, tags, custom_data
    )
    SELECT id, attempt_count, outcome::attempt_outcome, lane, code, claim_id, coalesce(:now::timestamptz, now()) - elapsed,
        coalesce(:now::timestamptz, now()), next_attempt_at, transport, stage, enhanced_code, remote_host, tls, reply_text,
        campaign_id, sender_account_id, domain, recipient, string_to_array(other_recipients, E'\n'), message_id,
        idempotency_key, template_id, tags, custom_data
    FROM done
),
answered AS (
    UPDATE other_recipients AS r
    SET outcome = i.outcome::recipient_outcome, code = i.code, enhanced_code = i.enhanced_code, detail = i.detail
    FROM unnest(
        :recipient_delivery_id::bigint[], :recipient_kind::text[], :recipient_position::integer[],
        :recipient_outcome::text[], :recipient_code::integer[], :recipient_enhanced_code::text[],
        :recipient_detail::text[]
    ) AS i(delivery_id, kind, position, outcome, code, enhanced_code, detail)
    WHERE r.delivery_id = i.delivery_id AND r.kind = i.kind::recipient_kind AND r.position = i.position
        AND (r.outcome <> 'suppressed' OR i.outcome NOT IN ('pending', 'ambiguous')) -- erased meanwhile
        -- IS TRUE keeps this a hashed look-up; as a join, a cached plan would compare every pair of a batch
        AND (i.delivery_id IN (SELECT id FROM done)) IS TRUE
),
given_up AS (
    INSERT INTO dead_letters (delivery_id, reason, created_at, detail)
    SELECT id, dead_letter_reason::dead_letter_reason, coalesce(:now::timestamptz, now()), detail
    FROM done
    WHERE dead_letter_reason IS NOT NULL
),
followed AS MATERIALIZED ( -- once; a subquery in FROM would be run for every row
    SELECT wake_event_followers(), record_acceptances(array_agg(id), array_agg(recipient), coalesce(:now::timestamptz, now()))
    FROM done
    WHERE is_plain AND channel = 'email'
)
SELECT id
FROM done
CROSS JOIN followed;

-- name: count_dead_letters :many
-- The number of dead letters by reason, among the newest `count_limit`.
SELECT reason::text, count(*) AS letters
FROM (
    SELECT reason
    FROM dead_letters
    ORDER BY created_at DESC, delivery_id DESC
    LIMIT :count_limit
) AS counted
GROUP BY reason
ORDER BY letters DESC, reason;

-- name: delete_old_deliveries :one
-- One bounded step of retention through the deliveries, in the order of their ids: delete those that finished long ago;
-- the trigger delete_parts deletes what belongs to them. A delivery whose idempotency key is still valid stays, because
-- a replay must find it, and dead letters have a retention of their own, because they wait for a person. `is_over`: none
-- of these was created before the time that the retention ends, and neither were later ones.
WITH page AS MATERIALIZED (
    SELECT id, created_at
    FROM deliveries
    WHERE id > coalesce(:after::bigint, 0)
    ORDER BY id
    LIMIT :batch_limit
),
old AS MATERIALIZED (
    SELECT d.id
    FROM deliveries AS d
    WHERE d.id IN (SELECT id FROM page)
        AND d.finished_at < coalesce(:now::timestamptz, now()) - :retention::interval
        AND (d.idempotency_expires_at IS NULL OR d.idempotency_expires_at <= coalesce(:now::timestamptz, now()))
        AND (d.state <> 'dead_letter'
            OR d.finished_at < coalesce(:now::timestamptz, now()) - :dead_letter_retention::interval)
    FOR UPDATE SKIP LOCKED
),
deleted AS (
    DELETE FROM deliveries WHERE id IN (SELECT id FROM old) RETURNING id
)
SELECT count(*) AS seen, (SELECT count(*) FROM deleted) AS deleted, max(id) AS last_id,
    coalesce(bool_and(created_at >= coalesce(:now::timestamptz, now()) - :retention::interval), true) AS is_over
FROM page;

-- name: delete_old_payloads :one
-- One bounded step of retention through the bodies, which are deleted before their deliveries; as delete_old_deliveries.
WITH page AS MATERIALIZED (
    SELECT p.delivery_id AS id, d.created_at, coalesce(
        d.finished_at < coalesce(:now::timestamptz, now()) - :retention::interval
        AND d.state <> 'dead_letter', d.id IS NULL) AS is_old -- a redrive needs the content of a dead letter
    FROM (
        SELECT delivery_id
        FROM delivery_payloads
        WHERE delivery_id > coalesce(:after::bigint, 0)
        ORDER BY delivery_id
        LIMIT :batch_limit
    ) AS p
    LEFT JOIN deliveries AS d ON d.id = p.delivery_id
),
deleted AS (
    DELETE FROM delivery_payloads WHERE delivery_id IN (SELECT id FROM page WHERE is_old) RETURNING delivery_id
)
SELECT count(*) AS seen, (SELECT count(*) FROM deleted) AS deleted, max(id) AS last_id,
    coalesce(bool_and(created_at >= coalesce(:now::timestamptz, now()) - :retention::interval), true) AS is_over
FROM page;

-- name: expire_waiting :many
-- Cancel waiting deliveries whose expiry has passed, also by the locked record: SQL may have changed it meanwhile. SKIP LOCKED: a
-- worker is claiming the others, and checks their expiry itself.
SELECT cancel_deliveries(
    ARRAY(
        SELECT d.id
        FROM due_deliveries AS w
        JOIN deliveries AS d ON d.id = w.id
        WHERE w.watch_at > '-infinity' AND w.watch_at <= coalesce(:now::timestamptz, now())
            AND d.expires_at <= coalesce(:now::timestamptz, now())
        ORDER BY w.watch_at
        LIMIT :batch_limit
        FOR UPDATE OF d SKIP LOCKED
    ), 'expired', coalesce(:now::timestamptz, now())
) AS id;

-- name: fail_unwritable :many
-- End deliveries of which no message can be made, with the reason; a retry would not help. Those that a claim holds get no
-- entry in the ledger, and their claim does not count as an attempt: nothing was sent. Only rows still held by the claim or,
-- without one, still queued are changed, and their ids returned. `mine`: as in `complete`.
WITH mine AS MATERIALIZED (
    SELECT id FROM claims WHERE id = ANY(:claim_id::bigint[]) AND worker_id = :worker_id::bigint
),
failed AS (
    UPDATE deliveries AS d
    SET state = 'failed', next_attempt_at = NULL, finished_at = coalesce(:now::timestamptz, now()), claim_id = NULL,
        attempt_count = d.attempt_count - CASE WHEN i.claim_id IS NULL THEN 0 ELSE 1 END,
        reason = i.reason, detail = i.detail
    FROM unnest(:delivery_id::bigint[], :claim_id::bigint[], :reason::text[], :detail::text[])
        AS i(delivery_id, claim_id, reason, detail)
    WHERE d.id = i.delivery_id AND d.claim_id IS NOT DISTINCT FROM i.claim_id AND d.state IN ('queued', 'sending')
        AND (i.claim_id IS NULL OR i.claim_id IN (SELECT id FROM mine))
    RETURNING d.*
),
stepped AS (
    INSERT INTO delivery_steps (
        transaction_id, written_by, delivery_id, at, step, lane, channel, source, reason, attempt_no, campaign_id,
        sender_account_id, domain
    )
    SELECT place.transaction_id, place.written_by, id, finished_at, 'failed', lane, channel, source, reason,
        attempt_count, campaign_id, sender_account_id, CASE WHEN channel = 'email' THEN nullif(first_domain(id), '') END
    FROM failed
    CROSS JOIN LATERAL assign_step_place(failed.id) AS place
)
SELECT id
FROM failed
CROSS JOIN (SELECT wake_event_followers()) AS woken;

-- name: find_cancelled_campaign :maybe
-- The first of these deliveries that belongs to a cancelled campaign.
SELECT d.id, d.campaign_id
FROM deliveries AS d
JOIN campaigns AS c ON c.id = d.campaign_id
WHERE d.id = ANY(:delivery_ids::bigint[]) AND c.status = 'cancelled'
ORDER BY d.id
LIMIT 1;

-- name: find_delivery :maybe
-- One delivery in full.
SELECT id, state::text, lane::text, channel::text, attempt_count, next_attempt_at, waits_for(id) AS waits_for, created_at, dated_at,
    expires_at, finished_at, resend_of, ladder, max_retries, give_up_after, source, idempotency_key, template_id, template_version_id, campaign_id,
    sender_account_id, locale, reason, deliveries.detail, traceparent, tags::text, custom_data::text, rendered_at, delivery_id IS NOT NULL AS has_body,
    from_email, from_name,
    coalesce(subject, (SELECT c.subject FROM campaigns AS c WHERE c.id = deliveries.campaign_id)) AS subject,
    (SELECT c.name FROM campaigns AS c WHERE c.id = deliveries.campaign_id) AS campaign_name,
    text_body, html_body, variables::text, headers::text, attachments::text
FROM deliveries
LEFT JOIN delivery_payloads ON delivery_id = id
WHERE id = :delivery_id;

-- name: find_last_id :one
-- The last id that a delivery got; 0 before the first.
SELECT coalesce(pg_sequence_last_value('deliveries_id_seq'), 0) AS id;

-- name: find_schedule :one
-- The time at which the next waiting delivery of a lane is due, if any.
SELECT min(first.due_at) AS due_at
FROM unnest(enum_range(NULL::delivery_channel)) AS channel(name),
    LATERAL (
        SELECT min(w.due_at) AS due_at
        FROM due_deliveries AS w
        WHERE w.lane = :lane::text::delivery_lane AND w.channel = channel.name
            AND (w.campaign_id IS NULL OR NOT EXISTS ( -- as in lock_due_mail: mail of these campaigns is not claimed
                SELECT FROM campaigns AS c WHERE c.id = w.campaign_id AND c.status IN ('paused', 'cancelled')))
    ) AS first;

-- name: forget_workers :exec
-- Remove a worker that ends, and workers that have not been seen for a while: every acceptance would notify them. FOR UPDATE
-- checks again that a worker has not been seen meanwhile.
DELETE FROM workers
WHERE id IN (
    SELECT id
    FROM workers
    WHERE id = :worker_id OR seen_at < coalesce(:now::timestamptz, now()) - :retention::interval
    LIMIT :batch_limit
    FOR UPDATE SKIP LOCKED
);

-- name: list_attempts :many
-- The history of one delivery, first attempt first.
SELECT attempt_no, outcome::text, transport, stage, code, enhanced_code, reply_text, remote_host, tls, started_at,
    finished_at, next_attempt_at
FROM attempts
WHERE delivery_id = :delivery_id
ORDER BY attempt_no, finished_at;

-- name: list_claim_recipients :many
-- The recipients of deliveries about to start, with their suppression now. `is_suppressed`: the address gets nothing.
-- `held_for`: the time that bulk mail to it waits after a soft bounce.
SELECT r.delivery_id, kind::text, position, email, name, outcome::text,
    outcome IN ('pending', 'ambiguous') AND stopped.until IS NOT DISTINCT FROM 'infinity' AS is_suppressed,
    CASE WHEN outcome IN ('pending', 'ambiguous') AND stopped.until < 'infinity'
        THEN stopped.until - coalesce(:now::timestamptz, now()) END AS held_for
FROM delivery_recipients AS r
CROSS JOIN LATERAL suppressed_until(
    CASE WHEN r.kind <> 'reply_to' THEN r.email END, :lane::text::delivery_lane, coalesce(:now::timestamptz, now())) AS stopped
WHERE r.delivery_id = ANY(:delivery_ids::bigint[])
ORDER BY r.delivery_id, r.kind, r.position;

-- name: list_dead_letters :many
-- Deliveries given up, newest first, below a cursor, with a reason or all.
WITH letter AS MATERIALIZED (
    (SELECT * FROM dead_letters
    WHERE reason BETWEEN :reason::text::dead_letter_reason AND :reason::dead_letter_reason
        AND (created_at, delivery_id)
            < (coalesce(:before_at::timestamptz, 'infinity'), coalesce(:before_id::bigint, 9223372036854775807))
    ORDER BY reason DESC, created_at DESC, delivery_id DESC
    LIMIT :page_limit::bigint)
    UNION ALL
    (SELECT * FROM dead_letters
    WHERE :reason IS NULL
        AND (created_at, delivery_id) < (coalesce(:before_at, 'infinity'), coalesce(:before_id, 9223372036854775807))
    ORDER BY created_at DESC, delivery_id DESC
    LIMIT :page_limit)
)
SELECT l.delivery_id, l.reason::text, l.created_at, l.detail, d.lane::text, d.channel::text, d.source, d.template_id,
    d.attempt_count,
    coalesce(
        (SELECT p.subject FROM delivery_payloads AS p WHERE p.delivery_id = d.id),
        (SELECT c.subject FROM campaigns AS c WHERE c.id = d.campaign_id)) AS subject,
    (SELECT c.name FROM campaigns AS c WHERE c.id = d.campaign_id) AS campaign_name,
    (SELECT array_agg(email ORDER BY kind, position) FROM delivery_recipients AS r
        WHERE r.delivery_id = d.id AND kind <> 'reply_to') AS recipients
FROM letter AS l
CROSS JOIN LATERAL (SELECT * FROM deliveries WHERE id = l.delivery_id LIMIT 1) AS d -- LIMIT keeps them from being merged
ORDER BY l.created_at DESC, l.delivery_id DESC;

-- name: list_last_attempts :many
-- The last attempt of each of some deliveries.
SELECT DISTINCT ON (delivery_id) delivery_id, attempt_no, outcome::text, transport, stage, code, enhanced_code, reply_text,
    remote_host, tls, started_at, finished_at, next_attempt_at
FROM attempts
WHERE delivery_id = ANY(:delivery_ids::bigint[])
ORDER BY delivery_id, attempt_no DESC, finished_at DESC;

-- name: list_recipients :many
-- The recipients of one delivery and their outcomes.
SELECT kind::text, position, email, name, outcome::text, code, enhanced_code, detail
FROM delivery_recipients AS r
WHERE delivery_id = :delivery_id
ORDER BY r.kind, r.position; -- by the enum, not by the text column: to, cc, bcc, reply_to

-- name: lock_delivery :maybe
-- Lock one delivery until the transaction ends, in a statement before the one that reads its content: an erasure for which
-- both would wait has then changed what the second one reads.
SELECT id
FROM deliveries
WHERE id = :delivery_id
FOR UPDATE;

-- name: lock_notice :maybe
-- Lock a kind of notice if its interval is over; no row if it is not, or if another process is sending it.
SELECT kind
FROM admin_notices
WHERE kind = :kind AND sent_at <= coalesce(:now::timestamptz, now()) - :interval::interval
FOR UPDATE SKIP LOCKED;

-- name: lock_unrendered :many
-- Lock a batch of deliveries that are due later and whose template is to be tried before, highest lane first.
SELECT id, template_id, template_version_id, locale, variables::text
FROM lock_unrendered_deliveries(:batch_limit)
LEFT JOIN delivery_payloads ON delivery_id = id;

-- name: mark_dead_letters_notified :one
-- Count the dead letters not yet reported, and mark them as reported.
WITH notified AS (
    UPDATE dead_letters
    SET notified_at = coalesce(:now::timestamptz, now())
    WHERE notified_at IS NULL
    RETURNING delivery_id
)
SELECT count(*) AS notified
FROM notified;

-- name: mark_notice_sent :exec
-- Start the interval of a kind of notice.
UPDATE admin_notices SET sent_at = coalesce(:now::timestamptz, now()) WHERE kind = :kind;

-- name: mark_rendered :exec
-- Record that the templates of these deliveries can be rendered.
WITH proven AS (
    UPDATE delivery_payloads
    SET rendered_at = coalesce(:now::timestamptz, now())
    WHERE delivery_id = ANY(:delivery_id::bigint[])
)
UPDATE deliveries
SET state = 'rendered'
WHERE id = ANY(:delivery_id::bigint[]) AND state = 'queued';

-- name: mark_started :many
-- Record, before anything is sent, how far into a claim the worker is about to get, and read the content of these
-- deliveries and their first recipient, with its suppression now as in list_claim_recipients, which reads all recipients
-- of those that have others. The first row also has the time, and whether the room has limits: a statement of its own would
-- delay each first mail. `is_stopped`: a cancel or a pause since the claim covers the mail; it is released, and not claimed again
-- (lock_due_mail). No row: the claim is lost.
WITH held AS (
    UPDATE claims
    SET started_through = :started_through, expires_at = coalesce(:now::timestamptz, clock_timestamp()) + :lease::interval
    WHERE id = :claim_id AND worker_id = :worker_id AND expires_at > coalesce(:now::timestamptz, clock_timestamp())
    RETURNING id
)
SELECT i.id, CASE WHEN i.n = 1 THEN coalesce(:now::timestamptz, clock_timestamp()) END AS now,
    CASE WHEN i.n = 1 THEN EXISTS (SELECT FROM room_limits WHERE room_limits.id) END AS is_limited, from_email, from_name, subject,
    text_body, html_body, headers::text, attachments::text, CASE WHEN :with_variables THEN variables::text END AS variables,
    d.recipient_email, d.recipient_name, d.recipient_outcome::text,
    d.recipient_outcome IN ('pending', 'ambiguous') AND stopped.until IS NOT DISTINCT FROM 'infinity' AS is_suppressed,
    CASE WHEN d.recipient_outcome IN ('pending', 'ambiguous') AND stopped.until < 'infinity'
        THEN stopped.until - coalesce(:now::timestamptz, now()) END AS held_for,
    i.id = ANY ((SELECT list_mail_to_cancel())::bigint[]) OR (d.campaign_id IS NOT NULL AND EXISTS (
        SELECT FROM campaigns AS c WHERE c.id = d.campaign_id AND c.status IN ('paused', 'cancelled'))) AS is_stopped,
    others.position IS NOT NULL AS has_others
FROM held
LEFT JOIN unnest(:delivery_ids::bigint[]) WITH ORDINALITY AS i(id, n) ON true
LEFT JOIN delivery_payloads AS p ON p.delivery_id = i.id
LEFT JOIN deliveries AS d ON d.id = i.id
LEFT JOIN LATERAL suppressed_until(d.recipient_email, d.lane, coalesce(:now::timestamptz, now())) AS stopped ON true
LEFT JOIN LATERAL ( -- EXISTS would read the whole table into a hash
    SELECT o.position FROM other_recipients AS o WHERE o.delivery_id = i.id LIMIT 1
) AS others ON true;

-- name: measure_queue :many
-- The queue length of each lane and the part of it that is due (both counted up to a limit), and the oldest due time.
SELECT lane.name::text AS lane, oldest.due_at, waiting.capped, least(oldest.due, waiting.capped) AS due
FROM unnest(enum_range(NULL::delivery_lane)) AS lane(name),
    LATERAL (
        SELECT min(first.due_at) AS due_at, sum(due.capped)::bigint AS due
        FROM unnest(enum_range(NULL::delivery_channel)) AS channel(name),
            LATERAL (
                SELECT min(w.due_at) AS due_at
                FROM due_deliveries AS w
                WHERE w.lane = lane.name AND w.channel = channel.name
            ) AS first,
            LATERAL (
                SELECT count(*) AS capped
                FROM (
                    SELECT FROM due_deliveries AS w
                    WHERE w.lane = lane.name AND w.channel = channel.name AND w.due_at <= now()
                    LIMIT :bound
                ) AS counted
            ) AS due
    ) AS oldest,
    LATERAL (
        SELECT count(*) AS capped
        FROM (
            SELECT FROM due_deliveries AS w
            WHERE w.lane = lane.name
            LIMIT :bound
        ) AS counted
    ) AS waiting;

-- name: put_to_sleep :exec
-- Request notifications about acceptance in this lane. Followers of facts are notified of mail that was accepted meanwhile
-- and is due later, which no claim takes.
UPDATE workers
SET asleep = array_append(array_remove(asleep, :lane::text::delivery_lane), :lane::text::delivery_lane)
FROM (SELECT wake_event_followers()) AS woken
WHERE id = :worker_id;

-- name: record_message_ids :exec
-- Set the Message-IDs of recovered attempts: only the composer can compute them.
UPDATE attempts AS a
SET message_id = i.message_id
FROM unnest(:delivery_id::bigint[], :message_id::text[]) AS i(delivery_id, message_id)
WHERE a.delivery_id = i.delivery_id AND a.outcome = 'ambiguous' AND a.message_id IS NULL
    AND a.domain IS NOT NULL; -- mail, not webhooks

-- name: recover_claims :many
-- Take over the claims of a dead worker. Rows it had not started are released unchanged. Rows it had started may have
-- been sent: the lane's policy either retries them, with an entry in the ledger, or holds them as dead letters for a
-- person. A worker that was cut off from the database may still hold results. It renews its claims when it returns, so
-- after an outage its claims are kept until it was seen again, or one lease has passed since the outage.
WITH expired AS MATERIALIZED (
    SELECT id, started_through, claimed_at, delivery_ids
    FROM claims
    WHERE expires_at <= coalesce(:now::timestamptz, now())
        AND ((NOT :after_outage AND pg_postmaster_start_time() <= coalesce(:now::timestamptz, now()) - :lease::interval)
            OR NOT EXISTS (SELECT FROM workers WHERE workers.id = claims.worker_id AND seen_at < claims.expires_at))
    ORDER BY expires_at
    LIMIT :batch_limit
    FOR UPDATE SKIP LOCKED -- another process recovers those, or their worker renews them now
),
held AS MATERIALIZED (
    SELECT d.id, d.claim_id, expired.claimed_at,
        claimed.ordinal <= expired.started_through AS is_ambiguous,
        claimed.ordinal <= expired.started_through AND d.lane::text = ANY(:held_lanes::text[]) AS is_given_up
    FROM expired
    CROSS JOIN LATERAL unnest(expired.delivery_ids) WITH ORDINALITY AS claimed(id, ordinal)
    JOIN deliveries AS d ON d.id = claimed.id AND d.claim_id = expired.id
    ORDER BY d.id
    FOR UPDATE OF d -- in the order in which every writer locks several deliveries
),
recovered AS (
    UPDATE deliveries AS d
    SET state = CASE
            WHEN held.is_given_up THEN 'dead_letter'
            ELSE released_state(d.id, d.template_version_id, d.attempt_count - 1)
        END,
        attempt_count = d.attempt_count - CASE WHEN held.is_ambiguous THEN 0 ELSE 1 END,
        next_attempt_at = CASE WHEN NOT held.is_given_up THEN coalesce(:now::timestamptz, now()) END,
        finished_at = CASE WHEN held.is_given_up THEN coalesce(:now::timestamptz, now()) END,
        reason = CASE WHEN held.is_ambiguous THEN 'ambiguous' ELSE d.reason END,
        first_attempt_at = coalesce(d.first_attempt_at, CASE WHEN held.is_ambiguous THEN held.claimed_at END),
        doubtful_account_id = CASE WHEN held.is_ambiguous THEN d.sender_account_id ELSE d.doubtful_account_id END,
        recipient_outcome = CASE
            WHEN held.is_ambiguous AND d.recipient_outcome = 'pending' THEN 'ambiguous' ELSE d.recipient_outcome
        END,
        claim_id = NULL
    FROM held
    WHERE d.id = held.id AND d.claim_id = held.claim_id
    RETURNING d.id, d.state, d.lane, d.attempt_count, d.next_attempt_at, d.campaign_id, d.sender_account_id, d.channel,
        d.source, d.created_at, d.idempotency_key, d.template_id, d.tags, d.custom_data, held.claim_id, held.claimed_at, held.is_ambiguous, held.is_given_up
),
attempted AS (
    INSERT INTO attempts (
        delivery_id, attempt_no, outcome, lane, claim_id, started_at, finished_at, next_attempt_at, stage, reply_text,
        campaign_id, sender_account_id, domain, recipient, other_recipients, message_id, idempotency_key, template_id,
        tags, custom_data
    )
    SELECT id, attempt_count, 'ambiguous', lane, claim_id, claimed_at, coalesce(:now::timestamptz, now()),
        next_attempt_at, 'final', 'the worker died; the message may have been handed over', campaign_id,
        sender_account_id, CASE WHEN channel = 'email' THEN split_part(addressed.emails[1], '@', -1) END,
        addressed.emails[1], nullif(addressed.emails[2:], '{}'), headers.message_id, idempotency_key, template_id, tags,
        custom_data
    FROM recovered
    LEFT JOIN LATERAL (
        SELECT array_agg(CASE WHEN channel = 'email' THEN lower(r.email) ELSE r.email END ORDER BY r.kind, r.position) AS emails
        FROM delivery_recipients AS r
        WHERE r.delivery_id = recovered.id AND r.kind <> 'reply_to'
            AND r.outcome NOT IN ('delivered', 'refused', 'suppressed') -- decided by an earlier attempt
    ) AS addressed ON true
    LEFT JOIN LATERAL (
        SELECT h.value AS message_id
        FROM delivery_payloads AS p, jsonb_each_text(p.headers) AS h
        WHERE p.delivery_id = recovered.id AND lower(h.key) = 'message-id'
    ) AS headers ON true
    WHERE is_ambiguous
),
stepped AS (
    INSERT INTO delivery_steps (
        transaction_id, delivery_id, at, step, lane, channel, source, reason, attempt_no, campaign_id, sender_account_id,
        outcome, domain
    )
    SELECT (SELECT s.id FROM step_transaction() AS s), id, coalesce(:now::timestamptz, now()),
        CASE WHEN is_given_up THEN 'dead_lettered' ELSE 'deferred' END::delivery_step, lane, channel, source, 'ambiguous',
        attempt_count, campaign_id, sender_account_id, 'ambiguous',
        CASE WHEN channel = 'email' THEN nullif(first_domain(id), '') END
    FROM recovered
    WHERE is_ambiguous
),
doubted AS (
    UPDATE other_recipients AS r
    SET outcome = 'ambiguous'
    FROM recovered
    WHERE recovered.is_ambiguous AND r.delivery_id = recovered.id AND r.outcome = 'pending' AND r.kind <> 'reply_to'
),
given_up AS (
    INSERT INTO dead_letters (delivery_id, reason, created_at, detail)
    SELECT id, 'ambiguous', coalesce(:now::timestamptz, now()), 'the worker died; the message may have been handed over'
    FROM recovered
    WHERE is_given_up
),
closed AS (
    DELETE FROM claims
    WHERE id IN (SELECT id FROM expired)
),
returned AS ( -- deliveries not started have used no quota of their account
    SELECT return_sender_quota(array_agg(sender_account_id), array_agg((claimed_at AT TIME ZONE 'UTC')::date))
    FROM recovered
    WHERE sender_account_id IS NOT NULL AND NOT is_ambiguous
)
SELECT id, state::text, is_ambiguous, created_at
FROM recovered
CROSS JOIN returned
CROSS JOIN (SELECT wake_event_followers()) AS woken;

-- name: redrive :many
-- Return these dead letters to the queue with all their attempts. Those without a body and those of a cancelled campaign stay
-- dead letters; those of a paused campaign wait until it resumes. The caller has locked the deliveries in a statement before
-- (`lock_deliveries`): an erasure that it waited for has deleted the body. Mail of a campaign that is cancelled meanwhile is
-- cancelled by the feeder (unfinished_campaigns).
WITH chosen AS (
    SELECT l.delivery_id
    FROM dead_letters AS l
    JOIN deliveries AS d ON d.id = l.delivery_id
    WHERE l.delivery_id = ANY(:delivery_ids::bigint[])
        AND EXISTS (SELECT FROM delivery_payloads AS p WHERE p.delivery_id = l.delivery_id)
        AND NOT EXISTS (SELECT FROM campaigns AS c WHERE c.id = d.campaign_id AND c.status = 'cancelled')
    ORDER BY l.delivery_id
    FOR UPDATE OF l SKIP LOCKED
),
freed AS (
    DELETE FROM dead_letters
    WHERE delivery_id IN (SELECT delivery_id FROM chosen)
    RETURNING delivery_id
),
redriven AS (
    UPDATE deliveries
    SET state = released_state(id, template_version_id, attempt_count),
        next_attempt_at = coalesce(:now::timestamptz, now()) + campaign_hold(campaign_id),
        dated_at = coalesce(:now::timestamptz, now()),
        first_attempt_at = NULL,
        throttled_by = NULL,
        attempt_base = attempt_count,
        finished_at = NULL,
        reason = NULL,
        detail = NULL
    WHERE id IN (SELECT delivery_id FROM freed) AND state = 'dead_letter'
    RETURNING *
),
stepped AS (
    INSERT INTO delivery_steps (
        transaction_id, written_by, delivery_id, at, step, lane, channel, source, attempt_no, campaign_id, sender_account_id, domain
    )
    SELECT place.transaction_id, place.written_by, id, dated_at, 'redriven', lane, channel, source, attempt_count,
        campaign_id, sender_account_id, CASE WHEN channel = 'email' THEN nullif(first_domain(id), '') END
    FROM redriven
    CROSS JOIN LATERAL assign_step_place(redriven.id) AS place
)
SELECT id
FROM redriven
CROSS JOIN (SELECT wake_event_followers()) AS woken;

-- name: register_worker :one
-- Register a worker.
INSERT INTO workers (id, pid, host)
VALUES (unrepeatable_id(), :pid, :host)
RETURNING id;

-- name: release :many
-- Release claimed deliveries that were never attempted, for now or for later; neither an attempt nor quota is used. A claim
-- never changes its worker, so it is safe to read it beside the row lock.
WITH released AS (
    UPDATE deliveries
    SET state = released_state(id, template_version_id, attempt_count - 1),
        attempt_count = attempt_count - 1,
        next_attempt_at = coalesce(:now::timestamptz, now()) + :wait::interval,
        claim_id = NULL
    WHERE id = ANY(:delivery_ids::bigint[])
        AND claim_id = (SELECT c.id FROM claims AS c WHERE c.id = :claim_id AND c.worker_id = :worker_id)
    RETURNING id, sender_account_id
),
returned AS (
    SELECT return_sender_quota(
        array_agg(sender_account_id),
        array_agg((SELECT (claimed_at AT TIME ZONE 'UTC')::date FROM claims WHERE id = :claim_id)))
    FROM released
    WHERE sender_account_id IS NOT NULL
)
SELECT id
FROM released
CROSS JOIN returned;

-- name: renew_claims :many
-- Renew the leases of the claims this worker still works on; a claim that is not returned is lost. A lease that expired
-- and was not recovered is valid again, so that recovery does not record known results as unknown.
WITH seen AS (
    UPDATE workers
    SET seen_at = coalesce(:now::timestamptz, clock_timestamp())
    WHERE id = :worker_id
),
mine AS (
    SELECT id, expires_at > coalesce(:now::timestamptz, clock_timestamp()) AS was_held
    FROM claims
    WHERE id = ANY(:claim_ids::bigint[]) AND worker_id = :worker_id
    FOR UPDATE -- a recovery that has begun ends first, and then the claim is not returned
)
UPDATE claims
SET expires_at = coalesce(:now::timestamptz, clock_timestamp()) + :lease::interval
FROM mine
WHERE claims.id = mine.id
RETURNING claims.id, was_held;

-- name: repair_queue :one
-- Compare a range of deliveries with the queue; see functions/repair_queue.sql.
SELECT last_id, missing, orphans
FROM repair_queue(:after::bigint, :batch_limit::integer);

-- name: reschedule :maybe
-- Move a delivery that was never attempted to another time; one in the past makes it due at once.
UPDATE deliveries
SET next_attempt_at = greatest(:send_at::timestamptz, coalesce(:now::timestamptz, now())) + campaign_hold(campaign_id),
    dated_at = greatest(:send_at::timestamptz, coalesce(:now::timestamptz, now()))
WHERE id = :delivery_id AND state IN ('queued', 'rendered') AND attempt_count = 0
RETURNING id;

-- name: resend :many
-- Create deliveries with the same content to the same recipients, or to another URL; the originals are unchanged. An
-- erased recipient stays suppressed. Key and Message-ID are not copied: a mailbox that knows the Message-ID would hide
-- the second mail. An expired delivery is not sent again, and mail of a paused campaign waits until that resumes. The caller has
-- locked the originals in a statement before: an erasure of the recipient either is seen here or waits, and finds the copy.
WITH original AS (
    SELECT *
    FROM deliveries
    WHERE id = ANY(:delivery_ids::bigint[]) AND state IN ('sent', 'failed', 'dead_letter', 'cancelled', 'suppressed')
        AND EXISTS (SELECT FROM delivery_payloads AS p WHERE p.delivery_id = deliveries.id)
        AND (expires_at IS NULL OR expires_at > coalesce(:now::timestamptz, now()))
),
clone AS (
    INSERT INTO deliveries (
        lane, channel, next_attempt_at, created_at, dated_at, expires_at, resend_of, ladder, max_retries, give_up_after,
        source, template_id, template_version_id, locale, traceparent, tags, custom_data, campaign_id, endpoint_id,
        recipient_email, recipient_name, recipient_outcome, transaction_id
    )
    SELECT lane, channel, coalesce(:now::timestamptz, now()) + campaign_hold(campaign_id),
        accepted.at, accepted.at, expires_at, id, ladder, max_retries,
        give_up_after, source, template_id, template_version_id, locale, traceparent, tags, custom_data, campaign_id,
        endpoint_id, coalesce(:url::text, recipient_email), recipient_name,
        CASE WHEN recipient_email LIKE 'erased:%' THEN 'suppressed' ELSE 'pending' END::recipient_outcome,
        (SELECT s.id FROM step_transaction() AS s)
    FROM original, (SELECT coalesce(:now::timestamptz, clock_timestamp()) AS at) AS accepted
    RETURNING id, resend_of, next_attempt_at, lane, channel, campaign_id, expires_at
),
waiting AS (
    INSERT INTO due_deliveries (id, due_at, lane, channel, campaign_id, watch_at)
    SELECT id, next_attempt_at, lane, channel, campaign_id, expires_at
    FROM clone
),
addresses AS (
    INSERT INTO other_recipients (delivery_id, kind, position, email, name, outcome)
    SELECT clone.id, kind, position, email, name,
        CASE WHEN email LIKE 'erased:%' AND kind <> 'reply_to' THEN 'suppressed' ELSE 'pending' END::recipient_outcome
    FROM clone
    JOIN other_recipients AS r ON r.delivery_id = clone.resend_of
),
payload AS (
    INSERT INTO delivery_payloads (
        delivery_id, rendered_at, from_email, from_name, subject, text_body, html_body, variables, headers, attachments
    )
    SELECT clone.id, CASE WHEN subject IS NOT NULL THEN rendered_at END, from_email, from_name, subject, text_body,
        html_body, variables,
        headers - ARRAY(SELECT name FROM jsonb_object_keys(headers) AS name WHERE lower(name) = 'message-id'), attachments
    FROM clone
    JOIN delivery_payloads AS p ON p.delivery_id = clone.resend_of
)
SELECT id FROM clone;

-- name: retry_now :many
-- Make waiting deliveries due at once or, in a paused campaign, when that resumes.
UPDATE deliveries
SET next_attempt_at = coalesce(:now::timestamptz, now()) + campaign_hold(campaign_id)
WHERE id = ANY(:delivery_ids::bigint[]) AND state IN ('queued', 'rendered')
RETURNING id;

-- name: return_untried :exec
-- Return the quota of mails that ended without an attempt: suppressed, expired, or impossible to compose.
SELECT return_sender_quota(array_agg(i.account_id), array_agg((c.claimed_at AT TIME ZONE 'UTC')::date))
FROM unnest(:account_id::bigint[], :claim_id::bigint[]) AS i(account_id, claim_id)
JOIN claims AS c ON c.id = i.claim_id;

-- name: send :one
-- Accept one mail on an application's own connection: the only statement that needs no right but EXECUTE on send.
SELECT @room.send(
    p_to => :to::text[],
    p_cc => :cc::text[],
    p_bcc => :bcc::text[],
    p_reply_to => :reply_to::text[],
    p_from => :from::text,
    p_subject => :subject::text,
    p_text => :text::text,
    p_html => :html::text,
    p_template => :template::text,
    p_variables => :variables::text::jsonb,
    p_locale => :locale::text,
    p_headers => :headers::text::jsonb,
    p_attachments => :attachments::text::jsonb,
    p_tags => :tags::text::jsonb,
    p_custom_data => :custom_data::text::jsonb,
    p_lane => :lane::text,
    p_source => :source::text,
    p_idempotency_key => :idempotency_key::text,
    p_idempotency_ttl => :idempotency_ttl::interval,
    p_send_at => :send_at::timestamptz,
    p_expires_at => :expires_at::timestamptz,
    p_max_retries => :max_retries::integer,
    p_give_up_after => :give_up_after::interval,
    p_traceparent => :traceparent::text
) AS delivery_id;

-- name: send_usual :one
-- Accept one mail that delivery/usual.py has checked, with a plain recipient and no rare field.
SELECT @room.send(
    p_email => :to::text,
    p_subject => :subject::text,
    p_text => :text::text,
    p_html => :html::text,
    p_template => :template::text,
    p_variables => :variables::text::jsonb,
    p_locale => :locale::text,
    p_lane => :lane::text,
    p_source => :source::text,
    p_idempotency_key => :idempotency_key::text
) AS delivery_id;

-- name: settle_ambiguous :maybe
-- Mark an ambiguous delivery as sent, on the word of an operator. The delivery is locked before its dead letter, as by every
-- other writer.
WITH locked AS MATERIALIZED (
    SELECT id FROM deliveries WHERE id = :delivery_id AND state = 'dead_letter' FOR UPDATE
),
freed AS (
    DELETE FROM dead_letters
    WHERE delivery_id IN (SELECT id FROM locked) AND reason = 'ambiguous'
    RETURNING delivery_id
),
delivered AS (
    UPDATE other_recipients
    SET outcome = 'delivered'
    WHERE delivery_id IN (SELECT delivery_id FROM freed) AND outcome IN ('pending', 'ambiguous') AND kind <> 'reply_to'
),
settled AS (
    UPDATE deliveries
    SET state = 'sent', reason = 'settled_by_operator', detail = NULL,
        recipient_outcome = CASE
            WHEN recipient_outcome IN ('pending', 'ambiguous') THEN 'delivered' ELSE recipient_outcome
        END
    WHERE id IN (SELECT delivery_id FROM freed) AND state = 'dead_letter'
    RETURNING *
),
stepped AS (
    INSERT INTO delivery_steps (
        transaction_id, written_by, delivery_id, at, step, lane, channel, source, reason, attempt_no, campaign_id, sender_account_id,
        domain
    )
    SELECT place.transaction_id, place.written_by, id, now(), 'sent', lane, channel, source, reason, attempt_count,
        campaign_id, sender_account_id, CASE WHEN channel = 'email' THEN nullif(first_domain(id), '') END
    FROM settled
    CROSS JOIN LATERAL assign_step_place(settled.id) AS place
)
SELECT id
FROM settled
CROSS JOIN (SELECT wake_event_followers()) AS woken;

-- name: store_rendered :exec
-- Store the content that was rendered for these deliveries, unless some is stored: a retry sends that.
UPDATE delivery_payloads AS p
SET subject = i.subject, text_body = i.text_body, html_body = i.html_body,
    rendered_at = coalesce(:now::timestamptz, now())
FROM unnest(:delivery_id::bigint[], :subject::text[], :text_body::text[], :html_body::text[])
    AS i(delivery_id, subject, text_body, html_body)
WHERE p.delivery_id = i.delivery_id AND p.subject IS NULL;

-- name: wake_followers :exec
-- Notify followers of facts that sleep.
SELECT wake_event_followers();

-- name: wake_up :exec
-- Stop notifications for this lane: the worker is awake.
UPDATE workers
SET asleep = array_remove(asleep, :lane::text::delivery_lane)
WHERE id = :worker_id;

-- name: wake_workers :exec
-- Notify workers that sleep in these lanes; see functions/wake_workers.sql.
SELECT wake_workers(:lanes::text[]);
