"""Maintenance of the queue: recovery, expiry, retention, partitions, the notice about dead letters."""

import asyncio
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import asyncpg
import pytest
from tests.support.builders import (
    BUSY,
    LEASE,
    NO_ANSWER,
    NOON,
    Hands,
    Recording,
    a_mail,
    a_worker,
    accepted,
    attempts_of,
    claimed,
    finished,
    outcomes_of,
    redrive,
    state_of,
    until,
)
from tests.support.loops import looping
from tests.support.retention import swept
from tests.support.silence import let_pass

from postroom.db.pool import Pool
from postroom.db.queries import Connection
from postroom.db.retention import Retention, Sweeper
from postroom.delivery import service, store
from postroom.delivery.check import check_request
from postroom.delivery.decision import complete_columns
from postroom.delivery.errors import DeliveryNotFound
from postroom.delivery.filter import DeliveryFilter
from postroom.delivery.maintenance import NOTICE, RETENTION, Maintenance, MaintenanceOptions
from postroom.delivery.model import DeliveryId, DeliveryState, Lane, Outgoing
from postroom.delivery.notices import Notifier
from postroom.post.address import Address
from postroom.settings import Settings

DAY = timedelta(days=1)
MAIL = RETENTION[:2]  # without the workers


async def abandoned(pool: Pool, lane: Lane, hands: Hands, *, count: int, started: int) -> list[DeliveryId]:
    """Deliveries claimed by a worker that started some of them and crashed."""
    ids = await accepted(pool, *(a_mail(lane=lane) for _ in range(count)), now=hands())
    batch = await claimed(pool, lane, now=hands())
    async with pool.acquire() as connection:
        await store.mark_started(
            connection, worker_id=1, claim_id=batch[0].claim_id, started_through=started, lease=LEASE, now=hands()
        )
    hands.forward(minutes=2)
    return ids


@pytest.mark.parametrize("lane", [Lane.AUTH, Lane.TRANSACTIONAL])
async def test_claim_of_a_dead_worker_is_due_again(pool: Pool, lane: Lane) -> None:
    """Started deliveries are retried with an ambiguous attempt in the ledger; the others are unchanged."""
    hands = Hands()
    started, untouched = await abandoned(pool, lane, hands, count=2, started=1)
    assert await Maintenance(pool, clock=hands).recover() == 2
    assert [attempt.outcome for attempt in await attempts_of(pool, started)] == ["ambiguous"]
    assert await attempts_of(pool, untouched) == []
    assert (await outcomes_of(pool, started), await outcomes_of(pool, untouched)) == (
        {"ada@example.org": "ambiguous"},
        {"ada@example.org": "pending"},
    )
    again = await claimed(pool, lane, now=hands())
    assert {outgoing.id: outgoing.attempt_no for outgoing in again} == {started: 2, untouched: 1}


async def test_bulk_that_was_started_is_held(pool: Pool) -> None:
    """Started bulk mail may have arrived and is held; the rest is released."""
    hands = Hands()
    started, untouched = await abandoned(pool, Lane.BULK, hands, count=2, started=1)
    await Maintenance(pool, clock=hands).recover()
    assert (await state_of(pool, started), await state_of(pool, untouched)) == (
        DeliveryState.DEAD_LETTER,
        DeliveryState.QUEUED,
    )
    [letter], _ = await service.list_dead_letters(pool)
    assert (letter.delivery_id, letter.reason) == (started, "ambiguous")


async def test_a_rendered_delivery_comes_back_rendered(pool: Pool) -> None:
    """A delivery whose template was tried before its claim is still known to render."""
    hands = Hands()
    [delivery] = await accepted(pool, a_mail(template="welcome"), now=hands())
    async with pool.acquire() as connection, connection.transaction():
        await store.mark_rendered(connection, delivery_id=[delivery], now=hands())
    await claimed(pool, now=hands())
    hands.forward(minutes=2)
    await Maintenance(pool, clock=hands).recover()
    assert await state_of(pool, delivery) is DeliveryState.RENDERED


async def test_a_crash_does_not_prove_that_a_template_renders(pool: Pool) -> None:
    """A worker that crashed had perhaps not composed the message; the Message-ID of its attempt is computed later."""
    hands = Hands()
    [delivery] = await accepted(pool, a_mail(template="welcome"), now=hands())
    options = MaintenanceOptions(message_id=lambda _delivery_id, _created_at: "<1@example.org>")
    maintenance = Maintenance(pool, options, clock=hands)
    for _crash in range(2):
        await crash_after_start(pool, hands)
        await maintenance.recover()
        assert await state_of(pool, delivery) is DeliveryState.QUEUED
    await claimed(pool, now=hands())
    hands.forward(minutes=2)
    await maintenance.recover()
    assert await state_of(pool, delivery) is DeliveryState.QUEUED
    assert [attempt.outcome for attempt in await attempts_of(pool, delivery)] == ["ambiguous", "ambiguous"]


async def test_redriven_mail_of_a_crashed_worker_is_queued(pool: Pool) -> None:
    """A held dead letter that no worker is known to have composed is not proven to render."""
    hands = Hands()
    [delivery] = await accepted(pool, a_mail(template="welcome", lane=Lane.BULK), now=hands())
    await crash_after_start(pool, hands, Lane.BULK)
    await Maintenance(pool, clock=hands).recover()
    assert (await redrive(pool, now=hands())).changed == 1
    assert await state_of(pool, delivery) is DeliveryState.QUEUED


async def test_crash_after_a_composed_attempt_leaves_the_delivery_rendered(pool: Pool) -> None:
    """An earlier attempt reached a transport with the rendered message."""
    hands = Hands()
    [delivery] = await accepted(pool, a_mail(template="welcome"), now=hands())
    await a_worker(pool, Recording(BUSY), clock=hands).run_once(Lane.TRANSACTIONAL)
    assert await state_of(pool, delivery) is DeliveryState.RENDERED
    hands.forward(hours=1)
    await crash_after_start(pool, hands)
    await Maintenance(pool, clock=hands).recover()
    assert await state_of(pool, delivery) is DeliveryState.RENDERED


async def crash_after_start(pool: Pool, hands: Hands, lane: Lane = Lane.TRANSACTIONAL) -> None:
    """Claim and start the due mail; its lease expires."""
    [outgoing] = await claimed(pool, lane, now=hands())
    async with pool.acquire() as connection:
        await store.mark_started(
            connection, worker_id=1, claim_id=outgoing.claim_id, started_through=1, lease=LEASE, now=hands()
        )
    hands.forward(minutes=2)


async def test_a_living_claim_is_left_alone(pool: Pool) -> None:
    """A claim with a valid lease is not recovered."""
    await accepted(pool, now=NOON)
    [outgoing] = await claimed(pool, now=NOON)
    assert await Maintenance(pool, clock=Hands(NOON + LEASE - timedelta(microseconds=1))).recover() == 0
    assert await state_of(pool, outgoing.id) is DeliveryState.SENDING


async def cut_off(pool: Pool, hands: Hands) -> tuple[Maintenance, Outgoing]:
    """Maintenance after an outage in which the lease of a registered worker expired with a started delivery."""
    await accepted(pool, now=hands())
    async with pool.acquire() as connection:
        worker_id = await store.register_worker(connection, pid=1, host="test")
    [outgoing] = await claimed(pool, now=hands(), worker_id=worker_id)
    async with pool.acquire() as connection:
        await connection.execute("UPDATE workers SET seen_at = $1", hands())
        await store.mark_started(
            connection, worker_id=worker_id, claim_id=outgoing.claim_id, started_through=1, lease=LEASE, now=hands()
        )
        hands.forward(minutes=2)
        await connection.execute("ALTER TABLE claims RENAME TO away")
    maintenance = Maintenance(pool, MaintenanceOptions(lease=LEASE), clock=hands)
    with pytest.raises(asyncpg.PostgresError):
        await maintenance.recover()
    async with pool.acquire() as connection:
        await connection.execute("ALTER TABLE away RENAME TO claims")
    return maintenance, outgoing


async def test_after_an_outage_a_worker_writes_the_results_it_knows(pool: Pool) -> None:
    """Recovery skips the claim, the next renewal restores the lease, and the result is written."""
    hands = Hands()
    maintenance, outgoing = await cut_off(pool, hands)
    assert await maintenance.recover() == 0
    async with pool.acquire() as connection:
        worker_id = await connection.fetchval("SELECT id FROM workers")
        renewed = await store.renew_claims(
            connection, worker_id=worker_id, claim_ids=[outgoing.claim_id], lease=LEASE, now=hands()
        )
        assert renewed == {outgoing.claim_id: False}
        assert await maintenance.recover() == 0
        columns = complete_columns(finished([outgoing]))
        await store.complete(connection, worker_id=worker_id, now=hands(), **columns)
    assert [attempt.outcome for attempt in await attempts_of(pool, outgoing.id)] == ["sent"]


async def test_lost_worker_is_recovered_one_lease_after_the_outage(pool: Pool) -> None:
    maintenance, outgoing = await cut_off(pool, Hands())
    let_pass(LEASE.total_seconds())
    assert await maintenance.recover() == 1
    assert [attempt.outcome for attempt in await attempts_of(pool, outgoing.id)] == ["ambiguous"]


async def test_a_claim_that_its_worker_does_not_renew_is_recovered_at_once(pool: Pool) -> None:
    """A worker seen after the expiry that did not renew the claim does not know of it."""
    hands = Hands()
    maintenance, _outgoing = await cut_off(pool, hands)
    async with pool.acquire() as connection:
        worker_id = await connection.fetchval("SELECT id FROM workers")
        await store.renew_claims(connection, worker_id=worker_id, claim_ids=[], lease=LEASE, now=hands())
    assert await maintenance.recover() == 1


async def test_a_server_that_has_just_started_counts_as_an_outage(pool: Pool) -> None:
    """Maintenance reads the start time of PostgreSQL to detect an outage it did not see."""
    hands = Hands()
    _maintenance, _outgoing = await cut_off(pool, hands)
    since_2020 = MaintenanceOptions(lease=hands() - datetime(2020, 1, 1, tzinfo=UTC))
    assert await Maintenance(pool, since_2020, clock=hands).recover() == 0
    assert await Maintenance(pool, MaintenanceOptions(lease=LEASE), clock=hands).recover() == 1


async def test_partitions_do_not_wait_for_a_long_report(pool: Pool) -> None:
    """A report that reads the ledger postpones new partitions, so that results are not blocked."""
    async with pool.acquire() as reader, reader.transaction():
        await reader.fetchval("SELECT count(*) FROM attempts")
        maintenance = Maintenance(pool, clock=Hands(datetime(2033, 1, 1, tzinfo=UTC)))
        with pytest.raises(asyncpg.LockNotAvailableError):
            await maintenance.make_partitions()
    assert await maintenance.make_partitions() == 6  # of attempts and of steps


async def test_many_may_recover_at_once(pool: Pool) -> None:
    """Eight concurrent processes recover each delivery once."""
    hands = Hands()
    for _ in range(5):
        await accepted(pool, *(a_mail() for _ in range(20)), now=hands())
        await claimed(pool, now=hands())
    hands.forward(minutes=2)
    recovered = await asyncio.gather(*(Maintenance(pool, clock=hands).recover() for _ in range(8)))
    assert sum(recovered) == 100


async def test_retention_takes_bodies_before_deliveries(pool: Pool) -> None:
    """Content is deleted before the delivery; attempts stay in the ledger."""
    hands = Hands()
    [delivery] = await accepted(pool, now=hands())
    await a_worker(pool, Recording(), clock=hands).run_once(Lane.TRANSACTIONAL)
    hands.forward(days=3)
    assert await swept(pool, MAIL, clock=hands) == 0
    hands.forward(seconds=1)
    assert await swept(pool, MAIL, clock=hands) == 1
    found = await service.get_delivery(pool, delivery)
    assert (found.state, found.subject, found.text) == (DeliveryState.SENT, None, None)
    hands.forward(days=4, seconds=-2)
    assert await swept(pool, MAIL, clock=hands) == 0
    hands.forward(seconds=2)
    assert await swept(pool, MAIL, clock=hands) == 1
    with pytest.raises(DeliveryNotFound):
        await service.get_delivery(pool, delivery)
    assert len(await attempts_of(pool, delivery)) == 1


async def test_a_key_that_still_holds_keeps_its_delivery(pool: Pool) -> None:
    """A delivery with a valid key loses its body but stays for replays until the key expires."""
    hands, ttl = Hands(), timedelta(days=30)
    request = a_mail(idempotency_key="order-7")
    async with pool.acquire() as connection:
        first = await service.accept(connection, check_request(request), now=hands(), idempotency_ttl=ttl)
    await accepted(pool, *(a_mail() for _ in range(5)), now=hands())
    await a_worker(pool, Recording(), clock=hands).run_once(Lane.TRANSACTIONAL)
    hands.forward(days=29)
    assert await swept(pool, MAIL, clock=hands, step=2) == 6 + 5
    assert (await service.get_delivery(pool, first.id)).text is None
    async with pool.acquire() as connection:
        again = await service.accept(connection, check_request(request), now=hands(), idempotency_ttl=ttl)
    assert (again.id, again.replayed) == (first.id, True)
    hands.forward(days=1)
    assert await swept(pool, MAIL, clock=hands) == 1


async def test_retention_spares_what_waits(pool: Pool) -> None:
    """Deliveries that have not ended are not deleted, whatever their age."""
    hands = Hands()
    [delivery] = await accepted(pool, a_mail(send_at=NOON + 900 * DAY), now=hands())
    hands.forward(days=800)
    assert await swept(pool, MAIL, clock=hands) == 0
    assert (await service.get_delivery(pool, delivery)).text == "Hello, Ada."


async def test_retention_goes_on_until_all_is_gone(pool: Pool) -> None:
    """Retention repeats bounded steps until no row is left."""
    hands = Hands()
    await accepted(pool, *(a_mail() for _ in range(10)), now=hands())
    await a_worker(pool, Recording(), clock=hands).run_once(Lane.TRANSACTIONAL)
    hands.forward(days=31)
    assert await swept(pool, MAIL, clock=hands, step=3) == 20
    assert await service.list_deliveries(pool, DeliveryFilter()) == ([], None)


async def test_retention_pauses_after_each_step_and_ends_when_stopped(pool: Pool) -> None:
    """A full step is followed by a proportional pause, which a stop ends."""
    hands = Hands()
    await accepted(pool, *(a_mail() for _ in range(3)), now=hands())
    await a_worker(pool, Recording(), clock=hands).run_once(Lane.TRANSACTIONAL)
    hands.forward(days=8)
    table = [replace(row, step=1) for row in RETENTION]
    async with looping(Sweeper(pool, table, Settings(), clock=hands, share=1e-9).loop()):
        await until(pool, "(SELECT count(*) = 2 FROM delivery_payloads)")
    assert await pool.fetchval("SELECT count(*) FROM delivery_payloads") == 2


async def test_retention_goes_on_with_other_tables_after_an_error(pool: Pool) -> None:
    """An error in one statement does not stop the others and is raised at the end."""
    hands = Hands()
    await accepted(pool, now=hands())
    await a_worker(pool, Recording(), clock=hands).run_once(Lane.TRANSACTIONAL)
    hands.forward(days=8)

    async def fail(_connection: Connection, **_values: object) -> int:
        raise KeyError

    with pytest.raises(KeyError):
        await swept(pool, [Retention(fail, DAY), *RETENTION], clock=hands)
    assert await pool.fetchval("SELECT count(*) FROM deliveries") == 0


async def test_partitions_are_made_ahead_and_once(pool: Pool) -> None:
    """Partitions are created for this month and the next two; concurrent calls create nothing more."""
    maintenance = Maintenance(pool, clock=Hands(datetime(2031, 11, 30, 23, 59, tzinfo=UTC)))
    made = await asyncio.gather(*(maintenance.make_partitions() for _ in range(8)))
    assert sum(made) == 6  # of attempts and of steps
    async with pool.acquire() as connection:
        names = await connection.fetch(
            "SELECT relname FROM pg_class WHERE relname ~ '^attempts_203[12]_..$' ORDER BY 1"
        )
    assert [row["relname"] for row in names] == ["attempts_2031_11", "attempts_2031_12", "attempts_2032_01"]


def notifier(pool: Pool, clock: Hands) -> Notifier:
    return Notifier(pool, Address("admin@example.org"), [NOTICE], Settings(), clock=clock)


async def give_up(pool: Pool, hands: Hands, count: int) -> None:
    await accepted(pool, *(a_mail(lane=Lane.BULK) for _ in range(count)), now=hands())
    await a_worker(pool, Recording(NO_ANSWER), clock=hands).run_once(Lane.BULK)


async def test_the_administrator_is_notified_once(pool: Pool) -> None:
    """One mail reports all dead letters since the last notice; without new ones no mail is sent."""
    hands = Hands()
    await give_up(pool, hands, 2)
    assert sorted(await asyncio.gather(*(notifier(pool, hands).run_once() for _process in range(4)))) == [0, 0, 0, 1]
    hands.forward(hours=1)
    assert await notifier(pool, hands).run_once() == 0
    [notice], _ = await service.list_deliveries(pool, DeliveryFilter(source="postroom"))
    assert (notice.subject, notice.recipients) == ("Postroom: 2 deliveries were given up", ("admin@example.org",))


async def test_the_administrator_gets_one_notice_per_interval(pool: Pool) -> None:
    """Dead letters within five minutes of a notice are reported by the next one."""
    hands = Hands()
    await give_up(pool, hands, 1)
    assert await notifier(pool, hands).run_once() == 1
    await give_up(pool, hands, 2)
    hands.forward(minutes=4)
    assert await notifier(pool, hands).run_once() == 0
    hands.forward(minutes=1)
    assert await notifier(pool, hands).run_once() == 1
    found, _ = await service.list_deliveries(pool, DeliveryFilter(source="postroom"))
    assert found[0].subject == "Postroom: 2 deliveries were given up"


async def test_workers_that_died_asleep_are_forgotten(pool: Pool) -> None:
    """A worker not seen for five minutes is no longer notified."""
    async with pool.acquire() as connection:
        await connection.execute(
            "INSERT INTO workers (pid, host, seen_at, asleep)"
            " VALUES (1, 'gone', $1, '{bulk}'), (2, 'here', $2, '{bulk}')",
            NOON,
            NOON + timedelta(minutes=3),
        )
    assert await swept(pool, RETENTION, clock=Hands(NOON + timedelta(minutes=6))) == 1


async def test_claims_are_recovered_by_the_loop(pool: Pool) -> None:
    """The first run is at once, however long the interval is."""
    await accepted(pool)
    await claimed(pool, lease=timedelta())
    async with looping(*Maintenance(pool, MaintenanceOptions(recovery_interval=DAY)).loops()):
        await until(pool, "NOT EXISTS (SELECT FROM claims)")
    assert await pool.fetchval("SELECT state FROM deliveries") == "queued"


async def test_delete_by_hand_leaves_no_rows_of_the_delivery(pool: Pool) -> None:
    """Deletion in psql is that of retention: parts go, and the fact that they were accepted stays in its place."""
    mails = await accepted(pool, a_mail(), a_mail("ada@example.org", "bob@example.org"), a_mail())
    await pool.execute(
        "UPDATE deliveries SET state = 'cancelled', next_attempt_at = NULL, finished_at = now(), reason = 'expired'"
        " WHERE id = $1",
        mails[0],
    )
    await pool.execute("INSERT INTO dead_letters (delivery_id, reason) VALUES ($1, 'max_age')", mails[0])
    before = await pool.fetch("SELECT transaction_id, position, delivery_id, step FROM all_steps ORDER BY 1, 2")
    await pool.execute("DELETE FROM deliveries WHERE id = ANY($1::bigint[])", mails[:2])
    for table in ("delivery_payloads", "other_recipients", "dead_letters"):
        left = await pool.fetchval(f"SELECT count(*) FROM {table} WHERE delivery_id = ANY($1::bigint[])", mails[:2])
        assert (table, left) == (table, 0)
    for table in ("due_deliveries", "unsent_deliveries", "deferred_deliveries"):
        left = await pool.fetchval(f"SELECT count(*) FROM {table} WHERE id = ANY($1::bigint[])", mails[:2])
        assert (table, left) == (table, 0)
    assert await pool.fetch("SELECT transaction_id, position, delivery_id, step FROM all_steps ORDER BY 1, 2") == before
