"""Retention of rows that are not archived: kept as long as the settings say, deleted in bounded steps."""

from datetime import timedelta

from tests.support.archive import NOW, at_now
from tests.support.campaigns import a_running_campaign
from tests.support.retention import swept

from postroom.background import RETENTION
from postroom.campaigns import service as campaigns
from postroom.db.pool import Pool
from postroom.db.room import Room

YEAR = timedelta(days=365)


async def add_hours(pool: Pool, count: int, *, age: timedelta) -> None:
    """Add hourly counts up to this age, and those of each of the five dimensions."""
    await pool.execute(
        """
        INSERT INTO stats_hourly (hour, campaign_id, sender_account_id, amount, domain, metric)
        SELECT $1::timestamptz - n * interval '1 hour', 0, 0, 1, 'example.org', 'sent' FROM generate_series(1, $2) AS n
        """,
        NOW - age,
        count,
    )
    await pool.execute(
        """
        INSERT INTO stats_dimension_hours (hour, dimension, value, amount, metric)
        SELECT $1::timestamptz - n * interval '1 hour', dimension, 'x', 1, 'sent'
        FROM generate_series(1, $2) AS n, unnest(enum_range(NULL::stats_dimension)) AS dimension
        """,
        NOW - age,
        count,
    )


async def test_hourly_counts_are_deleted_after_two_years(room: Room) -> None:
    """Old hours are deleted in as many steps as needed; younger hours stay."""
    await add_hours(room.pool, 120, age=2 * YEAR)
    await add_hours(room.pool, 30, age=YEAR)
    assert await swept(room.pool, RETENTION, clock=at_now, step=50) == 120 * 6
    assert await room.pool.fetchval("SELECT count(*) FROM stats_hourly") == 30
    assert await room.pool.fetchval("SELECT count(*) FROM stats_dimension_hours") == 30 * 5


async def test_recipients_of_a_campaign_are_deleted_after_a_year(room: Room) -> None:
    """The campaign keeps its counts; running and recently finished campaigns keep their recipients."""
    old, late, running = [await a_running_campaign(room.pool, 60, name=name) for name in ("Old", "Late", "Running")]
    for campaign, age in ((old, YEAR + timedelta(days=1)), (late, YEAR - timedelta(days=1))):
        await campaigns.cancel_campaign(room.pool, campaign, actor="tests")
        await room.pool.execute("UPDATE campaigns SET finished_at = $2 WHERE id = $1", campaign, NOW - age)
    assert await swept(room.pool, RETENTION, clock=at_now, step=25) == 60
    rows = await room.pool.fetch("SELECT campaign_id, count(*) FROM campaign_recipients GROUP BY 1 ORDER BY 1")
    assert [tuple(row) for row in rows] == [(late, 60), (running, 60)]
    assert await room.pool.fetchval("SELECT total_count FROM campaigns WHERE id = $1", old) == 60


async def test_every_retention_statement_uses_its_setting(room: Room) -> None:
    """Each statement of `RETENTION` runs with the setting it names."""
    assert await swept(room.pool, RETENTION) == 0
