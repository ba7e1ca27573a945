"""Plans of the statements behind the overview: each reads a bounded part of an index, at any size of the log."""

from collections.abc import AsyncIterator

import pytest
from tests.support.plans import measured_plan

from postroom.db.pool import Pool, Session
from postroom.stats.store import QUERIES

FILL = """
    INSERT INTO delivery_steps (transaction_id, delivery_id, at, step, lane, channel, source)
    SELECT {transaction}, n / 2, now() - (40000 - n) * interval '1 second',
        (ARRAY['accepted', 'sent'])[1 + n % 2]::delivery_step, 'bulk', 'email', 'test'
    FROM generate_series(1, 40000) AS n
"""
PLACE = {"transaction_id": 1, "position": 1}


@pytest.fixture(params=["n::text::xid8", "'5'::xid8"], ids=["a transaction each", "one transaction"])
async def full(request: pytest.FixtureRequest, pool: Pool) -> AsyncIterator[Session]:
    """A connection to a room with forty thousand steps, which uses plans without values."""
    connection = await pool.acquire()
    await connection.execute(FILL.format(transaction=request.param))
    await connection.execute(
        "INSERT INTO deliveries (ladder, source, recipient_email, next_attempt_at)"
        " SELECT 'generic', 'test', 'ada@example.org', now() FROM generate_series(1, 20000)"
    )
    await connection.execute("ANALYZE")
    await connection.execute("SET plan_cache_mode = force_generic_plan")
    yield connection
    await pool.release(connection)


@pytest.mark.parametrize("name", ["count_steps_after", "count_steps_before"])
async def test_steps_are_counted_from_the_index_in_order(full: Session, name: str) -> None:
    """A limited number of rows is read in the order of the index: no sort of the log, no scan of the table."""
    nodes = await measured_plan(full, QUERIES[name], **PLACE, bound=100)
    scans = [node for node in nodes if node.get("Relation Name", "").startswith("delivery_steps")]
    assert scans
    assert {node["Node Type"] for node in scans} <= {"Index Scan", "Index Only Scan"}
    assert all(node["Actual Rows"] <= 101 for node in scans)


async def test_latency_reads_the_newest_steps_only(full: Session) -> None:
    """The newest steps come from the index, and their deliveries from the primary key."""
    [since] = await full.fetchrow("SELECT now() - interval '1 hour'")
    nodes = await measured_plan(full, QUERIES["measure_latency"], since=since, bound=100)
    assert not any(node["Node Type"] == "Seq Scan" for node in nodes)
    assert all(node["Actual Rows"] <= 101 for node in nodes)
