"""Plans of the statements about outages: each reads a bounded number of rows, however much mail waits."""

from collections.abc import AsyncIterator

import pytest
from tests.support.builders import QUEUE_WAITING
from tests.support.plans import Node, measured_plan, planning_session

from postroom.db.pool import Session
from postroom.db.room import Room
from postroom.delivery.ways_out.store import QUERIES

WAITING = """
    INSERT INTO deliveries (
        state, lane, next_attempt_at, ladder, source, recipient_email, attempt_count, first_attempt_at, dated_at
    )
    SELECT 'queued', 'bulk', now() + interval '1 hour', 'generic', 'test', 'person' || n || '@example.org',
        CASE WHEN n <= 10000 THEN 1 ELSE 0 END, CASE WHEN n <= 10000 THEN now() END,
        now() - CASE WHEN n <= 10000 THEN interval '1 hour' ELSE interval '-1 hour' END
    FROM generate_series(1, 30000) AS n
"""
DEFERRED = """
    INSERT INTO deferred_deliveries (id, since, lane)
    SELECT id, dated_at, lane FROM deliveries WHERE first_attempt_at IS NOT NULL
"""
ATTEMPTS = """
    INSERT INTO attempts (delivery_id, attempt_no, outcome, lane, started_at, finished_at, stage)
    SELECT id, 1, 'deferred', lane, now(), now(), CASE WHEN id % 2 = 0 THEN 'connect' ELSE 'final' END
    FROM deliveries WHERE first_attempt_at IS NOT NULL
"""


@pytest.fixture(scope="module")
async def filled(shared_room: Room) -> Room:
    """Ten thousand deferred mails and twenty thousand that are scheduled for later."""
    for statement in (WAITING, QUEUE_WAITING, DEFERRED, ATTEMPTS, "ANALYZE"):
        await shared_room.pool.execute(statement)
    return shared_room


@pytest.fixture
async def full(filled: Room) -> AsyncIterator[Session]:
    """A session of the filled room, in a transaction that is rolled back."""
    async with planning_session(filled) as connection:
        transaction = connection.transaction()
        await transaction.start()
        yield connection
        await transaction.rollback()


def most_rows(plan: list[Node]) -> float:
    """The most rows that a scan of a table returned, in all of its runs."""
    return max(float(node["Actual Rows"] * node["Actual Loops"]) for node in plan if "Relation Name" in node)


async def test_a_scrape_reads_one_row_of_each_list(full: Session) -> None:
    """The oldest mail is at the start of an index, and a hundred deferred ones are read; scheduled mail is not."""
    plan = await measured_plan(full, QUERIES["measure_oldest"], now=None)
    assert {"due_deliveries_order_idx", "deferred_deliveries_order_idx"} <= {n.get("Index Name") for n in plan}
    assert most_rows(plan) <= 3 * 100


async def test_a_slice_of_released_mail_reads_only_the_slice(full: Session) -> None:
    """Five hundred rows of the list, their last attempts and their deliveries."""
    given = {"lane": "bulk", "after_since": None, "after_id": None, "name": "relay", "batch_limit": 500, "now": None}
    plan = await measured_plan(full, QUERIES["release_unreached"], **given)
    assert "deferred_deliveries_order_idx" in {node.get("Index Name") for node in plan}
    assert most_rows(plan) <= 500
