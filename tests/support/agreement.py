"""Tables that must agree with each other, whatever has happened to a room: the comparisons of a chaos run."""

from collections.abc import Mapping

from postroom.db.pool import Pool

COMPARISONS: Mapping[str, str] = {
    "rows of due_deliveries that differ from the waiting deliveries": """
        SELECT count(*) FROM deliveries AS d FULL JOIN due_deliveries AS w USING (id)
        WHERE (d.next_attempt_at IS NULL) <> (w.id IS NULL) OR d.next_attempt_at <> w.due_at OR d.lane <> w.lane
            OR d.channel <> w.channel OR (w.id IS NOT NULL AND d.campaign_id IS DISTINCT FROM w.campaign_id)
            OR (w.id IS NOT NULL AND w.watch_at IS DISTINCT FROM CASE
                WHEN d.state = 'queued' AND d.template_id IS NOT NULL AND w.watch_at = '-infinity' THEN w.watch_at
                ELSE d.expires_at END)
    """,
    "waiting deliveries without a time": """
        SELECT count(*) FROM deliveries WHERE (state IN ('queued', 'rendered')) <> (next_attempt_at IS NOT NULL)
    """,
    "rows of unsent_deliveries that differ from the deliveries that ended unsent": """
        SELECT count(*) FROM (
            SELECT id, state FROM deliveries WHERE state IN ('failed', 'dead_letter', 'cancelled', 'suppressed')
        ) AS d FULL JOIN unsent_deliveries AS u USING (id, state)
        WHERE d.id IS NULL OR u.id IS NULL
    """,
    "dead letters that differ from the deliveries in this state": """
        SELECT count(*) FROM (SELECT id FROM deliveries WHERE state = 'dead_letter') AS d
        FULL JOIN dead_letters AS l ON l.delivery_id = d.id
        WHERE d.id IS NULL OR l.delivery_id IS NULL
    """,
    "deliveries whose attempts differ from their attempt_count": """
        SELECT count(*) FROM deliveries AS d
        WHERE state <> 'sending' AND attempt_count <> (SELECT count(*) FROM attempts AS a WHERE a.delivery_id = d.id)
            AND reason IS DISTINCT FROM 'erased' -- after its claim, and maybe before its start
    """,
    "deliveries whose attempts differ from their steps": """
        SELECT count(*) FROM (
            SELECT delivery_id, attempt_no, outcome FROM delivery_steps WHERE outcome IS NOT NULL
        ) AS s FULL JOIN attempts AS a USING (delivery_id, attempt_no)
        WHERE s.outcome IS DISTINCT FROM a.outcome AND NOT EXISTS ( -- an attempt after an erasure has no step
            SELECT FROM deliveries AS d WHERE d.id = a.delivery_id AND d.reason = 'erased')
    """,
    "deliveries whose last step differs from their state": """
        SELECT count(*) FROM (
            SELECT DISTINCT ON (delivery_id) delivery_id, step FROM all_steps
            ORDER BY delivery_id, transaction_id DESC, position DESC
        ) AS s JOIN deliveries AS d ON d.id = s.delivery_id
        WHERE d.state <> 'sending' AND NOT CASE
            WHEN s.step IN ('accepted', 'deferred', 'redriven') THEN d.state IN ('queued', 'rendered')
            WHEN s.step = 'dead_lettered' THEN d.state = 'dead_letter'
            ELSE d.state::text = s.step::text END
    """,
    "deliveries that were sent in two steps": """
        SELECT count(*) FROM (
            SELECT FROM delivery_steps WHERE step = 'sent' GROUP BY delivery_id HAVING count(*) > 1
        ) AS s
    """,
    "claims that are left": "SELECT count(*) FROM claims",
    "deliveries with a claim that does not exist": """
        SELECT count(*) FROM deliveries AS d
        WHERE (state = 'sending') <> EXISTS (SELECT FROM claims AS c WHERE c.id = d.claim_id)
    """,
    "hourly figures that differ from the steps": """
        SELECT count(*) FROM (
            SELECT date_trunc('hour', s.at, 'UTC') AS hour, m.metric, sum(m.sign) AS amount
            FROM all_steps AS s CROSS JOIN step_metrics(s.step, s.outcome) AS m
            WHERE channel = 'email'
            GROUP BY 1, 2
        ) AS s FULL JOIN (
            SELECT hour, metric, sum(amount) AS amount FROM read_dimension_counts('total')
            WHERE metric IN (SELECT m.metric FROM all_steps AS s CROSS JOIN step_metrics(s.step, s.outcome) AS m)
            GROUP BY 1, 2
        ) AS t USING (hour, metric)
        WHERE coalesce(s.amount, 0) <> coalesce(t.amount, 0)
    """,
    "figures of campaigns that differ from the steps": """
        SELECT count(*) FROM (
            SELECT s.campaign_id, m.metric, sum(m.sign) AS amount
            FROM all_steps AS s CROSS JOIN step_metrics(s.step, s.outcome) AS m
            WHERE channel = 'email' AND campaign_id > 0
            GROUP BY 1, 2
        ) AS s FULL JOIN (
            SELECT campaign_id, metric, sum(amount) AS amount FROM read_counts()
            WHERE campaign_id > 0 AND metric IN (
                SELECT m.metric FROM all_steps AS s CROSS JOIN step_metrics(s.step, s.outcome) AS m)
            GROUP BY 1, 2
        ) AS c USING (campaign_id, metric)
        WHERE coalesce(s.amount, 0) <> coalesce(c.amount, 0)
    """,
    "campaigns whose counts differ from their recipients": """
        SELECT count(*) FROM campaigns AS c CROSS JOIN LATERAL (
            SELECT count(*) AS total, count(*) FILTER (WHERE r.state = 'fed') AS fed,
                count(*) FILTER (WHERE r.state = 'suppressed') AS suppressed,
                count(*) FILTER (WHERE r.state = 'waiting') AS waiting
            FROM campaign_recipients AS r WHERE r.campaign_id = c.id
        ) AS r
        WHERE (c.total_count, c.fed_count, c.suppressed_count) <> (r.total, r.fed, r.suppressed)
            OR (c.status = 'cancelled' AND c.cancelled_count <> r.waiting)
            OR (c.status = 'completed' AND r.waiting > 0)
    """,
    "campaigns whose recipients differ from their deliveries": """
        SELECT count(*) FROM (
            SELECT campaign_id, delivery_id FROM campaign_recipients WHERE state = 'fed'
        ) AS r FULL JOIN (
            SELECT campaign_id, id FROM deliveries WHERE campaign_id IS NOT NULL AND resend_of IS NULL
        ) AS d ON d.id = r.delivery_id AND d.campaign_id = r.campaign_id
        WHERE r.delivery_id IS NULL OR d.id IS NULL
    """,
}
"""Counts of differences by name; the count is 0 in a room that agrees."""


async def disagreements(pool: Pool) -> list[str]:
    """The comparisons that found a difference."""
    counts = {name: await pool.fetchval(sql) for name, sql in COMPARISONS.items()}
    return [f"{count} {name}" for name, count in counts.items() if count]
