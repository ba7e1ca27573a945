"""Steps: one per committed change of a delivery, written by the statement that makes the change."""

import json

import pytest
from tests.support.builders import BUSY, DELIVERED, Hands, Recording, a_checked_mail, a_worker, redrive, suppress
from tests.support.plans import nodes, planning_session
from tests.support.retention import swept

from postroom.db.pool import Pool
from postroom.db.room import Room
from postroom.delivery import service
from postroom.delivery.maintenance import RETENTION
from postroom.delivery.model import DeliveryId, Lane
from postroom.events.service import adopt_restored_events

STEPS = "SELECT step::text, attempt_no, outcome::text, domain, at FROM all_steps ORDER BY transaction_id, position"


async def accept(pool: Pool, hands: Hands) -> DeliveryId:
    async with pool.acquire() as connection:
        return (await service.accept(connection, a_checked_mail(lane=Lane.AUTH), now=hands())).id


async def attempts(pool: Pool, hands: Hands, transport: Recording, count: int) -> None:
    worker = a_worker(pool, transport, clock=hands)
    for _ in range(count):
        hands.forward(minutes=10)
        assert await worker.run_once(Lane.AUTH) == 1


async def test_each_attempt_is_one_step(pool: Pool) -> None:
    """A step has the number, outcome, domain and time of its attempt; acceptance has no attempt and no domain."""
    hands = Hands()
    await accept(pool, hands)
    begun = hands()
    await attempts(pool, hands, Recording(BUSY, DELIVERED), 2)
    found = [tuple(row)[:4] for row in await pool.fetch(STEPS)]
    assert found == [
        ("accepted", None, None, None),
        ("deferred", 1, "deferred", "example.org"),
        ("sent", 2, "sent", "example.org"),
    ]
    assert [(row["at"] - begun).total_seconds() for row in await pool.fetch(STEPS)] == [0, 600, 1200]


async def test_ends_without_an_attempt_are_steps(pool: Pool) -> None:
    """Suppression at acceptance, cancellation and redriving have no outcome of an attempt."""
    hands = Hands()
    await accept(pool, hands)
    await attempts(pool, hands, Recording(BUSY), 6)
    await redrive(pool, now=hands())
    cancelled = await accept(pool, hands)
    await service.cancel(pool, cancelled, actor="tests")
    await suppress(pool, "ada@example.org")
    await accept(pool, hands)
    found = [tuple(row)[:4] for row in await pool.fetch(STEPS)]
    assert found[6:] == [
        ("dead_lettered", 6, "deferred", "example.org"),
        ("redriven", 6, None, "example.org"),
        ("accepted", None, None, None),
        ("cancelled", 0, None, "example.org"),
        ("accepted", None, None, None),
        ("suppressed", None, None, "example.org"),
    ]


async def test_a_deleted_delivery_leaves_its_steps_in_their_places(pool: Pool) -> None:
    """Readers that have not come to the acceptance yet find it there, and those that have do not see it again."""
    hands = Hands()
    await accept(pool, hands)
    await attempts(pool, hands, Recording(DELIVERED), 1)
    before = await pool.fetch("SELECT * FROM all_steps ORDER BY transaction_id, position")
    hands.forward(days=30)
    assert await swept(pool, RETENTION, clock=hands) > 0
    assert await pool.fetchval("SELECT count(*) FROM deliveries") == 0
    assert await pool.fetch("SELECT * FROM all_steps ORDER BY transaction_id, position") == before


@pytest.mark.parametrize("direction", ["", " DESC"])
async def test_steps_are_read_in_order_by_index(room: Room, direction: str) -> None:
    """Both tables have an index of the order, and PostgreSQL merges them: a reader of ten steps reads ten rows."""
    async with planning_session(room) as session:
        await session.execute("SET enable_seqscan = off")  # as readers do: the tables of this test are empty
        text = await session.fetchval(
            "EXPLAIN (FORMAT JSON) SELECT s FROM all_steps AS s WHERE (transaction_id, position) > ('3', 7)"
            f" ORDER BY transaction_id{direction}, position{direction} LIMIT 10"
        )
    plan = nodes(json.loads(text)[0]["Plan"])
    assert {node["Node Type"] for node in plan} <= {"Limit", "Merge Append", "Subquery Scan", "Index Scan", "Result"}
    assert "deliveries_order_idx" in {node.get("Index Name") for node in plan}


@pytest.mark.parametrize("isolation", ["read_committed", "repeatable_read"])
async def test_steps_share_transaction_ids_and_positions_with_events(pool: Pool, isolation: str) -> None:
    """At every isolation level a step has the transaction id of events, and no position twice."""
    async with pool.acquire() as connection, connection.transaction(isolation=isolation):
        await service.accept(connection, a_checked_mail())
        assert await connection.fetchval("SELECT transaction_id = event_transaction_id() FROM all_steps")
    found = await pool.fetch("SELECT position FROM all_steps UNION ALL SELECT position FROM events")
    assert len({row["position"] for row in found}) == len(found)


async def test_steps_of_a_restored_room_come_after_the_restored_ones(pool: Pool) -> None:
    """The first step in another cluster begins an epoch; no Postroom process has to run before it."""
    await pool.execute("DELETE FROM recorded_facts")  # appending facts would begin the epoch as well
    await accept(pool, Hands())
    await pool.execute("UPDATE event_clock SET system_identifier = 1")
    await accept(pool, Hands())
    found = await pool.fetch("SELECT transaction_id::text::bigint >> 48 AS epoch FROM all_steps ORDER BY position")
    assert [row["epoch"] for row in found] == [0, 1]


async def test_a_restarted_server_is_verified_once(pool: Pool) -> None:
    """Steps of the same cluster stay in their epoch, and a Postroom process records the new start of the server."""
    await pool.execute("SELECT setval('room_marks', base_of_marks() - (1 << 17))")  # it started a millisecond earlier
    await accept(pool, Hands())
    assert not await adopt_restored_events(pool)
    assert await pool.fetchval("SELECT room_marks() FROM event_clock WHERE epoch = 0") == 0


async def test_the_transaction_id_of_steps_is_inlined(pool: Pool) -> None:
    """PostgreSQL reads the marks of the room once per statement, and neither a table nor a function of the room."""
    plan = await pool.fetch(
        "EXPLAIN (VERBOSE) SELECT (SELECT id FROM step_transaction()), n FROM generate_series(1, 9) AS n"
    )
    text = "\n".join(row[0] for row in plan)
    assert text.count("pg_sequence_last_value") == 1
    assert "Scan on event_clock" not in text
    assert "step_transaction()" not in text
