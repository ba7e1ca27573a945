-- Finders return ids below `before_id` and from `first_id` on, newest first. Several indexes end in `id >> 10`: equal
-- keys are stored once, so an entry takes 8 bytes instead of 32. Within a key, PostgreSQL sorts at most 1024 ids.
--
-- `id + 0` keeps the planner from scanning the primary key: a cached plan cannot know that a value is rare.
--
-- Finders of frequent values are functions that keep their plan: a plan does not know the limit, and PostgreSQL would make
-- a new one for each page of a large room, which takes longer than finding fifty ids.

-- name: find_id_since :one
-- The first id accepted since a time; see functions/first_delivery_since.sql.
SELECT first_delivery_since(:since::timestamptz) AS id;

-- name: find_newest_id :one
-- The largest id, 0 without deliveries.
SELECT coalesce(max(id), 0) AS id FROM deliveries;

-- name: find_rest_id :maybe
-- The id below which the deliveries are that follow so many others; no row without any. Reads only the primary key.
SELECT id + 1 AS rest_id
FROM deliveries
WHERE id < :before_id::bigint AND id >= :first_id::bigint
ORDER BY id DESC
LIMIT 1 OFFSET :row_limit;

-- name: ids_by_column :one
-- Deliveries by a column with an index of its own; see functions/delivery_ids_by.sql.
SELECT delivery_ids_by(:column::text, :value::text, :before_id::bigint, :first_id::bigint, :id_limit::bigint) AS ids;

-- name: ids_by_idempotency_key :many
-- Deliveries with an idempotency key: one for each source.
SELECT id
FROM deliveries
WHERE idempotency_key = :value::text AND id + 0 < :before_id::bigint AND id + 0 >= :first_id::bigint
ORDER BY id + 0 DESC
LIMIT :id_limit;

-- name: ids_by_message_id :many
-- Mail that left with a Message-ID: Postroom's own names the delivery, the caller's is in the stored headers.
SELECT id
FROM (
    SELECT delivery_id AS id
    FROM attempts
    WHERE delivery_id = substring(:value::text FROM '^<pr\.([0-9]{1,18})\.')::bigint AND message_id = :value
    UNION
    SELECT delivery_id
    FROM delivery_payloads
    WHERE jsonb_path_query_first(headers, '$.keyvalue() ? (@.key like_regex "^message-id$" flag "i").value', '{}', true) #>> '{}'
            = :value
        AND headers IS NOT NULL
) AS found
WHERE id + 0 < :before_id::bigint AND id + 0 >= :first_id::bigint
ORDER BY id DESC
LIMIT :id_limit;

-- name: ids_by_recipient_part :many
-- Mail to an address that contains a text, in any case. No index serves it: the caller bounds the range of ids,
-- see find_rest_id.
SELECT DISTINCT delivery_id AS id
FROM delivery_recipients
WHERE strpos(lower(email), lower(:value::text)) > 0 AND kind <> 'reply_to'
    AND delivery_id < :before_id::bigint AND delivery_id >= :first_id::bigint
ORDER BY delivery_id DESC
LIMIT :id_limit;

-- name: ids_given :many
-- Deliveries by their ids.
SELECT DISTINCT id
FROM unnest(:value::bigint[]) AS given(id)
WHERE id < :before_id::bigint AND id >= :first_id::bigint
ORDER BY id DESC
LIMIT :id_limit;

-- name: ids_newest :one
-- All deliveries, or those accepted before a time. Ids follow times only to within seconds, so before_id leaves thousands of
-- later deliveries in a busy room: they are skipped here, in a fifth of the time of match_deliveries.
SELECT newest_delivery_ids(
    :before_id::bigint, :first_id::bigint, :created_before::timestamptz, :id_limit::bigint) AS ids;

-- name: ids_sending :many
-- Deliveries that workers hold, or have just finished.
SELECT held AS id
FROM claims, unnest(delivery_ids) AS held
WHERE held < :before_id::bigint AND held >= :first_id::bigint
ORDER BY held DESC
LIMIT :id_limit;

-- name: ids_unsent :many
-- Deliveries that failed, were given up, cancelled or suppressed.
SELECT id
FROM unsent_deliveries
WHERE state = :value::text::delivery_state AND id < :before_id::bigint AND id >= :first_id::bigint
ORDER BY state, id DESC
LIMIT :id_limit;

-- name: ids_waiting :many
-- Deliveries that wait, rendered or not.
SELECT id
FROM due_deliveries
WHERE id < :before_id::bigint AND id >= :first_id::bigint
ORDER BY id DESC
LIMIT :id_limit;

-- name: list_deliveries :many
-- These deliveries, newest first.
SELECT id, state::text, lane::text, channel::text, attempt_count, max_retries, give_up_after, next_attempt_at,
    CASE WHEN next_attempt_at IS NOT NULL THEN waits_for(id) END AS waits_for, created_at, finished_at, source, template_id, campaign_id, reason,
    coalesce((SELECT p.subject FROM delivery_payloads AS p WHERE p.delivery_id = d.id),
        (SELECT c.subject FROM campaigns AS c WHERE c.id = d.campaign_id)) AS subject,
    (SELECT c.name FROM campaigns AS c WHERE c.id = d.campaign_id) AS campaign_name,
    (SELECT array_agg(email ORDER BY kind, position) FROM delivery_recipients AS r
        WHERE r.delivery_id = d.id AND kind <> 'reply_to') AS recipients
FROM deliveries AS d
WHERE id = ANY (:delivery_ids::bigint[])
ORDER BY id DESC;

-- name: match_deliveries :many
-- Those of these deliveries that match every filter, newest first. OFFSET 0 keeps the planner from reading the index of a
-- filter, or the recipients of all mail: deliveries and their recipients are read by ids.
SELECT id
FROM (SELECT * FROM deliveries WHERE id = ANY (:delivery_ids::bigint[]) OFFSET 0) AS d
WHERE (:ids::bigint[] IS NULL OR id = ANY (:ids))
    AND (:state::text IS NULL OR CASE WHEN :state = 'waiting' THEN next_attempt_at IS NOT NULL ELSE state::text = :state END)
    AND (:lane::text IS NULL OR lane = :lane::delivery_lane)
    AND (:template_id::text IS NULL OR template_id = :template_id)
    AND (:source::text IS NULL OR source = :source)
    AND (:idempotency_key::text IS NULL OR idempotency_key = :idempotency_key)
    AND (:campaign_id::bigint IS NULL OR campaign_id = :campaign_id)
    AND (:endpoint_id::bigint IS NULL OR endpoint_id = :endpoint_id)
    AND (:sender_account_id::bigint IS NULL OR sender_account_id = :sender_account_id)
    AND (:tags::text IS NULL OR tags @> :tags::jsonb)
    AND (:custom_data::text IS NULL OR custom_data @> :custom_data::jsonb)
    AND (:created_from::timestamptz IS NULL OR created_at >= :created_from)
    AND (:created_before::timestamptz IS NULL OR created_at < :created_before)
    AND (:finished_before::timestamptz IS NULL OR finished_at < :finished_before)
    AND (:reason::text IS NULL OR reason = :reason)
    AND (:recipient::text IS NULL OR lower(recipient_email) = lower(:recipient) OR EXISTS (
        SELECT FROM other_recipients AS r
        WHERE r.delivery_id = d.id AND r.kind <> 'reply_to' AND lower(r.email) = lower(:recipient)
        OFFSET 0))
    AND (:recipient_contains::text IS NULL OR strpos(lower(recipient_email), lower(:recipient_contains)) > 0 OR EXISTS (
        SELECT FROM other_recipients AS r
        WHERE r.delivery_id = d.id AND r.kind <> 'reply_to' AND strpos(lower(r.email), lower(:recipient_contains)) > 0
        OFFSET 0))
    AND (:recipient_domain::text IS NULL OR lower(split_part(recipient_email, '@', -1)) = lower(:recipient_domain) OR EXISTS (
        SELECT FROM other_recipients AS r
        WHERE r.delivery_id = d.id AND r.kind <> 'reply_to' AND lower(split_part(r.email, '@', -1)) = lower(:recipient_domain)
        OFFSET 0))
ORDER BY id DESC
LIMIT :page_limit;

-- name: rare_ids :one
-- Deliveries with a tag or a value in their custom data; NULL: very many have it. See functions/rare_delivery_ids.sql.
SELECT rare_delivery_ids(:tags::text::jsonb, :custom_data::text::jsonb, :id_limit::bigint) AS ids;
