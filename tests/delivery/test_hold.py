"""Rate and quota of the room in workers: mail of every source, and mail beyond them waits."""

import asyncio
from datetime import UTC, datetime

import pytest
from tests.support.builders import BUSY, Hands, Recording, a_compose, a_mail, a_worker, accepted, redrive
from tests.support.dashboard import open_guest, text_of

from postroom.cli import room_checks
from postroom.db.pool import Pool
from postroom.db.room import Room
from postroom.delivery.lane import RoomHold
from postroom.delivery.model import DeliveryRequest, Lane, Outgoing
from postroom.delivery.worker import Worker, WorkerOptions
from postroom.limits import service
from postroom.limits.limiter import Limiter
from postroom.limits.model import HeldLimits
from postroom.post.address import Address
from postroom.post.reply import Content, Envelope


@pytest.fixture
def transport() -> Recording:
    return Recording()


async def set_limits(pool: Pool, **limits: int | None) -> None:
    await service.set_room_limits(pool, limits, actor="tests")


def to(count: int, **fields: object) -> DeliveryRequest:
    """A mail to this many recipients."""
    return a_mail(to=tuple(Address(f"a{n}@example.org") for n in range(count)), **fields)


async def states(room: Room) -> dict[str, int]:
    rows = await room.pool.fetch("SELECT state::text, count(*) FROM deliveries GROUP BY state")
    return dict(map(tuple, rows))


async def test_mail_beyond_the_quota_stays_queued_and_due(room: Room, transport: Recording) -> None:
    """Recipients count, nothing is lost, no attempt is used up, and the pages and the doctor say why."""
    await set_limits(room.pool, daily_quota=5)
    [_first, _second, third, _fourth] = await accepted(room.pool, to(2), to(3), to(1), to(1))
    worker = a_worker(room.pool, transport)
    assert await worker.run_once(Lane.TRANSACTIONAL) == 4
    assert await states(room) == {"sent": 2, "queued": 2}
    assert await worker.run_once(Lane.TRANSACTIONAL) == 2  # released again
    assert await worker.run_once(Lane.TRANSACTIONAL) == 0  # it claims nothing more today
    row = await room.pool.fetchrow(
        "SELECT attempt_count, next_attempt_at <= now() FROM deliveries WHERE id = $1", third
    )
    assert tuple(row) == (0, True)
    guest = await open_guest(room)
    assert "has sent its 5 mails of today; mail waits until 00:00 UTC" in text_of(
        await guest.get(f"/deliveries/{third}")
    )
    async with room.pool.acquire() as connection:
        assert "the others wait until 00:00 UTC" in (await room_checks.examine_room(connection)).found


async def test_mail_that_cannot_be_composed_uses_no_quota(room: Room, transport: Recording) -> None:
    """The room's only mail of the day is left for another."""

    def compose(outgoing: Outgoing) -> tuple[Envelope, Content]:
        if outgoing.subject == "Broken":
            raise ValueError("subject: holds half a character")
        return a_compose()(outgoing)

    await set_limits(room.pool, daily_quota=1)
    await accepted(room.pool, to(1, subject="Broken"))
    worker = a_worker(room.pool, transport, compose=compose)
    await worker.run_once(Lane.TRANSACTIONAL)
    await accepted(room.pool, to(1))
    await worker.run_once(Lane.TRANSACTIONAL)
    assert await states(room) == {"failed": 1, "sent": 1}


async def test_raising_the_quota_sends_the_waiting_mail(
    room: Room, transport: Recording, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker that holds it sees the new limit when its cache ends."""
    monkeypatch.setattr("postroom.limits.limiter.CACHE_S", 0.0)
    await set_limits(room.pool, daily_quota=1)
    await accepted(room.pool, to(1), to(1))
    worker = a_worker(room.pool, transport)
    assert [await worker.run_once(Lane.TRANSACTIONAL) for _ in range(3)] == [2, 1, 0]
    await set_limits(room.pool, daily_quota=2)
    assert await worker.run_once(Lane.TRANSACTIONAL) == 1
    assert await states(room) == {"sent": 2}


async def test_workers_share_the_quota(room: Room) -> None:
    """Three workers at once send exactly the quota."""
    await set_limits(room.pool, daily_quota=50)
    await accepted(room.pool, *(to(1) for _ in range(90)))
    transports = [Recording() for _ in range(3)]
    options = WorkerOptions(batch=10, chunk=5, until_empty=True)
    workers: list[Worker] = [a_worker(room.pool, each, options=options) for each in transports]
    await asyncio.gather(*(worker.run() for worker in workers))
    assert sum(len(each.envelopes) for each in transports) == 50
    assert await states(room) == {"sent": 50, "queued": 40}


async def test_deferred_attempts_are_not_counted(room: Room) -> None:
    """A mail that no server has accepted yet leaves the quota to others."""
    await set_limits(room.pool, daily_quota=2)
    await accepted(room.pool, to(1))
    worker = a_worker(room.pool, Recording(BUSY))
    await worker.run_once(Lane.TRANSACTIONAL)
    await room.pool.execute("UPDATE deliveries SET next_attempt_at = now()")
    await worker.run_once(Lane.TRANSACTIONAL)
    await accepted(room.pool, to(1))
    sent = Recording()
    await a_worker(room.pool, sent).run_once(Lane.TRANSACTIONAL)
    assert len(sent.envelopes) == 1


async def test_retry_counts_when_it_is_sent(room: Room, transport: Recording) -> None:
    """Deferred and forgiven attempts count nothing, so the attempt after them does."""
    await set_limits(room.pool, daily_quota=1)
    await accepted(room.pool, to(1))
    await a_worker(room.pool, Recording(BUSY)).run_once(Lane.TRANSACTIONAL)
    await accepted(room.pool, to(1))
    await a_worker(room.pool, transport).run_once(Lane.TRANSACTIONAL)
    assert await states(room) == {"sent": 1, "queued": 1}
    await room.pool.execute("UPDATE deliveries SET next_attempt_at = now() WHERE next_attempt_at IS NOT NULL")
    await a_worker(room.pool, transport).run_once(Lane.TRANSACTIONAL)
    assert await states(room) == {"sent": 1, "queued": 1}
    assert await room.pool.fetchval("SELECT day_used FROM allowances WHERE holder = 'sent'") == 1


async def test_redriven_mail_counts(room: Room, transport: Recording) -> None:
    """Dead letters of an outage leave within the quota of the day on which they are redriven."""
    await accepted(room.pool, *(to(1, max_retries=0) for _ in range(3)))
    await a_worker(room.pool, Recording(BUSY)).run_once(Lane.TRANSACTIONAL)
    assert await states(room) == {"dead_letter": 3}
    await set_limits(room.pool, daily_quota=2)
    await redrive(room.pool)
    await a_worker(room.pool, transport).run_once(Lane.TRANSACTIONAL)
    assert await states(room) == {"sent": 2, "queued": 1}


async def test_mail_counted_before_midnight_is_counted_again_after_it(room: Room, transport: Recording) -> None:
    """A mail that waited for its turn until the next day is released; it is sent once that day has counted it."""
    hands = Hands(datetime.now(UTC))

    def compose(outgoing: Outgoing) -> tuple[Envelope, Content]:
        hands.forward(days=1)
        return a_compose()(outgoing)

    await set_limits(room.pool, daily_quota=5)
    await accepted(room.pool, to(1), now=hands())
    await a_worker(room.pool, transport, compose=compose, clock=hands).run_once(Lane.TRANSACTIONAL)
    assert transport.envelopes == []
    row = await room.pool.fetchrow("SELECT state::text, attempt_count FROM deliveries")
    assert tuple(row) == ("queued", 0)


async def test_mail_with_more_recipients_than_the_limit_leaves(room: Room, transport: Recording) -> None:
    """It takes a whole minute or day for itself."""
    await set_limits(room.pool, daily_quota=2)
    await accepted(room.pool, to(3))
    assert await a_worker(room.pool, transport).run_once(Lane.TRANSACTIONAL) == 1
    assert await states(room) == {"sent": 1}


async def test_room_without_limits_is_not_held(room: Room, transport: Recording) -> None:
    """Nothing is counted, and a worker that claims nothing looks nothing up."""
    held = RoomHold(room.pool)
    assert not await held.holds_mail()
    await accepted(room.pool, to(1))
    await a_worker(room.pool, transport).run_once(Lane.TRANSACTIONAL)
    assert await room.pool.fetchval("SELECT count(*) FROM allowances") == 0


async def test_a_worker_looks_limits_up_once_the_room_has_some(
    room: Room, transport: Recording, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without limits no statement more delays the first mail; the start of a chunk finds a new limit at once."""
    looked_up: list[object] = []

    async def look_up(limiter: Limiter, key_id: int | None) -> tuple[HeldLimits, ...]:
        looked_up.append(key_id)
        return await real(limiter, key_id)

    real = Limiter._look_up
    monkeypatch.setattr(Limiter, "_look_up", look_up)
    worker = a_worker(room.pool, transport)
    await accepted(room.pool, to(1))
    await worker.run_once(Lane.TRANSACTIONAL)
    assert looked_up == []
    await set_limits(room.pool, daily_quota=1)
    await accepted(room.pool, to(1), to(1))
    await worker.run_once(Lane.TRANSACTIONAL)
    assert looked_up == [None]
    assert await states(room) == {"sent": 2, "queued": 1}


async def test_mail_that_was_not_sent_is_returned_to_the_quota(room: Room, transport: Recording) -> None:
    """Mail that a worker has counted and releases is sent by another within the same quota."""
    await set_limits(room.pool, daily_quota=2)
    await accepted(room.pool, to(1), to(1))

    async def fail(_started: object) -> list[Outgoing]:
        raise TimeoutError

    with pytest.raises(ExceptionGroup):
        await a_worker(room.pool, transport, on_started=fail).run_once(Lane.TRANSACTIONAL)
    await a_worker(room.pool, transport).run_once(Lane.TRANSACTIONAL)
    assert await states(room) == {"sent": 2}
