"""From a birthday to a receiver on loopback: scheduler, worker and webhook together, for every outcome."""

from datetime import UTC, datetime, timedelta

import pytest
from aiohttp import web
from tests.support.builders import a_worker, redrive
from tests.support.schedule import person, statuses
from tests.support.webhook_server import PATIENCE, Receiver, receiving

from postroom.db.pool import Pool
from postroom.delivery import service as deliveries
from postroom.delivery.filter import DeliveryFilter
from postroom.delivery.model import Outgoing
from postroom.delivery.worker import WorkerOptions
from postroom.inbox.transport import CaptureTransport
from postroom.outbox.webhooks.writer import compose as compose_webhook
from postroom.post.reply import Content, Envelope
from postroom.schedule import scheduled_events as agenda
from postroom.schedule import service
from postroom.schedule.model import SchedulePolicy, User
from postroom.schedule.worker import Scheduler, SchedulerOptions
from postroom.transports.base import Transport
from postroom.transports.webhook.transport import WebhookTransport


class Moving:
    """A clock set by the test."""

    def __init__(self) -> None:
        self.now = datetime(2026, 11, 15, 9, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now


@pytest.mark.parametrize(
    "status, requests, event, reason",
    [
        (200, 1, "COMPLETED", None),
        (204, 1, "COMPLETED", None),
        (302, 1, "FAILED", "refused: HTTP 302 Found"),
        (404, 1, "FAILED", "refused: HTTP 404 Not Found"),
        (410, 1, "FAILED", "refused: HTTP 410 Gone"),
        (408, 4, "FAILED", "attempts_exhausted: HTTP 408 Request Timeout"),
        (429, 4, "FAILED", "attempts_exhausted: HTTP 429 Too Many Requests"),
        (503, 4, "FAILED", "attempts_exhausted: HTTP 503 Service Unavailable"),
    ],
)
async def test_greeting_outcomes(pool: Pool, status: int, requests: int, event: str, reason: str | None) -> None:
    """A final reply ends the event; other replies are retried three times; next year is planned in any case."""
    clock = Moving()
    async with receiving(Receiver(status=status)) as receiver:
        policy = SchedulePolicy(webhook_url=receiver.url)
        user = await service.create_user(
            pool, person(), policy=policy, now=clock.now - timedelta(days=9), actor="tests"
        )
        assert await Scheduler(pool, SchedulerOptions(policy=policy), clock=clock).run_once() == 1
        await drain(pool, clock)
    assert len(receiver.requests) == requests
    assert len({request.headers["webhook-id"] for request in receiver.requests}) == 1
    assert {request.body for request in receiver.requests} == {b'{"message":"Hey, Ada Lovelace it\'s your birthday"}'}
    assert {request.headers["X-Idempotency-Key"] for request in receiver.requests} == {f"birthday:{user.id}:2026"}
    assert await statuses(pool, user.id) == [("2026", event), ("2027", "PENDING")]
    row = await pool.fetchrow("SELECT failure_reason, retry_count FROM scheduled_events WHERE status <> 'PENDING'")
    assert (row["failure_reason"], row["retry_count"]) == (reason, requests - 1)
    [summary], _ = await deliveries.list_deliveries(pool, DeliveryFilter())
    attempts = await deliveries.list_attempts(pool, summary.id)
    assert {(attempt.transport, attempt.enhanced_code) for attempt in attempts} == {("webhook", f"HTTP {status}")}


@pytest.mark.parametrize(
    "hint, waits", [(None, (1, 2, 4)), (60, (60,) * 3), (7200, (7200,) * 3), (86400, (86400,) * 3)]
)
async def test_retries_wait_one_two_and_four_seconds(pool: Pool, hint: int | None, waits: tuple[int, ...]) -> None:
    """Retries have 25 % jitter, respect Retry-After, and are always three."""
    clock = Moving()
    async with receiving(Receiver(status=503, headers={"Retry-After": str(hint)} if hint else {})) as receiver:
        policy = SchedulePolicy(webhook_url=receiver.url)
        await service.create_user(pool, person(), policy=policy, now=clock.now - timedelta(days=9), actor="tests")
        await Scheduler(pool, SchedulerOptions(policy=policy), clock=clock).run_once()
        await drain(pool, clock, step=timedelta(seconds=max(waits) * 1.25))
    [delivery], _ = await deliveries.list_deliveries(pool, DeliveryFilter())
    attempts = await deliveries.list_attempts(pool, delivery.id)
    found = [a.next_attempt_at - a.finished_at for a in attempts if a.next_attempt_at is not None]
    for wait, seconds in zip(found, waits, strict=True):
        assert timedelta(seconds=seconds * (1 if hint else 0.75)) <= wait <= timedelta(seconds=seconds * 1.25)
    assert delivery.reason == "attempts_exhausted"


async def test_ledger_keeps_two_kilobytes_of_a_response(pool: Pool) -> None:
    """The attempt has the status and the first 2048 bytes; the failure reason is one short line."""
    clock, answer = Moving(), b"no such person\n" * 1000
    async with receiving(Receiver(status=404, body=answer)) as receiver:
        policy = SchedulePolicy(webhook_url=receiver.url)
        await service.create_user(pool, person(), policy=policy, now=clock.now - timedelta(days=9), actor="tests")
        await Scheduler(pool, SchedulerOptions(policy=policy), clock=clock).run_once()
        await drain(pool, clock)
    row = await pool.fetchrow("SELECT reply_text, detail FROM attempts JOIN deliveries ON delivery_id = id")
    assert row["reply_text"] == "HTTP 404 Not Found: " + answer[:2048].decode()
    assert row["detail"].startswith("HTTP 404 Not Found: no such person no such person ")
    assert len(row["detail"]) == 500


async def test_without_a_destination_the_inbox_captures_it(pool: Pool) -> None:
    """With the capture transport, a greeting without a destination is captured and counts as sent."""
    clock, policy = Moving(), SchedulePolicy(captures=True)
    user = await service.create_user(pool, person(), policy=policy, now=clock.now - timedelta(days=9), actor="tests")
    await Scheduler(pool, SchedulerOptions(policy=policy), clock=clock).run_once()
    await drain(pool, clock, inbox=CaptureTransport(pool))
    assert await statuses(pool, user.id) == [("2026", "COMPLETED"), ("2027", "PENDING")]
    assert b"it's your birthday" in await pool.fetchval("SELECT raw FROM inbox_messages")


FORGETTING = pytest.mark.parametrize(
    "statement, reason",
    [("DELETE FROM users", "person_deleted"), ("DELETE FROM user_occasions", "occasion_deleted")],
)


@FORGETTING
async def test_deleted_occasion_or_person_is_not_retried(pool: Pool, statement: str, reason: str) -> None:
    """A reminder in retry is cancelled when its occasion or person is deleted."""
    clock = Moving()
    async with receiving(Receiver(status=503)) as receiver:
        user = await reminded(pool, receiver, clock)
        await drain(pool, clock, rounds=1)
        await pool.execute(statement)
        await drain(pool, clock)
    assert len(receiver.requests) == 1
    assert await pool.fetchrow("SELECT state::text, reason FROM deliveries") == ("cancelled", reason)
    rows = await pool.fetch("SELECT failure_reason FROM scheduled_events WHERE event_type = 'REMINDER'")
    assert [row[0] for row in rows] == (["occasion_deleted: HTTP 503 Service Unavailable"] if "occas" in reason else [])
    assert await pool.fetchval("SELECT count(*) FROM users WHERE id = $1", user.id) == ("person" not in reason)


class Forgetful(Receiver):
    """A receiver that responds only after the deletion."""

    pool: Pool
    statement: str

    async def handle(self, request: web.Request) -> web.StreamResponse:
        await self.pool.execute(self.statement)
        return await super().handle(request)


@FORGETTING
async def test_deletion_during_an_attempt_prevents_a_retry(pool: Pool, statement: str, reason: str) -> None:
    """The running attempt finishes, and there is no retry."""
    clock, told = Moving(), Forgetful(status=503)
    told.pool, told.statement = pool, statement
    async with receiving(told) as receiver:
        await reminded(pool, receiver, clock)
        await drain(pool, clock, rounds=1)
        clock.now = max(clock.now, await pool.fetchval("SELECT now()"))  # the deletion has the database's time
        await drain(pool, clock)
    assert len(receiver.requests) == 1, reason
    assert await pool.fetchval("SELECT state::text FROM deliveries") == "cancelled"


@FORGETTING
@pytest.mark.parametrize("is_brought_back", [False, True])
async def test_deletion_ends_dead_letters(pool: Pool, statement: str, reason: str, *, is_brought_back: bool) -> None:
    """A dead letter cannot be redriven after the deletion; a redriven one is cancelled."""
    clock = Moving()
    async with receiving(Receiver(status=503)) as receiver:
        await reminded(pool, receiver, clock)
        await drain(pool, clock)
        if is_brought_back:
            assert (await redrive(pool, source="schedule", now=clock.now)).changed == 1
        await pool.execute(statement)
        assert (await redrive(pool, source="schedule", now=clock.now)).changed == 0
        await drain(pool, clock)
    assert len(receiver.requests) == 4
    assert await deliveries.list_dead_letters(pool) == ([], None)
    ends = ("cancelled", reason) if is_brought_back else ("dead_letter", "attempts_exhausted")
    assert await pool.fetchrow("SELECT state::text, reason FROM deliveries") == ends


async def test_sent_events_outlive_their_occasion(pool: Pool) -> None:
    """Deleting an occasion deletes planned events and keeps sent ones."""
    clock = Moving()
    async with receiving(Receiver()) as receiver:
        policy = SchedulePolicy(webhook_url=receiver.url)
        born = datetime(1990, 6, 1, tzinfo=UTC).date()
        user = await service.create_user(pool, person(date_of_birth=born), policy=policy, now=clock.now, actor="tests")
        rule = {"every": "day", "start": "2026-11-15"}
        early = clock.now - timedelta(hours=1)
        daily = await service.add_occasion(
            pool, user.id, "RECURRING", rule=rule, policy=policy, now=early, actor="tests"
        )
        await Scheduler(pool, SchedulerOptions(policy=policy), clock=clock).run_once()
        await drain(pool, clock)
    assert await pool.fetchval("SELECT count(*) FROM scheduled_events WHERE event_type = 'RECURRING'") == 2
    await service.remove_occasion(pool, user.id, daily.id, actor="tests")
    events, _ = await agenda.list_user_events(pool, user.id)
    assert [(event.kind, event.status) for event in events] == [("BIRTHDAY", "PENDING"), ("RECURRING", "COMPLETED")]


async def reminded(pool: Pool, receiver: Receiver, clock: Moving) -> User:
    """A person with a reminder that was just handed over."""
    policy, early = SchedulePolicy(webhook_url=receiver.url), clock.now - timedelta(days=1)
    born = datetime(1990, 6, 1, tzinfo=UTC).date()
    user = await service.create_user(pool, person(date_of_birth=born), policy=policy, now=early, actor="tests")
    rule = {"at": "2026-11-15T09:00"}
    await service.add_occasion(
        pool, user.id, "REMINDER", rule=rule, message="Pay", policy=policy, now=early, actor="tests"
    )
    assert await Scheduler(pool, SchedulerOptions(policy=policy), clock=clock).run_once() == 1
    return user


async def drain(
    pool: Pool,
    clock: Moving,
    *,
    inbox: Transport | None = None,
    step: timedelta = timedelta(minutes=2),
    rounds: int = 6,
) -> None:
    """Attempt until no delivery is left, advancing the clock instead of waiting."""
    transport = WebhookTransport(allow_private=True, timeout=PATIENCE, inbox=inbox)

    def compose(outgoing: Outgoing) -> tuple[Envelope, Content]:
        return compose_webhook(outgoing, (), now=clock.now)

    for _ in range(rounds):
        options = WorkerOptions(until_empty=True)
        await a_worker(pool, transport, compose=compose, options=options, clock=clock).run()
        clock.now += step
    await transport.close()
