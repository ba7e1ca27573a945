"""The tables of tracking: partitions, retention and query plans."""

from datetime import UTC, datetime, timedelta

from tests.support.builders import NOON, Hands
from tests.support.plans import plan_of
from tests.support.retention import swept

from postroom.db.pool import Pool
from postroom.tracking.maintenance import RETENTION, TrackingPartitions
from postroom.tracking.store import QUERIES

PARTITIONS = """
    SELECT relid::regclass::text AS name FROM pg_partition_tree($1::regclass) WHERE isleaf ORDER BY 1
"""


async def test_partitions_are_created_ahead(pool: Pool) -> None:
    """The month and the next two are created once, for opens and clicks."""
    clock = Hands(datetime(2030, 11, 30, 23, 59, tzinfo=UTC))
    partitions = TrackingPartitions(pool, clock=clock)
    assert await partitions.run_once() == 6
    assert await partitions.run_once() == 0
    clock.forward(minutes=1)
    assert await partitions.run_once() == 2
    for table in ("open_events", "click_events"):
        names = [row["name"].removeprefix(f"{table}_") for row in await pool.fetch(PARTITIONS, table)]
        assert names == ["2030_11", "2030_12", "2031_01", "2031_02", "default"]


async def test_month_without_a_partition_uses_the_default(pool: Pool) -> None:
    """The default partition takes such rows, and creating the month later loses none."""
    insert = "INSERT INTO open_events (email_queue_id, opened_at, recipient_email) VALUES (1, $1, 'ada@example.org')"
    await pool.execute(insert, NOON)
    assert await TrackingPartitions(pool, clock=Hands(NOON)).run_once() == 5
    assert await pool.fetchval("SELECT tableoid::regclass::text FROM open_events") == "open_events_default"


async def test_retention_deletes_old_firsts(pool: Pool) -> None:
    """Rows older than the retention are deleted in steps, and the rest stays."""
    await pool.execute(
        "INSERT INTO engagements (delivery_id, first_at, first_open_at)"
        " SELECT n, $1::timestamptz - make_interval(days => CASE WHEN n <= 2500 THEN 31 ELSE 29 END), $1"
        " FROM generate_series(1, 2600) AS n",
        NOON,
    )
    assert await swept(pool, RETENTION, clock=Hands(NOON + timedelta(days=335))) == 2500
    assert await pool.fetchval("SELECT count(*) FROM engagements") == 100


async def test_batch_reads_only_its_own_deliveries(pool: Pool) -> None:
    """The senders of a batch are found by primary key, however many deliveries exist."""
    await pool.execute(
        "INSERT INTO deliveries (state, next_attempt_at, ladder, source, recipient_email)"
        " SELECT 'queued', now(), 'generic', 'test', 'ada@example.org' FROM generate_series(1, 20000)"
    )
    async with pool.acquire() as connection:
        await connection.execute("ANALYZE deliveries")
        await connection.execute("SET plan_cache_mode = force_generic_plan")
        plan = await plan_of(connection, QUERIES["record_hits"], argument="'{}'")
        await connection.execute("RESET plan_cache_mode")
    scans = [node for node in plan if node.get("Relation Name") == "deliveries"]
    assert [(node["Node Type"], node.get("Index Name")) for node in scans] == [("Index Scan", "deliveries_pkey")]
