"""Counts by campaign and hour without domains: the same as the hourly counts, and cheap to read."""

from datetime import timedelta

from tests.support.builders import DELIVERED, NOON, Recording, per_recipient
from tests.support.campaigns import a_campaign_worker, a_running_campaign

from postroom.campaigns import store as campaigns
from postroom.campaigns.worker import Feeder
from postroom.db.pool import Pool
from postroom.delivery.worker import WorkerOptions
from postroom.stats import service, store
from postroom.stats.worker import Rollup

BY_CAMPAIGN = (
    "SELECT campaign_id, hour, metric, sum(amount)::bigint AS amount FROM {} GROUP BY 1, 2, 3 ORDER BY 1, 2, 3"
)
FILL = """
    INSERT INTO stats_hourly (hour, campaign_id, sender_account_id, domain, metric, amount)
    SELECT date_trunc('hour', now(), 'UTC'), c, 0, 'd' || d, 'sent', 1
    FROM generate_series(1, 20) AS c, generate_series(1, 500) AS d
"""
FILL_CAMPAIGNS = """
    INSERT INTO stats_campaign_hours (campaign_id, hour, metric, amount)
    SELECT c, date_trunc('hour', now(), 'UTC') - h * interval '1 hour', 'sent', 1
    FROM generate_series(1, 200) AS c, generate_series(1, 20) AS h
"""
FILL_RECIPIENTS = """
    INSERT INTO campaign_recipients (campaign_id, email) SELECT 1, 'p' || n || '@example.org'
    FROM generate_series(1, 20000) AS n
"""


async def counts(pool: Pool, source: str) -> list[tuple[object, ...]]:
    rows = await pool.fetch(BY_CAMPAIGN.format(source))
    return [tuple(row.values()) for row in rows]


async def test_both_rollups_agree(pool: Pool) -> None:
    """Steps and deltas are counted by domain and by campaign alone, also after a rebuild, and deleted together."""
    for people in (3, 5):
        await a_running_campaign(pool, people)
    await Feeder(pool).run_once()
    transport = Recording(per_recipient({"p1@example.org": (550, "5.1.1")}, DELIVERED))
    await a_campaign_worker(pool, transport, options=WorkerOptions(until_empty=True)).run()
    expected = await counts(pool, "read_counts() WHERE campaign_id <> 0")
    assert {row[2] for row in expected} >= {"accepted", "sent", "refused", "bounced"}
    assert await counts(pool, "read_campaign_counts()") == expected
    for batch in (3, 1000):
        while await store.fold(pool, batch_limit=batch):
            assert await counts(pool, "read_campaign_counts()") == expected
        assert await counts(pool, "stats_campaign_hours") == await counts(pool, "stats_hourly WHERE campaign_id <> 0")
    await service.rebuild(pool, actor="tests")
    assert await counts(pool, "read_campaign_counts()") == expected
    await Rollup(pool).run_once()
    async with pool.acquire() as connection:
        late = NOON + timedelta(days=10_000)
        await store.delete_old_hours(connection, retention=timedelta(days=1), batch_limit=1000, now=late)
    assert await counts(pool, "stats_campaign_hours") == []


async def test_figures_of_campaigns_read_no_domain(pool: Pool) -> None:
    """The list and the report of campaigns read the small rollup by its key; a person is found by the index."""
    async with pool.acquire() as connection:
        for statement in (FILL, FILL_CAMPAIGNS, FILL_RECIPIENTS, "ANALYZE", "SET plan_cache_mode = force_generic_plan"):
            await connection.execute(statement)
        for name, values, index in (
            ("measure_campaigns", "'{1,2,3}'", "stats_campaign_hours_pkey"),
            ("list_hours", "7", "stats_campaign_hours_pkey"),
            ("find_recipient", "1, 'P7@example.org'", "campaign_recipients_person_idx"),
            ("list_people", "1, NULL, NULL, 51, NULL, 51", "campaign_recipients_pkey"),
        ):
            await connection.execute(f"PREPARE {name} AS {campaigns.QUERIES[name].sql}")
            rows = await connection.fetch(f"EXPLAIN EXECUTE {name}({values})")
            plan = "\n".join(row[0] for row in rows)
            assert (name, index in plan, "stats_hourly" in plan) == (name, True, False)
            assert "Seq Scan on campaign_recipients" not in plan
        await connection.execute(f"PREPARE list_domains AS {campaigns.QUERIES['list_domains'].sql}")
        rows = await connection.fetch("EXPLAIN EXECUTE list_domains(1, 10)")
        plan = "\n".join(row[0] for row in rows)
        assert "stats_hourly_failures_idx" in plan
        assert "Seq Scan on stats_hourly" not in plan
