"""Limits of destinations: rate, connections, learnt pauses. Waiting uses no attempt."""

import asyncio
from collections.abc import Sequence
from datetime import timedelta

import pytest
from tests.support.builders import DELIVERED, NOON, Hands, Recording, a_mail, accepted, attempts_of
from tests.support.senders import Ways, a_desk, a_sending_worker, an_account, claimed, claimed_plainly

from postroom.db.pool import Pool
from postroom.delivery import service as deliveries
from postroom.delivery.model import Lane
from postroom.errors import BadInput
from postroom.post.reply import Content, Envelope, Reply, Stage
from postroom.senders import accounts_in_use as desk_module
from postroom.senders import service, store
from postroom.senders.check import check_domain
from postroom.senders.errors import DomainNotFound
from postroom.senders.model import DestinationLimits

SECOND = timedelta(seconds=1)
SLOW_DOWN = Reply(Stage.RECIPIENT, 451, "4.7.1", "too fast")


async def shape(pool: Pool, domain: str = "example.org", **limits: float) -> None:
    given = {"max_connections": None, "messages_per_second": None, **limits}
    await service.put_domain(pool, domain, actor="tests", **given)  # type: ignore[arg-type]


async def find(pool: Pool, domain: str = "example.org") -> DestinationLimits | None:
    found, _ = await service.list_domains(pool)
    return next((each for each in found if each.domain == domain), None)


async def due_of(pool: Pool, ids: Sequence[int]) -> list[float | None]:
    """The due time of each mail, in seconds after noon."""
    found = [await deliveries.get_delivery(pool, each) for each in ids]
    return [None if d.next_attempt_at is None else (d.next_attempt_at - NOON).total_seconds() for d in found]


async def mails(pool: Pool, count: int, lane: Lane = Lane.BULK, domain: str = "example.org") -> list[int]:
    requests = [a_mail(f"p{n}@{domain}", lane=lane) for n in range(count)]
    return list(await accepted(pool, *requests, now=NOON))


@pytest.mark.parametrize("with_account", [True, False])
async def test_a_rate_spreads_what_it_does_not_let_go(pool: Pool, with_account: bool) -> None:  # noqa: FBT001 - a case
    """At four a second, four of ten mails leave now and the others are postponed without an attempt."""
    if with_account:
        await an_account(pool, counted_on=NOON.date())
    await shape(pool, messages_per_second=4)
    ids = await mails(pool, 10)
    batch = await claimed(pool, Lane.BULK, now=NOON)
    assert [each.slot.start_in_s for each in batch if each.slot] == [0.0, 0.25, 0.5, 0.75]
    assert await due_of(pool, ids) == [None] * 4 + [1.0, 1.25, 1.5, 1.75, 2.0, 2.25]
    assert all([(await deliveries.get_delivery(pool, each)).attempt_count == 0 for each in ids[4:]])


async def test_other_destinations_are_not_held_up(pool: Pool) -> None:
    """Mail to another destination is claimed at once, after two hundred mails to a slow one."""
    await an_account(pool, counted_on=NOON.date(), batch_size=10)
    await shape(pool, messages_per_second=0.001)
    await mails(pool, 60)
    [other] = await mails(pool, 1, domain="example.net")
    seen = [each.id for _ in range(3) for each in await claimed(pool, Lane.BULK, now=NOON)]
    assert other in seen


async def test_planned_bulk_mail_does_not_delay_a_code(pool: Pool) -> None:
    """A code takes the next slot before planned bulk mail."""
    await shape(pool, messages_per_second=2)
    await mails(pool, 200)
    await claimed_plainly(pool, Lane.BULK, now=NOON)
    [code] = await mails(pool, 1, Lane.AUTH)
    assert await claimed_plainly(pool, Lane.AUTH, now=NOON) == []
    assert await due_of(pool, [code]) == [1.0]
    assert [each.id for each in await claimed_plainly(pool, Lane.AUTH, now=NOON + SECOND)] == [code]


async def test_mail_leaves_at_the_rate_of_its_destination(pool: Pool) -> None:
    """Each second as many mails leave as the rate allows."""
    await shape(pool, messages_per_second=5)
    await mails(pool, 23)
    left = [len(await claimed_plainly(pool, Lane.BULK, now=NOON + n * SECOND)) for n in range(6)]
    assert sum(left) == 23
    assert max(left) <= 5


async def test_cancelled_mail_gives_its_time_back(pool: Pool) -> None:
    """Cancelled mail frees its time for new mail."""
    await shape(pool, messages_per_second=1)
    ids = await mails(pool, 100)
    await claimed_plainly(pool, Lane.BULK, now=NOON)
    for each in (*ids[1:3], *ids[4:]):
        await deliveries.cancel(pool, each, actor="tests")
    new = await mails(pool, 3)
    await claimed_plainly(pool, Lane.BULK, now=NOON)
    assert await due_of(pool, [ids[3], *new]) == [3.0, 4.0, 5.0, 6.0]


async def test_a_stale_plan_is_shortened_past_mail_to_other_destinations(pool: Pool) -> None:
    """Each claim shortens a stale plan by a bounded number of rows."""
    await shape(pool, messages_per_second=1)
    ids = await mails(pool, 50)
    await claimed_plainly(pool, Lane.BULK, now=NOON)
    await pool.execute(
        "UPDATE deliveries SET state = 'cancelled', next_attempt_at = NULL, finished_at = now(), "
        "reason = 'tests' WHERE state = 'queued'"
    )
    moments = [NOON + timedelta(seconds=10 + n / 100) for n in range(1500)]
    await accepted(pool, *(a_mail("p@other.example", lane=Lane.BULK, send_at=at) for at in moments), now=NOON)
    dues = []
    for _ in range(3):
        new = await mails(pool, 1)
        await claimed_plainly(pool, Lane.BULK, now=NOON)
        dues += await due_of(pool, new)
        await deliveries.cancel(pool, new[0], actor="tests")
    assert dues[-1] == 1.0
    assert len(ids) == 50


async def test_a_resting_destination_gets_nothing(pool: Pool) -> None:
    """All mail to a paused destination waits for the end of the pause plus a random delay."""
    await shape(pool, max_connections=3)
    async with pool.acquire() as connection:
        await connection.execute("UPDATE destination_domains SET paused_until = $1", NOON + timedelta(minutes=2))
    ids = await mails(pool, 20)
    assert await claimed_plainly(pool, Lane.BULK, now=NOON) == []
    due = await due_of(pool, ids)
    assert all(moment is not None and 120 <= moment <= 180 for moment in due)
    assert len(set(due)) > 10


async def test_three_slowdowns_make_a_rest_that_doubles(pool: Pool) -> None:
    """Pauses double from a minute to an hour; throttling during a pause is not counted."""
    hands = Hands()
    rests = []
    async with pool.acquire() as connection:
        for _ in range(9):
            await store.raise_backoff(connection, domain=["example.org"], count=[1], now=hands())
            await store.raise_backoff(connection, domain=["example.org"], count=[1], now=hands())
            await store.raise_backoff(connection, domain=["example.org"], count=[1], now=hands())
            await store.raise_backoff(connection, domain=["example.org"], count=[9], now=hands())
            found = await find(pool)
            assert found is not None
            assert found.paused_until is not None
            rests.append((found.paused_until - hands()).total_seconds())
            hands.now = found.paused_until
    assert rests == [60, 120, 240, 480, 960, 1920, 3600, 3600, 3600]


async def test_a_slowdown_is_learnt_from_replies_and_forgotten_after_success(pool: Pool) -> None:
    """Throttling replies pause a domain; accepted mail ends that and deletes the row."""
    hands = Hands()
    await an_account(pool, counted_on=NOON.date(), batch_size=1)
    await mails(pool, 4, domain="slow.example")
    ways = Ways(one=[SLOW_DOWN] * 3 + [DELIVERED])
    desk = a_desk(pool, ways, clock=hands)
    worker = a_sending_worker(pool, desk, clock=hands)
    for _ in range(3):
        assert await worker.run_once(Lane.BULK) == 1
    learnt = await find(pool, "slow.example")
    assert learnt is not None
    assert (learnt.backoff_level, learnt.paused_until) == (1, NOON + timedelta(minutes=1))
    assert await worker.run_once(Lane.BULK) == 0
    hands.forward(minutes=3)
    await worker.run_once(Lane.BULK)
    await desk.close()
    assert await find(pool, "slow.example") is None


async def test_the_relay_teaches_nothing_about_destinations(pool: Pool) -> None:
    """Throttling by a relay pauses no destination."""
    [delivery] = await mails(pool, 1)
    hands = Hands()
    desk = a_desk(pool, Ways(), clock=hands)
    await a_sending_worker(pool, desk, relay=Recording(SLOW_DOWN), clock=hands).run_once(Lane.BULK)
    await desk.close()
    assert len(await attempts_of(pool, delivery)) == 1
    assert await find(pool) is None


class Counting(Recording):
    """A transport that counts concurrent messages."""

    def __init__(self) -> None:
        super().__init__()
        self.now = self.most = 0

    async def send(self, envelope: Envelope, content: Content) -> Reply:
        self.now += 1
        self.most = max(self.most, self.now)
        for _ in range(5):
            await asyncio.sleep(0)
        self.now -= 1
        return await super().send(envelope, content)


async def test_connections_to_a_destination_are_limited(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Twenty mails over two connections: at most two in flight, and all arrive."""
    monkeypatch.setattr(desk_module, "PATIENCE_S", 3600)  # for a place
    await an_account(pool)
    await shape(pool, max_connections=2)
    await accepted(pool, *(a_mail(f"p{n}@example.org") for n in range(20)))
    counting = Counting()
    desk = a_desk(pool, lambda _account, _credentials: counting)
    await a_sending_worker(pool, desk).run_once(Lane.TRANSACTIONAL)
    await desk.close()
    assert (counting.most, len(counting.envelopes)) == (2, 20)


# ── what people set ───────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "written, stored",
    [("Example.ORG", "example.org"), ("example.org.", "example.org"), ("bücher.example", "xn--bcher-kva.example")],
)
def test_a_domain_is_stored_in_one_form(written: str, stored: str) -> None:
    """Domains are stored in lower case and ASCII."""
    assert check_domain(written) == stored


@pytest.mark.parametrize("written", ["", " ", "a b", "@example.org", "exa_mple.org", "-a.org", "a..b"])
def test_invalid_domain_is_refused(written: str) -> None:
    """An invalid domain is rejected."""
    with pytest.raises(BadInput):
        check_domain(written)


async def test_limits_can_be_lifted(pool: Pool) -> None:
    """Set, changed, removed; removing twice is refused."""
    await shape(pool, messages_per_second=4)
    await shape(pool, max_connections=2)
    found = await find(pool)
    assert found is not None
    assert (found.max_connections, found.messages_per_second) == (2, None)
    await service.delete_domain(pool, "Example.org", actor="tests")
    with pytest.raises(DomainNotFound):
        await service.delete_domain(pool, "example.org", actor="tests")


async def test_a_limit_without_a_number_is_refused(pool: Pool) -> None:
    """Limits without any value are rejected."""
    with pytest.raises(BadInput):
        await shape(pool)
