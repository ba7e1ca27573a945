"""Builders for tests: a mail, a manual clock, a recording transport, a worker, and queries."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from msgspec.structs import replace

from postroom.db.pool import Pool
from postroom.delivery import service, store
from postroom.delivery.attempt import Routes, Writers
from postroom.delivery.check import CheckedRequest, check_batch, check_request
from postroom.delivery.decision import AttemptResult
from postroom.delivery.filter import DeliveryFilter, StateFilter
from postroom.delivery.mass.model import MassAction, MassKind
from postroom.delivery.mass.service import start
from postroom.delivery.model import (
    Attempt,
    Channel,
    ClaimId,
    DeliveryId,
    DeliveryRequest,
    DeliveryState,
    Lane,
    Outgoing,
    Recipient,
    RecipientKind,
    RecipientOutcome,
)
from postroom.delivery.rows import read_started
from postroom.delivery.worker import Worker, WorkerOptions
from postroom.mail.compose import Composer
from postroom.post.address import Address
from postroom.post.reply import Content, Envelope, RecipientReply, Reply, Stage
from postroom.transports.base import Transport

NOON = datetime(2030, 6, 1, 12, tzinfo=UTC)
LEASE = timedelta(minutes=1)
DELIVERED = Reply(Stage.FINAL, 250, "2.0.0", "queued as 7", remote_host="mx.example.org:25", tls="TLSv1.3")
BUSY = Reply(Stage.RECIPIENT, 451, "4.3.0", "try later", remote_host="mx.example.org:25")
REFUSED = Reply(Stage.FINAL, 554, "5.7.1", "go away", remote_host="mx.example.org:25")
NO_ANSWER = Reply(Stage.FINAL, text="the connection was lost", remote_host="mx.example.org:25")


QUEUE_WAITING = """
    INSERT INTO due_deliveries (id, due_at, lane, channel, campaign_id, watch_at)
    SELECT id, next_attempt_at, lane, channel, campaign_id,
        CASE WHEN state = 'queued' AND template_id IS NOT NULL THEN '-infinity' ELSE expires_at END
    FROM deliveries
    WHERE next_attempt_at IS NOT NULL
    ON CONFLICT DO NOTHING
"""
"""Makes deliveries claimable that a test inserted without `accept`."""


def addresses(*emails: str) -> tuple[Address, ...]:
    return tuple(Address(email) for email in emails)


def a_mail(*to: str, **fields: Any) -> DeliveryRequest:
    """A mail to Ada or the given recipients."""
    given = {"to": addresses(*(to or ("ada@example.org",))), "subject": "Hello", "text": "Hello, Ada."}
    if "template" in fields:
        del given["subject"], given["text"]
    return DeliveryRequest(**{**given, **fields})


def a_checked_mail(*to: str, **fields: Any) -> CheckedRequest:
    """The same mail, checked."""
    return check_request(a_mail(*to, **fields))


def a_recipient(
    address: str = "a@example.org", outcome: str = "pending", kind: str = "to", position: int = 0
) -> Recipient:
    """A recipient of a claimed delivery."""
    return Recipient(RecipientKind(kind), position, address, None, RecipientOutcome(outcome))


def an_outgoing(*recipients: Recipient, lane: Lane = Lane.TRANSACTIONAL, attempt_no: int = 1) -> Outgoing:
    """A claimed delivery that no database knows."""
    return Outgoing(
        id=DeliveryId(7),
        claim_id=ClaimId(3),
        channel=Channel.EMAIL,
        lane=lane,
        ladder="generic",
        attempt_no=attempt_no,
        attempt_base=0,
        created_at=NOON,
        dated_at=NOON,
        expires_at=None,
        traceparent=None,
        recipients=recipients or (a_recipient(),),
        sender=None,
        subject="Hello",
        text="Hello",
        html=None,
        headers={},
        attachments=(),
    )


class Hands:
    """A clock that only the test moves."""

    def __init__(self, now: datetime = NOON) -> None:
        self.now = now

    def __call__(self) -> datetime:
        return self.now

    def forward(self, **by: float) -> datetime:
        self.now += timedelta(**by)
        return self.now


class Recording:
    """A transport that records every envelope and returns the given replies; by default it accepts everything."""

    name = "recording"

    def __init__(self, *answers: Reply | Exception | Callable[[Envelope], Reply]) -> None:
        self._answers = list(answers) or [DELIVERED]
        self.envelopes: list[Envelope] = []
        self.contents: list[bytes] = []

    async def send(self, envelope: Envelope, content: Content) -> Reply:
        return self.reply_to(envelope, content)

    def reply_to(self, envelope: Envelope, content: Content) -> Reply:
        self.envelopes.append(envelope)
        self.contents.append(content.encode(eight_bit=True))
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer if isinstance(answer, Reply) else answer(envelope)

    async def close(self) -> None:
        return

    @property
    def delivery_ids(self) -> list[int]:
        return [envelope.delivery_id for envelope in self.envelopes]


class Immediate(Recording):
    """A recording transport that never waits; `tasks` has the task of each call."""

    def __init__(self, *answers: Reply | Exception | Callable[[Envelope], Reply]) -> None:
        super().__init__(*answers)
        self.tasks: list[asyncio.Task[Any] | None] = []

    def answer(self, envelope: Envelope, content: Content) -> Reply:
        self.tasks.append(asyncio.current_task())
        return self.reply_to(envelope, content)


class Hanging(Recording):
    """A transport that never answers; `reached` is set when a caller waits."""

    def __init__(self) -> None:
        super().__init__()
        self.reached = asyncio.Event()

    async def send(self, envelope: Envelope, content: Content) -> Reply:
        self.envelopes.append(envelope)
        self.reached.set()
        await asyncio.Event().wait()
        return DELIVERED


def per_recipient(codes: dict[str, tuple[int, str]], final: Reply = DELIVERED) -> Callable[[Envelope], Reply]:
    """A reply with an entry for each named recipient and the final reply `final`; the others are accepted."""

    def answer(envelope: Envelope) -> Reply:
        spoken = [(address, *codes.get(address, (250, "2.1.5"))) for address in envelope.recipients]
        recipients = tuple(RecipientReply(address, code, enhanced, "said so") for address, code, enhanced in spoken)
        if all(reply.code != 250 for reply in recipients):
            worst = recipients[0]
            return Reply(Stage.RECIPIENT, worst.code, worst.enhanced, worst.text, recipients=recipients)
        return Reply(final.stage, final.code, final.enhanced, final.text, recipients=recipients)

    return answer


Compose = Callable[[Outgoing], tuple[Envelope, Content]]
Prepare = Callable[[Sequence[Outgoing], Collection[ClaimId]], Awaitable[None]]


class FunctionWriter:
    """A writer made of functions."""

    def __init__(self, compose: Compose, prepare: Prepare | None = None) -> None:
        self._compose, self._prepare = compose, prepare

    async def prepare(self, claim: Sequence[Outgoing], open_claims: Collection[ClaimId]) -> None:
        if self._prepare is not None:
            await self._prepare(claim, open_claims)

    def write(self, outgoing: Outgoing) -> tuple[Envelope, Content]:
        return self._compose(outgoing)


def a_compose() -> Compose:
    composer = Composer(default_sender=Address("post@example.org"), message_domain="example.org")
    return lambda outgoing: composer.compose(outgoing, now=NOON)


def writers_of(compose: Compose, prepare: Any = None) -> Writers:
    """The same writer for every channel."""
    return dict.fromkeys(Channel, FunctionWriter(compose, prepare))


def routes_to(transport: Transport) -> Routes:
    """The same transport for every channel and lane."""
    return dict.fromkeys(Channel, dict.fromkeys(Lane, transport))


def a_worker(pool: Pool, transport: Transport, **seams: Any) -> Worker:
    """A worker with one transport; the other parameters replace its dependencies."""
    seams.setdefault("options", WorkerOptions(lease=LEASE))
    writers = writers_of(seams.pop("compose", None) or a_compose(), seams.pop("prepare", None))
    return Worker(pool, writers=writers, routes=routes_to(transport), **seams)


async def accepted(pool: Pool, *requests: DeliveryRequest, now: datetime | None = None) -> list[DeliveryId]:
    """Accept and commit; the ids in order."""
    checked = check_batch(requests or [a_mail()])
    async with pool.acquire() as connection:
        return [answer.id for answer in await service.accept_batch(connection, checked, now=now)]


async def claimed(
    pool: Pool,
    lane: Lane = Lane.TRANSACTIONAL,
    *,
    now: datetime | None = None,
    limit: int = 500,
    lease: timedelta = LEASE,
    worker_id: int = 1,
) -> list[Outgoing]:
    """Claim as a worker does."""
    async with pool.acquire() as connection:
        batch = await store.claim_due(
            connection, lane=lane, batch_limit=limit, worker_id=worker_id, lease=lease, now=now
        )
    return await with_recipients(pool, batch, now=now)


async def with_recipients(pool: Pool, batch: list[Outgoing], *, now: datetime | None = None) -> list[Outgoing]:
    """Claimed deliveries with their recipients."""
    if not batch:
        return []
    ids = [outgoing.id for outgoing in batch]
    async with pool.acquire() as connection:
        found = await store.list_claim_recipients(connection, lane=batch[0].lane, delivery_ids=ids, now=now)
    return [replace(outgoing, recipients=tuple(found.get(outgoing.id, ()))) for outgoing in batch]


async def with_content(pool: Pool, outgoing: Outgoing) -> Outgoing:
    """A claimed delivery with its content; it is not marked as started."""
    async with pool.acquire() as connection:
        [row] = await store.mark_started(
            connection,
            worker_id=1,
            claim_id=outgoing.claim_id,
            started_through=0,
            lease=LEASE,
            now=None,
            delivery_ids=[outgoing.id],
        )
    return read_started(outgoing, row, outgoing.recipients)


async def state_of(pool: Pool, delivery_id: int) -> DeliveryState:
    return (await service.get_delivery(pool, delivery_id)).state


async def outcomes_of(pool: Pool, delivery_id: int) -> dict[str, str]:
    """Every recipient's address and outcome."""
    delivery = await service.get_delivery(pool, delivery_id)
    return {recipient.address: recipient.outcome.value for recipient in delivery.recipients}


async def attempts_of(pool: Pool, delivery_id: int) -> list[Attempt]:
    return await service.list_attempts(pool, delivery_id)


async def redrive(pool: Pool, *, now: datetime | None = None, **chosen: Any) -> MassAction:
    """Return the dead letters of a filter to the queue."""
    letters = DeliveryFilter(state=StateFilter.DEAD_LETTER, **chosen)
    return await start(pool, MassKind.RETRY, letters, actor="tests", now=now)


async def suppress(pool: Pool, address: str, *, scope: str = "all", until: datetime | None = None) -> None:
    async with pool.acquire() as connection:
        await connection.execute(
            "INSERT INTO suppressions (address, scope, reason, until) VALUES ($1, $2, 'manual', $3)",
            address,
            scope,
            until,
        )


async def until(pool: Pool, question: str) -> None:
    """Repeat a query until it returns true."""
    async with pool.acquire() as connection, asyncio.timeout(60):
        while not await connection.fetchval(f"SELECT {question}"):
            pass


def finished(outgoing: Sequence[Outgoing], *, outcome: str = "sent", state: str = "sent") -> list[AttemptResult]:
    """Results without an attempt, for tests of the ledger."""
    return [AttemptResult(outgoing=each, outcome=outcome, state=state) for each in outgoing]


class Steps:
    """Records a worker's steps; `reached(step)` waits for the next one of that name."""

    def __init__(self) -> None:
        self.heard: list[str] = []
        self._waiting: dict[str, asyncio.Event] = {}

    def __call__(self, step: str) -> None:
        self.heard.append(step)
        self._waiting.setdefault(step, asyncio.Event()).set()

    async def reached(self, step: str, *, times: int = 1) -> None:
        async with asyncio.timeout(60):
            while self.heard.count(step) < times:
                event = self._waiting.setdefault(step, asyncio.Event())
                event.clear()
                await event.wait()
