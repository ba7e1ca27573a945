"""What nobody archives: it is kept as long as the settings say, and goes in bounded steps."""

from datetime import timedelta
from pathlib import Path

from tests.support.archive import NOW, at_now, options_for
from tests.support.campaigns import a_running_campaign

from postroom.archive.model import ArchiveOptions
from postroom.archive.retention import forget_old
from postroom.archive.worker import ArchiveKeeper
from postroom.campaigns import service as campaigns
from postroom.db.pool import Pool
from postroom.db.room import Room
from postroom.settings import read_settings

YEAR = timedelta(days=365)


async def add_hours(pool: Pool, count: int, *, age: timedelta) -> None:
    """As many counts, of hours up to so long ago."""
    await pool.execute(
        """
        INSERT INTO stats_hourly (hour, campaign_id, sender_account_id, amount, domain, metric)
        SELECT $1::timestamptz - n * interval '1 hour', 0, 0, 1, 'example.org', 'sent' FROM generate_series(1, $2) AS n
        """,
        NOW - age,
        count,
    )


async def test_counts_of_hours_long_past_go(room: Room, tmp_path: Path) -> None:
    """After two years, as many steps as it takes; younger hours stay."""
    await add_hours(room.pool, 120, age=2 * YEAR)
    await add_hours(room.pool, 30, age=YEAR)
    await ArchiveKeeper(room, options_for(tmp_path, batch_limit=50), clock=at_now).run_once()
    assert await room.pool.fetchval("SELECT count(*) FROM stats_hourly") == 30


async def test_the_people_of_a_campaign_long_over_go(room: Room, tmp_path: Path) -> None:
    """The campaign stays with its counts; one that runs, and one that ended lately, keep their people."""
    old, late, running = [await a_running_campaign(room.pool, 60, name=name) for name in ("Old", "Late", "Running")]
    for campaign, age in ((old, YEAR + timedelta(days=1)), (late, YEAR - timedelta(days=1))):
        await campaigns.cancel_campaign(room.pool, campaign, actor="tests")
        await room.pool.execute("UPDATE campaigns SET finished_at = $2 WHERE id = $1", campaign, NOW - age)
    assert await forget_old(room.pool, options_for(tmp_path, batch_limit=25), clock=at_now) == 60
    rows = await room.pool.fetch("SELECT campaign_id, count(*) FROM campaign_recipients GROUP BY 1 ORDER BY 1")
    assert [tuple(row) for row in rows] == [(late, 60), (running, 60)]
    assert await room.pool.fetchval("SELECT total_count FROM campaigns WHERE id = $1", old) == 60


def test_the_settings_decide() -> None:
    """Two years and one, unless they say otherwise."""
    usual = ArchiveOptions.of(read_settings({}))
    assert (usual.stats_kept, usual.recipients_kept) == (2 * YEAR, YEAR)
    chosen = ArchiveOptions.of(read_settings({"POSTROOM_STATS_RETENTION": "90d", "POSTROOM_CAMPAIGN_RETENTION": "30d"}))
    assert (chosen.stats_kept, chosen.recipients_kept) == (timedelta(days=90), timedelta(days=30))
