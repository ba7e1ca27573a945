"""Keeping house: recovery, expiry, retention, partitions, the administrator's notice."""

import asyncio
from datetime import UTC, datetime, timedelta

import asyncpg
import pytest
from tests.support.builders import (
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
    state_of,
    until,
)
from tests.support.silence import let_pass

from postroom.db.pool import Pool
from postroom.delivery import service, store
from postroom.delivery.check import check_request
from postroom.delivery.decision import complete_columns
from postroom.delivery.errors import DeliveryNotFound
from postroom.delivery.maintenance import Maintenance, MaintenanceOptions
from postroom.delivery.model import DeliveryFilter, DeliveryId, Lane, Outgoing, State
from postroom.post.address import Address
from postroom.settings import Settings

DAY = timedelta(days=1)


async def abandoned(pool: Pool, lane: Lane, hands: Hands, *, count: int, started: int) -> list[DeliveryId]:
    """Deliveries claimed by a worker that started some of them and died."""
    ids = await accepted(pool, *(a_mail(lane=lane) for _ in range(count)), now=hands())
    batch = await claimed(pool, lane, now=hands())
    async with pool.acquire() as connection:
        await store.mark_started(
            connection, claim_id=batch[0].claim_id, started_through=started, lease=LEASE, now=hands()
        )
    hands.forward(minutes=2)
    return ids


@pytest.mark.parametrize("lane", [Lane.AUTH, Lane.TRANSACTIONAL])
async def test_what_a_dead_worker_left_is_due_again(pool: Pool, lane: Lane) -> None:
    """Started: tried again, with an ambiguous attempt in the ledger. Not started: as if nothing had been."""
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
    """It may have arrived: a person decides. What was not started goes on."""
    hands = Hands()
    started, untouched = await abandoned(pool, Lane.BULK, hands, count=2, started=1)
    await Maintenance(pool, clock=hands).recover()
    assert (await state_of(pool, started), await state_of(pool, untouched)) == (State.DEAD_LETTER, State.QUEUED)
    [letter], _ = await service.list_dead_letters(pool)
    assert (letter.delivery_id, letter.reason) == (started, "ambiguous")


async def test_a_rendered_delivery_comes_back_rendered(pool: Pool) -> None:
    """Recovery does not throw away what was rendered."""
    hands = Hands()
    [delivery] = await accepted(pool, a_mail(template="welcome"), now=hands())
    async with pool.acquire() as connection, connection.transaction():
        await store.lock_unrendered(connection, batch_limit=1)
        await store.mark_rendered(
            connection, delivery_id=[delivery], subject=["Hi"], text_body=["Hi"], html_body=[None], now=hands()
        )
    await claimed(pool, now=hands())
    hands.forward(minutes=2)
    await Maintenance(pool, clock=hands).recover()
    assert await state_of(pool, delivery) is State.RENDERED


async def test_a_living_claim_is_left_alone(pool: Pool) -> None:
    """Before its lease has run out nobody touches a claim."""
    await accepted(pool, now=NOON)
    [outgoing] = await claimed(pool, now=NOON)
    assert await Maintenance(pool, clock=Hands(NOON + LEASE - timedelta(microseconds=1))).recover() == 0
    assert await state_of(pool, outgoing.id) is State.SENDING


async def cut_off(pool: Pool, hands: Hands) -> tuple[Maintenance, Outgoing]:
    """Maintenance after an outage in which the lease of a registered worker ran out; it had started its delivery."""
    await accepted(pool, now=hands())
    async with pool.acquire() as connection:
        worker_id = await store.register_worker(connection, pid=1, host="test")
    [outgoing] = await claimed(pool, now=hands(), worker_id=worker_id)
    async with pool.acquire() as connection:
        await connection.execute("UPDATE workers SET seen_at = $1", hands())
        await store.mark_started(connection, claim_id=outgoing.claim_id, started_through=1, lease=LEASE, now=hands())
        hands.forward(minutes=2)
        await connection.execute("ALTER TABLE claims RENAME TO away")
    maintenance = Maintenance(pool, MaintenanceOptions(lease=LEASE), clock=hands)
    with pytest.raises(asyncpg.PostgresError):
        await maintenance.recover()
    async with pool.acquire() as connection:
        await connection.execute("ALTER TABLE away RENAME TO claims")
    return maintenance, outgoing


async def test_after_an_outage_a_worker_writes_the_results_it_knows(pool: Pool) -> None:
    """Recovery leaves its claim alone, its next renewal revives the lease, and the result is no longer in doubt."""
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
        await store.complete(connection, now=hands(), **complete_columns(finished([outgoing])))
    assert [attempt.outcome for attempt in await attempts_of(pool, outgoing.id)] == ["sent"]


async def test_a_worker_that_does_not_return_is_recovered_one_lease_after_the_outage(pool: Pool) -> None:
    maintenance, outgoing = await cut_off(pool, Hands())
    let_pass(LEASE.total_seconds())
    assert await maintenance.recover() == 1
    assert [attempt.outcome for attempt in await attempts_of(pool, outgoing.id)] == ["ambiguous"]


async def test_a_claim_that_its_worker_does_not_renew_is_recovered_at_once(pool: Pool) -> None:
    """The worker was seen after the lease had run out and did not renew it: it does not know of the claim."""
    hands = Hands()
    maintenance, _outgoing = await cut_off(pool, hands)
    async with pool.acquire() as connection:
        worker_id = await connection.fetchval("SELECT id FROM workers")
        await store.renew_claims(connection, worker_id=worker_id, claim_ids=[], lease=LEASE, now=hands())
    assert await maintenance.recover() == 1


async def test_a_server_that_has_just_started_counts_as_an_outage(pool: Pool) -> None:
    """A maintenance process that did not see the outage asks PostgreSQL how long it runs."""
    hands = Hands()
    _maintenance, _outgoing = await cut_off(pool, hands)
    since_2020 = MaintenanceOptions(lease=hands() - datetime(2020, 1, 1, tzinfo=UTC))
    assert await Maintenance(pool, since_2020, clock=hands).recover() == 0
    assert await Maintenance(pool, MaintenanceOptions(lease=LEASE), clock=hands).recover() == 1


async def test_partitions_do_not_wait_for_a_long_report(pool: Pool) -> None:
    """A report reads the ledger: making next month's partition is put off, so that results are not held up by it."""
    async with pool.acquire() as reader, reader.transaction():
        await reader.fetchval("SELECT count(*) FROM attempts")
        maintenance = Maintenance(pool, clock=Hands(datetime(2033, 1, 1, tzinfo=UTC)))
        with pytest.raises(asyncpg.LockNotAvailableError):
            await maintenance.make_partitions()
    assert await maintenance.make_partitions() == 3


async def test_many_may_recover_at_once(pool: Pool) -> None:
    """Eight processes recover the same claims: each delivery is recovered once."""
    hands = Hands()
    for _ in range(5):
        await accepted(pool, *(a_mail() for _ in range(20)), now=hands())
        await claimed(pool, now=hands())
    hands.forward(minutes=2)
    recovered = await asyncio.gather(*(Maintenance(pool, clock=hands).recover() for _ in range(8)))
    assert sum(recovered) == 100


async def test_retention_takes_bodies_before_deliveries(pool: Pool) -> None:
    """First the content goes, then the delivery; attempts stay in the ledger."""
    hands = Hands()
    [delivery] = await accepted(pool, now=hands())
    await a_worker(pool, Recording(), clock=hands).run_once(Lane.TRANSACTIONAL)
    maintenance = Maintenance(pool, clock=hands)
    hands.forward(days=3)
    assert await maintenance.clean_up() == 0
    hands.forward(seconds=1)
    assert await maintenance.clean_up() == 1
    found = await service.get_delivery(pool, delivery)
    assert (found.state, found.subject, found.text) == (State.SENT, None, None)
    hands.forward(days=4, seconds=-2)
    assert await maintenance.clean_up() == 0
    hands.forward(seconds=2)
    assert await maintenance.clean_up() == 1
    with pytest.raises(DeliveryNotFound):
        await service.get_delivery(pool, delivery)
    assert len(await attempts_of(pool, delivery)) == 1


def test_the_settings_keep_what_the_options_keep() -> None:
    """A week for finished deliveries, three days for their bodies, a month for dead letters."""
    options, settings = MaintenanceOptions(), Settings()
    assert options.delivery_retention == settings.delivery_retention == timedelta(days=7)
    assert options.payload_retention == settings.payload_retention == timedelta(days=3)
    assert options.dead_letter_retention == settings.dead_letter_retention == timedelta(days=30)


async def test_a_key_that_still_holds_keeps_its_delivery(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    """However short the retention: its body goes, a replay is still one, and when the key ends, it goes too."""
    monkeypatch.setattr("postroom.delivery.maintenance.STEP", 2)
    hands, ttl = Hands(), timedelta(days=30)
    request = a_mail(idempotency_key="order-7")
    async with pool.acquire() as connection:
        first = await service.accept(connection, check_request(request), now=hands(), idempotency_ttl=ttl)
    await accepted(pool, *(a_mail() for _ in range(5)), now=hands())
    await a_worker(pool, Recording(), clock=hands).run_once(Lane.TRANSACTIONAL)
    hands.forward(days=29)
    assert await Maintenance(pool, clock=hands).clean_up() == 6 + 5
    assert (await service.get_delivery(pool, first.id)).text is None
    async with pool.acquire() as connection:
        again = await service.accept(connection, check_request(request), now=hands(), idempotency_ttl=ttl)
    assert (again.id, again.replayed) == (first.id, True)
    hands.forward(days=1)
    assert await Maintenance(pool, clock=hands).clean_up() == 1


async def test_retention_spares_what_waits(pool: Pool) -> None:
    """However old: what has not ended is not deleted."""
    hands = Hands()
    [delivery] = await accepted(pool, a_mail(send_at=NOON + 900 * DAY), now=hands())
    hands.forward(days=800)
    assert await Maintenance(pool, clock=hands).clean_up() == 0
    assert (await service.get_delivery(pool, delivery)).text == "Hello, Ada."


async def test_retention_goes_on_until_all_is_gone(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bounded steps, as many as needed."""
    monkeypatch.setattr("postroom.delivery.maintenance.STEP", 3)
    hands = Hands()
    await accepted(pool, *(a_mail() for _ in range(10)), now=hands())
    await a_worker(pool, Recording(), clock=hands).run_once(Lane.TRANSACTIONAL)
    hands.forward(days=31)
    assert await Maintenance(pool, clock=hands).clean_up() == 20
    assert await service.list_deliveries(pool, DeliveryFilter()) == ([], None)


async def test_retention_gives_way_and_ends_when_asked(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    """After each full step it rests in proportion, for those who have mail to send; a stop does not wait for that."""
    monkeypatch.setattr("postroom.delivery.maintenance.STEP", 1)
    hands = Hands()
    await accepted(pool, *(a_mail() for _ in range(3)), now=hands())
    await a_worker(pool, Recording(), clock=hands).run_once(Lane.TRANSACTIONAL)
    hands.forward(days=8)
    maintenance = Maintenance(pool, MaintenanceOptions(share=1e-9), clock=hands)
    running = asyncio.create_task(maintenance.clean_up())
    await until(pool, "(SELECT count(*) = 2 FROM delivery_payloads)")
    maintenance.stop()
    assert await asyncio.wait_for(running, 60) == 1


async def test_unreadable_commands_go_after_their_time(pool: Pool) -> None:
    """Commands nobody could read are kept for a while, not for ever."""
    hands = Hands()
    async with pool.acquire() as connection:
        await connection.execute(
            "INSERT INTO malformed_commands (recorded_at, source, reason, raw) VALUES ($1, 'test', 'json', '')", NOON
        )
    hands.forward(days=30)
    assert await Maintenance(pool, clock=hands).clean_up() == 0
    hands.forward(seconds=1)
    assert await Maintenance(pool, clock=hands).clean_up() == 1


async def test_partitions_are_made_ahead_and_once(pool: Pool) -> None:
    """A month and the next two; a second call, or eight at once, make nothing more."""
    maintenance = Maintenance(pool, clock=Hands(datetime(2031, 11, 30, 23, 59, tzinfo=UTC)))
    made = await asyncio.gather(*(maintenance.make_partitions() for _ in range(8)))
    assert sum(made) == 3
    async with pool.acquire() as connection:
        names = await connection.fetch(
            "SELECT relname FROM pg_class WHERE relname ~ '^attempts_203[12]_..$' ORDER BY 1"
        )
    assert [row["relname"] for row in names] == ["attempts_2031_11", "attempts_2031_12", "attempts_2032_01"]


async def test_the_administrator_is_told_once(pool: Pool) -> None:
    """One mail for all dead letters since the last notice; none when there is nothing new."""
    admin = MaintenanceOptions(admin=Address("admin@example.org"))
    await accepted(pool, a_mail(lane=Lane.BULK), a_mail(lane=Lane.BULK))
    await a_worker(pool, Recording(NO_ANSWER)).run_once(Lane.BULK)
    maintenance = Maintenance(pool, admin)
    assert await maintenance.tell_admin() == 2
    assert await maintenance.tell_admin() == 0
    [notice], _ = await service.list_deliveries(pool, DeliveryFilter(source="postroom"))
    assert (notice.subject, notice.recipients) == ("Postroom: 2 deliveries were given up", ("admin@example.org",))


async def test_without_an_administrator_nobody_is_told(pool: Pool) -> None:
    """No address, no notice, and the letters stay untold."""
    await accepted(pool, a_mail(lane=Lane.BULK))
    await a_worker(pool, Recording(NO_ANSWER)).run_once(Lane.BULK)
    assert await Maintenance(pool).tell_admin() == 0


async def test_workers_that_died_asleep_are_forgotten(pool: Pool) -> None:
    """A worker not seen for five minutes is no longer notified by every acceptance."""
    async with pool.acquire() as connection:
        await connection.execute(
            "INSERT INTO workers (pid, host, seen_at, asleep)"
            " VALUES (1, 'gone', $1, '{bulk}'), (2, 'here', $2, '{bulk}')",
            NOON,
            NOON + timedelta(minutes=3),
        )
    assert await Maintenance(pool, clock=Hands(NOON + timedelta(minutes=6))).forget_workers() == 1


async def test_it_runs_until_stopped(pool: Pool) -> None:
    """It recovers by itself, and ends promptly when asked, however long its intervals are."""
    await accepted(pool)
    await claimed(pool, lease=timedelta())
    maintenance = Maintenance(pool, MaintenanceOptions(recovery_interval=DAY, cleanup_interval=DAY))
    running = asyncio.create_task(maintenance.run())
    await until(pool, "NOT EXISTS (SELECT FROM claims)")
    maintenance.stop()
    await asyncio.wait_for(running, 60)
