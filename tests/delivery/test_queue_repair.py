"""The queue beside the record: changes by other programs are followed, repaired, or reported by the doctor."""

from datetime import timedelta

import pytest
from structlog.testing import capture_logs
from tests.support.builders import NOON, a_mail, accepted, claimed
from tests.support.campaigns import a_running_campaign
from tests.support.plans import measured_plan

from postroom.cli import mail_checks
from postroom.db.pool import Pool
from postroom.db.queries import load
from postroom.delivery import service
from postroom.delivery.maintenance import Maintenance
from postroom.runtime.finding import Finding

COUNT_STUCK = load("postroom.cli", "doctor.sql")["count_stuck"]


async def examine(pool: Pool) -> Finding:
    async with pool.acquire() as connection:
        return await mail_checks.examine_waiting(connection)


async def queue(pool: Pool) -> list[int]:
    return [row["id"] for row in await pool.fetch("SELECT id FROM due_deliveries ORDER BY id")]


async def test_truncated_deliveries_leave_the_queue(pool: Pool) -> None:
    """The queue and the list of unsent mail are emptied with the record."""
    cancelled, _waiting = await accepted(pool, a_mail(), a_mail())
    await service.cancel(pool, cancelled, actor="tests")
    await pool.execute("TRUNCATE deliveries CASCADE")
    assert await queue(pool) == []
    assert await pool.fetchval("SELECT count(*) FROM unsent_deliveries") == 0


async def test_waiting_delivery_with_another_id_is_claimed(pool: Pool) -> None:
    """The row of the queue follows the id, and so does the list of unsent mail."""
    waiting, cancelled = await accepted(pool, a_mail(), a_mail(), now=NOON)
    await service.cancel(pool, cancelled, actor="tests", now=NOON)
    await pool.execute("UPDATE deliveries SET id = id + 1000")
    assert await queue(pool) == [waiting + 1000]
    assert await pool.fetchval("SELECT id FROM unsent_deliveries") == cancelled + 1000
    assert [each.id for each in await claimed(pool, now=NOON)] == [waiting + 1000]


async def test_missing_and_orphan_rows_are_reported_and_repaired(pool: Pool) -> None:
    """A waiting mail without a row is claimed after the repair; a row without a waiting mail is deleted."""
    missing, expiring, orphan = await accepted(
        pool, a_mail(), a_mail(expires_at=NOON + timedelta(hours=1)), a_mail(), now=NOON
    )
    assert (await examine(pool)).found == "all of it will be taken"
    await pool.execute("DELETE FROM due_deliveries WHERE id <> $1", orphan)
    async with pool.acquire() as connection, connection.transaction():
        await connection.execute("ALTER TABLE deliveries DISABLE TRIGGER deliveries_due_deleted")
        await connection.execute("DELETE FROM deliveries WHERE id = $1", orphan)
        await connection.execute("ALTER TABLE deliveries ENABLE TRIGGER deliveries_due_deleted")
        await connection.execute("UPDATE due_deliveries SET due_at = now() - interval '1 hour'")
    found = await examine(pool)
    assert "2 waiting deliveries are not in the queue, 1 rows of it do not wait" in found.found
    with capture_logs() as logs:
        assert await Maintenance(pool).repair() == 3
    assert [entry["event"] for entry in logs] == ["queue_repaired"]
    assert await queue(pool) == [missing, expiring]
    assert await pool.fetchval("SELECT watch_at FROM due_deliveries WHERE id = $1", expiring) is not None
    assert (await examine(pool)).found == "all of it will be taken"
    assert await Maintenance(pool).repair() == 0


async def test_repair_compares_range_after_range(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each run compares the next deliveries; after the last it begins with the first."""
    monkeypatch.setattr("postroom.delivery.maintenance.STEP", 2)
    await accepted(pool, *(a_mail() for _ in range(5)), now=NOON)
    await pool.execute("DELETE FROM due_deliveries")
    maintenance = Maintenance(pool)
    assert [await maintenance.repair() for _ in range(4)] == [2, 2, 1, 0]
    assert len(await claimed(pool, now=NOON + timedelta(seconds=1))) == 5


async def test_doctor_names_campaigns_with_people_or_mail_that_nothing_takes(pool: Pool) -> None:
    """People of a completed campaign who were never queued, and mail of a cancelled one."""
    cut = await a_running_campaign(pool, 2, now=NOON)
    stray = await a_running_campaign(pool, 2, now=NOON)
    await pool.execute("SELECT feed_campaign($1, 10, $2)", stray, NOON)
    await pool.execute("UPDATE deliveries SET next_attempt_at = now() - interval '1 hour'")
    await pool.execute("UPDATE campaigns SET status = 'completed', finished_at = now() WHERE id = $1", cut)
    await pool.execute(
        "UPDATE campaigns SET status = 'cancelled', finished_at = now(), updated_at = now() - interval '1 hour'"
        " WHERE id = $1",
        stray,
    )
    found = await examine(pool)
    assert found.found == (
        f"mail of campaigns {stray} contradicts their status;"
        f" campaigns {cut} were completed before all their people were queued"
    )


async def fill(pool: Pool) -> None:
    """Five thousand waiting mails."""
    await pool.execute(
        "INSERT INTO deliveries (state, lane, next_attempt_at, ladder, source, recipient_email)"
        " SELECT 'queued', 'bulk', now() - interval '1 hour', 'generic', 'test', 'p' || n || '@example.org'"
        " FROM generate_series(1, 5000) AS n"
    )
    await pool.execute(
        "INSERT INTO due_deliveries (id, due_at, lane, channel)"
        " SELECT id, next_attempt_at, lane, channel FROM deliveries"
    )
    await pool.execute("ANALYZE deliveries, due_deliveries")


async def test_looking_for_stuck_mail_reads_a_bounded_number_of_rows(pool: Pool) -> None:
    """Ten million waiting mails cost as much as a thousand: no node reads more rows than the bound."""
    await fill(pool)
    async with pool.acquire() as connection:
        plan = await measured_plan(connection, COUNT_STUCK, bound=10, patience=timedelta(minutes=1))
    assert max(node["Actual Rows"] for node in plan) <= 20
    assert not [node for node in plan if node["Node Type"] == "Seq Scan" and "deliveries" in node["Relation Name"]]


async def test_repairing_reads_only_its_range(pool: Pool) -> None:
    """A step through a large queue looks up the rows of its deliveries, and nothing else."""
    await fill(pool)
    read = (
        "SELECT sum(seq_tup_read + idx_tup_fetch)::integer FROM pg_stat_xact_user_tables"
        " WHERE relname IN ('deliveries', 'due_deliveries')"
    )
    async with pool.acquire() as connection, connection.transaction():
        await connection.execute("SET LOCAL plan_cache_mode = force_generic_plan")
        before = await connection.fetchval(read)
        await connection.fetchrow("SELECT * FROM repair_queue(1000, 10)")
        assert await connection.fetchval(read) - before < 100
