"""Results of attempts: outcomes, retries, expiry, suppression, ambiguity, unsendable mail."""

from datetime import timedelta

import pytest
from tests.support.builders import (
    BUSY,
    DELIVERED,
    NO_ANSWER,
    NOON,
    REFUSED,
    Hands,
    Recording,
    a_compose,
    a_mail,
    a_worker,
    accepted,
    addresses,
    attempts_of,
    claimed,
    outcomes_of,
    per_recipient,
    state_of,
    suppress,
)

from postroom.db.pool import Pool
from postroom.delivery import service, store
from postroom.delivery.maintenance import Maintenance
from postroom.delivery.model import DeliveryState, Lane, Outgoing
from postroom.post.reply import Content, Envelope, Reply, Stage
from postroom.transports.unsent import NoopTransport, StubTransport

HOUR = timedelta(hours=1)


# ── outcomes ──────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_each_recipient_has_an_outcome_of_its_own(pool: Pool) -> None:
    """One delivered, one deferred: the next attempt is for the second alone, and its refusal refuses only it."""
    hands = Hands()
    transport = Recording(
        per_recipient({"b@example.org": (451, "4.3.0")}), per_recipient({"b@example.org": (550, "5.1.1")})
    )
    [delivery] = await accepted(pool, a_mail("a@example.org", "b@example.org"), now=hands())
    worker = a_worker(pool, transport, clock=hands)

    await worker.run_once(Lane.TRANSACTIONAL)
    assert await outcomes_of(pool, delivery) == {"a@example.org": "delivered", "b@example.org": "pending"}
    assert await state_of(pool, delivery) is DeliveryState.QUEUED

    hands.forward(hours=1)
    await worker.run_once(Lane.TRANSACTIONAL)
    assert transport.envelopes[1].recipients == ("b@example.org",)
    assert await outcomes_of(pool, delivery) == {"a@example.org": "delivered", "b@example.org": "refused"}
    assert await state_of(pool, delivery) is DeliveryState.SENT
    assert [attempt.outcome for attempt in await attempts_of(pool, delivery)] == ["deferred", "failed"]


async def test_one_refused_address_does_not_refuse_the_others(pool: Pool) -> None:
    """One success makes the delivery sent; only the refused recipient is refused."""
    [delivery] = await accepted(pool, a_mail("a@example.org", cc=addresses("b@example.org")))
    await a_worker(pool, Recording(per_recipient({"b@example.org": (550, "5.1.1")}))).run_once(Lane.TRANSACTIONAL)
    assert await state_of(pool, delivery) is DeliveryState.SENT
    assert await outcomes_of(pool, delivery) == {"a@example.org": "delivered", "b@example.org": "refused"}


async def test_the_refused_recipient_keeps_the_reason(pool: Pool) -> None:
    """The recipient has its code, enhanced code and text."""
    [delivery] = await accepted(pool)
    await a_worker(pool, Recording(per_recipient({"ada@example.org": (550, "5.1.1")}))).run_once(Lane.TRANSACTIONAL)
    [recipient] = (await service.get_delivery(pool, delivery)).recipients
    assert (recipient.code, recipient.enhanced, recipient.detail) == (550, "5.1.1", "said so")


async def test_a_refusal_ends_a_delivery(pool: Pool) -> None:
    """A permanent reply to the whole message fails it with that text."""
    [delivery] = await accepted(pool)
    await a_worker(pool, Recording(REFUSED)).run_once(Lane.TRANSACTIONAL)
    found = await service.get_delivery(pool, delivery)
    assert (found.state, found.reason, found.detail) == (DeliveryState.FAILED, "refused", "go away")


async def test_a_copy_to_the_same_address_is_one_delivery_to_it(pool: Pool) -> None:
    """An address in To and Cc receives one message, and both entries get its outcome."""
    [delivery] = await accepted(pool, a_mail("a@example.org", cc=addresses("a@example.org")))
    transport = Recording()
    await a_worker(pool, transport).run_once(Lane.TRANSACTIONAL)
    assert transport.envelopes[0].recipients == ("a@example.org",)
    recipients = (await service.get_delivery(pool, delivery)).recipients
    assert [recipient.outcome.value for recipient in recipients] == ["delivered", "delivered"]


async def test_reply_to_gets_nothing(pool: Pool) -> None:
    """A Reply-To address stands in the header only."""
    await accepted(pool, a_mail("a@example.org", reply_to=addresses("desk@example.org")))
    transport = Recording()
    await a_worker(pool, transport).run_once(Lane.TRANSACTIONAL)
    assert transport.envelopes[0].recipients == ("a@example.org",)
    assert b"Reply-To: desk@example.org" in transport.contents[0]


async def test_the_stub_transport_suppresses(pool: Pool) -> None:
    """The stub sends nothing, and the delivery is suppressed."""
    [delivery] = await accepted(pool)
    await a_worker(pool, StubTransport()).run_once(Lane.TRANSACTIONAL)
    found = await service.get_delivery(pool, delivery)
    assert (found.state, found.reason) == (DeliveryState.SUPPRESSED, "stub_transport")


async def test_the_noop_transport_sends(pool: Pool) -> None:
    """Through the no-op everything is delivered."""
    [delivery] = await accepted(pool)
    await a_worker(pool, NoopTransport()).run_once(Lane.TRANSACTIONAL)
    assert await state_of(pool, delivery) is DeliveryState.SENT


# ── retries ───────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "lane, ladder",
    [
        (Lane.AUTH, [5, 15, 45, 120, 300]),
        (Lane.TRANSACTIONAL, [60, 300, 900, 3600, 7200, 14400, 28800, 57600, 86400]),
    ],
)
async def test_retries_follow_the_ladder(pool: Pool, lane: Lane, ladder: list[int]) -> None:
    """Each wait is the ladder's, moved by at most a quarter, visible as `next_attempt_at`; then it is a dead letter."""
    hands = Hands()
    [delivery] = await accepted(pool, a_mail(lane=lane), now=hands())
    worker = a_worker(pool, Recording(BUSY), clock=hands)
    for wait in ladder:
        assert await worker.run_once(lane) == 1
        found = await service.get_delivery(pool, delivery)
        assert found.next_attempt_at is not None
        assert 0.75 * wait <= (found.next_attempt_at - hands()).total_seconds() <= 1.25 * wait
        hands.now = found.next_attempt_at - timedelta(microseconds=1)
        assert await worker.run_once(lane) == 0
        hands.now = found.next_attempt_at
    while await state_of(pool, delivery) is DeliveryState.QUEUED:
        await worker.run_once(lane)
        hands.forward(days=1.5)
    [letter], _ = await service.list_dead_letters(pool)
    assert letter.reason == ("attempts_exhausted" if lane is Lane.AUTH else "max_age")
    assert letter.attempt_count == len(await attempts_of(pool, delivery))


async def test_a_hint_is_honoured(pool: Pool) -> None:
    """A retry waits for the hour that the server asked for."""
    hands = Hands()
    reply = Reply(Stage.RECIPIENT, 450, "4.2.0", "try again in 3600 seconds", retry_after_s=3600)
    [delivery] = await accepted(pool, now=hands())
    await a_worker(pool, Recording(reply), clock=hands).run_once(Lane.TRANSACTIONAL)
    due = (await service.get_delivery(pool, delivery)).next_attempt_at
    assert due is not None
    assert timedelta(seconds=3600) <= due - hands() <= timedelta(seconds=4500)


async def test_mail_that_had_to_wait_keeps_its_retries(pool: Pool) -> None:
    """Five days in the queue do not count towards the age limit."""
    hands = Hands()
    [delivery] = await accepted(pool, now=hands())
    hands.forward(days=5)
    await a_worker(pool, Recording(BUSY), clock=hands).run_once(Lane.TRANSACTIONAL)
    assert await state_of(pool, delivery) is DeliveryState.QUEUED


async def test_the_age_counts_from_the_first_attempt(pool: Pool) -> None:
    """The age also counts from an attempt of a crashed worker."""
    hands = Hands()
    [delivery] = await accepted(pool, now=hands())
    hands.forward(days=5)
    [outgoing] = await claimed(pool, now=hands())
    async with pool.acquire() as connection:
        await store.mark_started(
            connection, worker_id=1, claim_id=outgoing.claim_id, started_through=1, lease=HOUR, now=hands()
        )
    hands.forward(days=3)
    await Maintenance(pool, clock=hands).recover()
    [outgoing] = await claimed(pool, now=hands())
    assert (outgoing.id, outgoing.age) == (delivery, timedelta(days=3))


async def test_a_mail_has_limits_of_its_own(pool: Pool) -> None:
    """A mail's own `max_retries` and `give_up_after` are applied."""
    hands = Hands()
    few, short = await accepted(pool, a_mail(max_retries=1), a_mail(give_up_after=timedelta(minutes=50)), now=hands())
    worker = a_worker(pool, Recording(BUSY), clock=hands)
    for _ in range(8):
        await worker.run_once(Lane.TRANSACTIONAL)
        hands.forward(minutes=20)
    assert [len(await attempts_of(pool, each)) for each in (few, short)] == [2, 3]
    letters, _ = await service.list_dead_letters(pool)
    assert {letter.delivery_id: letter.reason for letter in letters} == {few: "attempts_exhausted", short: "max_age"}


async def test_a_redrive_gives_a_new_budget(pool: Pool) -> None:
    """A redriven dead letter has all its attempts again and keeps its history."""
    hands = Hands()
    [delivery] = await accepted(pool, a_mail(lane=Lane.AUTH), now=hands())
    worker = a_worker(pool, Recording(BUSY), clock=hands)
    for _ in range(6):
        await worker.run_once(Lane.AUTH)
        hands.forward(minutes=8)
    assert await state_of(pool, delivery) is DeliveryState.DEAD_LETTER
    await service.retry(pool, delivery, actor="cli:ada", now=hands())
    await worker.run_once(Lane.AUTH)
    assert await state_of(pool, delivery) is DeliveryState.QUEUED
    assert len(await attempts_of(pool, delivery)) == 7
    assert await service.list_dead_letters(pool) == ([], None)


# ── what must not leave ───────────────────────────────────────────────────────────────────────────────────────────────


async def test_expired_waiting_delivery_is_cancelled(pool: Pool) -> None:
    """Maintenance cancels an expired waiting delivery."""
    hands = Hands()
    [delivery] = await accepted(pool, a_mail(lane=Lane.AUTH, expires_at=NOON + HOUR), now=hands())
    maintenance = Maintenance(pool, clock=hands)
    assert await maintenance.expire() == 0
    hands.forward(hours=1)
    assert await maintenance.expire() == 1
    found = await service.get_delivery(pool, delivery)
    assert (found.state, found.reason) == (DeliveryState.CANCELLED, "expired")


async def test_expired_claimed_delivery_is_cancelled(pool: Pool) -> None:
    """An expired claimed delivery is cancelled and not sent; the ledger records it."""
    hands, transport = Hands(), Recording()
    [delivery] = await accepted(pool, a_mail(lane=Lane.AUTH, expires_at=NOON + HOUR), now=hands())
    hands.forward(hours=1)
    await a_worker(pool, transport, clock=hands).run_once(Lane.AUTH)
    assert transport.envelopes == []
    assert await state_of(pool, delivery) is DeliveryState.CANCELLED
    assert [attempt.outcome for attempt in await attempts_of(pool, delivery)] == ["cancelled"]


async def test_suppression_after_acceptance_stops_a_delivery(pool: Pool) -> None:
    """An address suppressed while the mail waits does not get it."""
    [delivery] = await accepted(pool, a_mail(lane=Lane.BULK))
    await suppress(pool, "ada@example.org", scope="bulk")
    transport = Recording()
    await a_worker(pool, transport).run_once(Lane.BULK)
    assert transport.envelopes == []
    found = await service.get_delivery(pool, delivery)
    assert (found.state, found.reason) == (DeliveryState.SUPPRESSED, "recipient_suppressed")
    assert await outcomes_of(pool, delivery) == {"ada@example.org": "suppressed"}


async def test_suppression_after_acceptance_spares_the_others(pool: Pool) -> None:
    """Only the suppressed recipient is left out."""
    [delivery] = await accepted(pool, a_mail("a@example.org", "b@example.org"))
    await suppress(pool, "b@example.org")
    transport = Recording()
    await a_worker(pool, transport).run_once(Lane.TRANSACTIONAL)
    assert transport.envelopes[0].recipients == ("a@example.org",)
    assert await outcomes_of(pool, delivery) == {"a@example.org": "delivered", "b@example.org": "suppressed"}


async def test_suppression_between_attempts_ends_what_was_partly_sent(pool: Pool) -> None:
    """With one delivered and the other suppressed, the delivery is sent and the attempt suppressed."""
    hands = Hands()
    [delivery] = await accepted(pool, a_mail("a@example.org", "b@example.org"), now=hands())
    worker = a_worker(pool, Recording(per_recipient({"b@example.org": (451, "4.3.0")})), clock=hands)
    await worker.run_once(Lane.TRANSACTIONAL)
    await suppress(pool, "b@example.org")
    hands.forward(hours=1)
    await worker.run_once(Lane.TRANSACTIONAL)
    assert await state_of(pool, delivery) is DeliveryState.SENT
    assert await outcomes_of(pool, delivery) == {"a@example.org": "delivered", "b@example.org": "suppressed"}
    assert [attempt.outcome for attempt in await attempts_of(pool, delivery)] == ["deferred", "suppressed"]


# ── ambiguity ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("lane", [Lane.AUTH, Lane.TRANSACTIONAL])
async def test_ambiguous_transactional_mail_is_retried(pool: Pool, lane: Lane) -> None:
    """Transactional mail without a final reply is sent again, and the ledger has both attempts."""
    hands = Hands()
    [delivery] = await accepted(pool, a_mail(lane=lane), now=hands())
    worker = a_worker(pool, Recording(NO_ANSWER, DELIVERED), clock=hands)
    await worker.run_once(lane)
    hands.forward(hours=1)
    await worker.run_once(lane)
    assert await state_of(pool, delivery) is DeliveryState.SENT
    assert [attempt.outcome for attempt in await attempts_of(pool, delivery)] == ["ambiguous", "sent"]


async def test_an_unknown_end_of_bulk_is_held(pool: Pool) -> None:
    """Bulk mail that may have arrived becomes a dead letter."""
    [delivery] = await accepted(pool, a_mail(lane=Lane.BULK))
    await a_worker(pool, Recording(NO_ANSWER)).run_once(Lane.BULK)
    [letter], _ = await service.list_dead_letters(pool)
    assert (letter.delivery_id, letter.reason) == (delivery, "ambiguous")
    assert [attempt.outcome for attempt in await attempts_of(pool, delivery)] == ["ambiguous"]


async def test_recipient_without_a_reply_is_ambiguous(pool: Pool) -> None:
    """A later deferral keeps the recipient ambiguous; a delivery does not."""
    hands = Hands()
    [delivery] = await accepted(pool, a_mail(), now=hands())
    worker = a_worker(pool, Recording(NO_ANSWER, BUSY, DELIVERED), clock=hands)
    seen: list[str] = []
    for _ in range(3):
        await worker.run_once(Lane.TRANSACTIONAL)
        seen += (await outcomes_of(pool, delivery)).values()
        hands.forward(hours=1)
    assert seen == ["ambiguous", "ambiguous", "delivered"]


async def test_ambiguous_delivery_is_redriven_or_settled(pool: Pool) -> None:
    """Redriving addresses ambiguous recipients again; settling marks them as delivered without an attempt."""
    redriven, settled = await accepted(pool, a_mail(lane=Lane.BULK), a_mail(lane=Lane.BULK))
    transport = Recording(NO_ANSWER, NO_ANSWER, DELIVERED)
    await a_worker(pool, transport).run_once(Lane.BULK)
    await service.settle(pool, settled, actor="tests")
    await service.retry(pool, redriven, actor="tests")
    await a_worker(pool, transport).run_once(Lane.BULK)
    assert await outcomes_of(pool, settled) == await outcomes_of(pool, redriven) == {"ada@example.org": "delivered"}


async def test_a_transport_that_crashes_leaves_an_unknown_end(pool: Pool) -> None:
    """After a bug in a transport the result is ambiguous, and the other mail is sent."""
    crashed, fine = await accepted(pool, a_mail("a@example.org"), a_mail("b@example.org"))
    transport = Recording(RuntimeError("a bug"), DELIVERED)
    await a_worker(pool, transport).run_once(Lane.TRANSACTIONAL)
    assert [attempt.outcome for attempt in await attempts_of(pool, crashed)] == ["ambiguous"]
    assert await state_of(pool, fine) is DeliveryState.SENT


# ── what cannot be sent ───────────────────────────────────────────────────────────────────────────────────────────────


async def test_message_that_cannot_be_composed_fails(pool: Pool) -> None:
    """A message that cannot be composed fails with a reason and is not sent."""

    def compose(outgoing: Outgoing) -> tuple[Envelope, Content]:
        raise ValueError("subject: holds half a character")

    [delivery] = await accepted(pool)
    transport = Recording()
    await a_worker(pool, transport, compose=compose).run_once(Lane.TRANSACTIONAL)
    found = await service.get_delivery(pool, delivery)
    assert (found.state, found.reason, found.detail) == (
        DeliveryState.FAILED,
        "compose_failed",
        "subject: holds half a character",
    )
    assert transport.envelopes == []


async def test_content_that_a_transport_cannot_encode_fails(pool: Pool) -> None:
    """A ValueError from `send` rejects the content before anything was sent."""
    [delivery] = await accepted(pool)
    await a_worker(pool, Recording(ValueError("needs SMTPUTF8"))).run_once(Lane.TRANSACTIONAL)
    [attempt] = await attempts_of(pool, delivery)
    assert (attempt.outcome, attempt.stage, attempt.code) == ("failed", "content", 554)


async def test_a_crash_while_composing_is_tried_again(pool: Pool) -> None:
    """A bug in composing defers the delivery."""
    good = a_compose()

    def compose(outgoing: Outgoing) -> tuple[Envelope, Content]:
        if outgoing.attempt_no == 1:
            raise KeyError("a bug")
        return good(outgoing)

    hands = Hands()
    [delivery] = await accepted(pool, now=hands())
    worker = a_worker(pool, Recording(), compose=compose, clock=hands)
    await worker.run_once(Lane.TRANSACTIONAL)
    assert await state_of(pool, delivery) is DeliveryState.QUEUED
    hands.forward(hours=1)
    await worker.run_once(Lane.TRANSACTIONAL)
    assert [attempt.outcome for attempt in await attempts_of(pool, delivery)] == ["deferred", "sent"]


@pytest.mark.parametrize(
    "crashes, expected",
    [
        ({1}, [DeliveryState.QUEUED, DeliveryState.RENDERED, DeliveryState.RENDERED]),
        ({2, 3}, [DeliveryState.RENDERED, DeliveryState.RENDERED, DeliveryState.RENDERED]),
        ({1, 2, 3}, [DeliveryState.QUEUED, DeliveryState.QUEUED, DeliveryState.QUEUED]),
    ],
    ids=["first", "later", "all"],
)
async def test_only_a_composed_message_proves_that_a_template_renders(
    pool: Pool, crashes: set[int], expected: list[DeliveryState]
) -> None:
    """A deferred mail by template is rendered if this or an earlier attempt composed it; a release keeps that."""
    good = a_compose()

    def compose(outgoing: Outgoing) -> tuple[Envelope, Content]:
        if outgoing.attempt_no in crashes:
            raise LookupError("the version was not loaded")
        return good(outgoing)

    hands = Hands()
    [delivery] = await accepted(pool, a_mail(template="welcome"), now=hands())
    for state in expected:
        await a_worker(pool, Recording(BUSY), compose=compose, clock=hands).run_once(Lane.TRANSACTIONAL)
        assert await state_of(pool, delivery) is state
        hands.forward(hours=1)
        [outgoing] = await claimed(pool, now=hands())
        async with pool.acquire() as connection:
            await store.release(
                connection, worker_id=1, claim_id=outgoing.claim_id, delivery_ids=[delivery], now=hands()
            )
        assert await state_of(pool, delivery) is state


async def test_a_row_that_cannot_be_read_does_not_stop_its_neighbours(pool: Pool) -> None:
    """Invalid attachments written by SQL fail only their own delivery."""
    broken, fine = await accepted(pool, a_mail(), a_mail())
    async with pool.acquire() as connection:
        await connection.execute("UPDATE delivery_payloads SET attachments = '7' WHERE delivery_id = $1", broken)
    await a_worker(pool, Recording()).run_once(Lane.TRANSACTIONAL)
    async with pool.acquire() as connection:
        states = dict(await connection.fetch("SELECT id, state::text FROM deliveries"))
    assert states == {broken: "failed", fine: "sent"}
