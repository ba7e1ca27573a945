-- name: delete_old_engagements :exec
-- Retention: delete first opens and clicks of deliveries whose events are deleted; a later open counts as a first
-- again.
DELETE FROM engagements
WHERE ctid = ANY (ARRAY(
    SELECT ctid
    FROM engagements
    WHERE first_at < coalesce(:now::timestamptz, now()) - :retention::interval
    LIMIT :batch_limit));

-- name: find_engagement :maybe
-- The first opens and clicks of a delivery, of anyone and of people.
SELECT first_open_at, first_human_open_at, first_click_at, first_human_click_at
FROM engagements
WHERE delivery_id = :delivery_id;

-- name: find_standing :one
-- The bulk mail status of an address: unsubscribed by its owner, or suppressed for a reason that its owner cannot undo.
SELECT coalesce(bool_or(reason = 'unsubscribe'), false) AS is_unsubscribed,
    coalesce(bool_or(reason IN ('manual', 'hard_bounce', 'complaint')), false) AS is_closed
FROM suppressions
WHERE address = lower(:address)
    AND (until IS NULL OR until > coalesce(:now::timestamptz, now()));

-- name: list_clicks :many
-- Clicks by person and link, ordered by address and link after a cursor: found by person, link or campaign in the order of
-- addresses; see `runtime.page.search_page`. If a search ends at its bound, the last person may have more clicks, and the
-- next page begins with that person; only a person with more clicks than the bound is counted up to it.
WITH found AS MATERIALIZED (
    (SELECT recipient_email, link_url, campaign_id, is_machine, clicked_at
    FROM click_events
    WHERE recipient_email BETWEEN lower(:address::text) AND lower(:address)
        AND recipient_email >= coalesce(:after_address::text, '')
    ORDER BY recipient_email LIMIT :bound::bigint)
    UNION ALL
    (SELECT recipient_email, link_url, campaign_id, is_machine, clicked_at
    FROM click_events
    WHERE :address IS NULL AND hashtext(link_url) BETWEEN hashtext(:link_url::text) AND hashtext(:link_url)
        AND recipient_email >= coalesce(:after_address, '')
    ORDER BY hashtext(link_url), recipient_email LIMIT :bound)
    UNION ALL
    (SELECT recipient_email, link_url, campaign_id, is_machine, clicked_at
    FROM click_events
    WHERE :address IS NULL AND :link_url IS NULL AND campaign_id BETWEEN :campaign_id::bigint AND :campaign_id
        AND recipient_email >= coalesce(:after_address, '')
    ORDER BY campaign_id, recipient_email LIMIT :bound)
),
cut AS (
    SELECT max(recipient_email) AS address, min(recipient_email) = max(recipient_email) AS is_alone
    FROM found
    HAVING count(*) = :bound
)
SELECT recipient_email AS email, link_url AS url, count(*) AS clicks, bool_and(is_machine) AS is_machine,
    min(clicked_at) AS first_at, max(clicked_at) AS last_at, true AS is_match, false AS is_last
FROM found
WHERE (:campaign_id IS NULL OR campaign_id = :campaign_id) AND (:link_url IS NULL OR link_url = :link_url)
    AND (recipient_email, link_url) > (coalesce(:after_address, ''), coalesce(:after_link::text, ''))
    AND NOT EXISTS (SELECT FROM cut WHERE cut.address = recipient_email AND NOT cut.is_alone)
GROUP BY recipient_email, link_url
UNION ALL
SELECT CASE WHEN is_alone THEN address || chr(1) ELSE address END, '', 0, false, now(), now(), false, true
FROM cut
ORDER BY is_last, email, url
LIMIT :page_limit;

-- name: list_links :many
-- The links of a campaign with the clicks on each, those with the most people first, after a cursor.
SELECT link_url AS url, people, clicks, machine_clicks, first_at, last_at
FROM (
    SELECT link_url, count(DISTINCT recipient_email) FILTER (WHERE NOT is_machine) AS people,
        count(*) FILTER (WHERE NOT is_machine) AS clicks, count(*) FILTER (WHERE is_machine) AS machine_clicks,
        min(clicked_at) AS first_at, max(clicked_at) AS last_at
    FROM click_events
    WHERE campaign_id = :campaign_id
    GROUP BY link_url
) AS link
WHERE :after_people::bigint IS NULL OR people < :after_people
    OR (people = :after_people AND link_url > :after_link::text)
ORDER BY people DESC, link_url
LIMIT :page_limit;

-- name: record_hits :one
-- Write a batch of opens (no link) and clicks: the events, the first open and click of their deliveries, and the
-- statistics. A first belongs to this batch if it has the batch's time, which no earlier batch can have. Unique opens
-- and clicks are the first ones of people: a mail that only machines opened counts under the metrics of machines.
WITH hit AS MATERIALIZED (
    SELECT h.delivery_id, h.campaign_id, d.sender_account_id, to_timestamp(h.at) AS at, h.link_url, h.is_machine,
        h.agent_kind, h.ip_address::inet AS ip_address, h.country, h.city, lower(h.address) AS address, h.user_agent
    FROM unnest(:delivery_ids::bigint[], :campaign_ids::bigint[], :times::float8[], :link_urls::text[],
        :machines::boolean[], :agent_kinds::text[], :ip_addresses::text[], :countries::text[], :cities::text[],
        :addresses::text[], :user_agents::text[])
        AS h(delivery_id, campaign_id, at, link_url, is_machine, agent_kind, ip_address, country, city, address, user_agent)
    LEFT JOIN deliveries AS d ON d.id = h.delivery_id
),
opened AS (
    INSERT INTO open_events (email_queue_id, campaign_id, opened_at, is_machine, agent_kind, ip_address, country, city,
        recipient_email, user_agent)
    SELECT delivery_id, campaign_id, at, is_machine, agent_kind, ip_address, country, city, address, user_agent
    FROM hit
    WHERE link_url IS NULL
),
clicked AS (
    INSERT INTO click_events (email_queue_id, campaign_id, clicked_at, is_machine, agent_kind, ip_address, country, city,
        recipient_email, user_agent, link_url)
    SELECT delivery_id, campaign_id, at, is_machine, agent_kind, ip_address, country, city, address, user_agent, link_url
    FROM hit
    WHERE link_url IS NOT NULL
),
touched AS MATERIALIZED (
    SELECT delivery_id, max(campaign_id) AS campaign_id, max(sender_account_id) AS sender_account_id,
        max(address) AS address, min(at) AS first_at,
        min(at) FILTER (WHERE link_url IS NULL) AS first_open_at,
        min(at) FILTER (WHERE link_url IS NULL AND NOT is_machine) AS first_human_open_at,
        min(at) FILTER (WHERE link_url IS NOT NULL) AS first_click_at,
        min(at) FILTER (WHERE link_url IS NOT NULL AND NOT is_machine) AS first_human_click_at
    FROM hit
    GROUP BY delivery_id
),
engaged AS (
    INSERT INTO engagements AS e (delivery_id, campaign_id, first_at, first_open_at, first_human_open_at, first_click_at,
        first_human_click_at)
    SELECT delivery_id, campaign_id, first_at, first_open_at, first_human_open_at, first_click_at, first_human_click_at
    FROM touched
    ORDER BY delivery_id -- one lock order: two writers with common deliveries would deadlock otherwise
    ON CONFLICT (delivery_id) DO UPDATE
    SET first_open_at = coalesce(e.first_open_at, excluded.first_open_at),
        first_human_open_at = coalesce(e.first_human_open_at, excluded.first_human_open_at),
        first_click_at = coalesce(e.first_click_at, excluded.first_click_at),
        first_human_click_at = coalesce(e.first_human_click_at, excluded.first_human_click_at)
    WHERE (e.first_open_at IS NULL AND excluded.first_open_at IS NOT NULL)
        OR (e.first_human_open_at IS NULL AND excluded.first_human_open_at IS NOT NULL)
        OR (e.first_click_at IS NULL AND excluded.first_click_at IS NOT NULL)
        OR (e.first_human_click_at IS NULL AND excluded.first_human_click_at IS NOT NULL)
    RETURNING delivery_id, first_human_open_at, first_human_click_at
),
figure AS (
    SELECT at, delivery_id, campaign_id, sender_account_id, address, m.metric
    FROM hit
    CROSS JOIN LATERAL (VALUES
        ('opened', link_url IS NULL),
        ('opened_machine', link_url IS NULL AND is_machine),
        ('clicked', link_url IS NOT NULL),
        ('clicked_machine', link_url IS NOT NULL AND is_machine)) AS m(metric, holds)
    WHERE m.holds
    UNION ALL
    SELECT t.first_at, t.delivery_id, t.campaign_id, t.sender_account_id, t.address, m.metric
    FROM touched AS t
    JOIN engaged AS e ON e.delivery_id = t.delivery_id
    CROSS JOIN LATERAL (VALUES
        ('opened_unique', e.first_human_open_at = t.first_human_open_at),
        ('clicked_unique', e.first_human_click_at = t.first_human_click_at)) AS m(metric, holds)
    WHERE m.holds
),
counted AS (
    SELECT add_stats(
        array_agg(at), array_agg(delivery_id), array_agg(campaign_id), array_agg(sender_account_id),
        array_agg(split_part(address, '@', -1)), array_agg(metric))
    FROM figure
)
SELECT count(*) AS recorded
FROM hit
CROSS JOIN counted; -- referenced so that PostgreSQL runs it

-- name: resubscribe :one
-- Undo an unsubscribe; returns whether there was one.
SELECT resubscribe(:address, coalesce(:now::timestamptz, now())) AS is_news;

-- name: unsubscribe :one
-- Stop bulk mail to an address, or add the reason to an unsubscribe; returns whether the address was subscribed before.
SELECT unsubscribe(:address, :delivery_id, :campaign_id, :origin, :ip_address::text::inet, :user_agent, :reason,
    coalesce(:now::timestamptz, now())) AS is_news;
