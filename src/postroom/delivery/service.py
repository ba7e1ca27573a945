"""Services of deliveries. HTTP, command line and other surfaces call only this module."""

from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import NoReturn

from postroom.db.faults import translated
from postroom.db.pool import Pool
from postroom.db.queries import Connection
from postroom.delivery import store
from postroom.delivery.check import CheckedRequest, check_source
from postroom.delivery.errors import (
    BodyGone,
    CampaignCancelled,
    DeadLetterNotFound,
    DeliveryExpired,
    DeliveryNotFound,
    WrongState,
)
from postroom.delivery.filter import DeliveryFilter
from postroom.delivery.listing.pages import search_deliveries
from postroom.delivery.model import (
    ENDED,
    IDEMPOTENCY_TTL,
    Acceptance,
    Accepted,
    Attempt,
    DeadLetter,
    Delivery,
    DeliveryId,
    DeliveryRequest,
    DeliveryState,
    DeliverySummary,
)
from postroom.delivery.rows import accept_columns, send_values, usual_values
from postroom.errors import BadInput, FieldError, IdempotencyConflict
from postroom.events.audit import audited
from postroom.limits.limiter import Limiter
from postroom.runtime.combiner import Combiner
from postroom.runtime.metrics import ACCEPTED
from postroom.runtime.page import Found, read_page

COUNTED = 10_000  # bounds the count, so that a scrape of metrics stays cheap


async def accept(
    connection: Connection,
    request: CheckedRequest,
    *,
    idempotency_ttl: timedelta = IDEMPOTENCY_TTL,
    now: datetime | None = None,
) -> Accepted:
    """Accept one request in the connection's transaction. It is accepted when that transaction commits.

    The connection is Postroom's own: an application's role has no right on the tables, see
    `accept_from_application`. Raises `IdempotencyConflict`.
    """
    [accepted] = await accept_batch(connection, [request], idempotency_ttl=idempotency_ttl, now=now)
    if accepted.acceptance is Acceptance.CONFLICT:
        raise IdempotencyConflict.of(request.idempotency_key, accepted.id)
    return accepted


async def accept_batch(
    connection: Connection,
    requests: Sequence[CheckedRequest],
    *,
    idempotency_ttl: timedelta = IDEMPOTENCY_TTL,
    now: datetime | None = None,
) -> list[Accepted]:
    """Accept many requests in one statement; answers are in the order of the requests."""
    if not requests:
        return []
    with translated():
        return await store.accept(connection, **accept_columns(requests, idempotency_ttl=idempotency_ttl, now=now))


async def accept_from_application(
    connection: Connection, request: CheckedRequest, *, room: str, idempotency_ttl: timedelta = IDEMPOTENCY_TTL
) -> DeliveryId:
    """Accept one mail on an application's own connection, whose role may execute SQL `send` and nothing else.

    PostgreSQL binds the source to that role. Raises `BadInput` and `IdempotencyConflict`.
    """
    if (reason := check_source(request.source)) is not None:
        raise BadInput.of("source", reason)
    with translated():
        return await store.send(connection, room, **send_values(request, idempotency_ttl=idempotency_ttl))


Check = Callable[[Sequence[DeliveryRequest]], Awaitable[Sequence[Sequence[FieldError]]]]
"""The errors of requests that could be stored and not be sent, such as one with an unknown template."""


def count_accepted(request: DeliveryRequest, accepted: Accepted) -> None:
    """Count the acceptance in the metrics."""
    ACCEPTED.labels(request.lane.value, accepted.acceptance.value).inc()


def _weigh(request: DeliveryRequest) -> int:
    attached = sum(len(attachment.content) for attachment in request.attachments)
    return len(request.text or "") + len(request.html or "") + attached


class AcceptCombiner:
    """Group commit: one statement accepts all requests that arrive while the previous one runs.

    One per process; every accepting endpoint goes through it, and answers after the commit. If PostgreSQL rejects a
    batch, each of its requests is accepted alone, and only the rejected one fails. A conflict is the answer to one
    request. The limits of the room and of the client's API key (`key_id`) apply; see `postroom.limits`.
    """

    def __init__(self, pool: Pool, *, idempotency_ttl: timedelta = IDEMPOTENCY_TTL, check: Check | None = None) -> None:
        self._pool, self._ttl, self._check = pool, idempotency_ttl, check
        self._limiter = Limiter(pool)
        self._combiner: Combiner[CheckedRequest, Accepted] = Combiner(self._flush, weigh=_weigh)

    async def accept(self, request: CheckedRequest, *, key_id: int | None) -> Accepted:
        """Accept one request; committed on return. Raises `BadInput`, `IdempotencyConflict` and errors of limits."""
        await self._check_all([request])
        with await self._limiter.admit(key_id, [request]) as admission:
            accepted = await self._combiner.submit(request)
            count_accepted(request, accepted)
            if accepted.acceptance is Acceptance.CONFLICT:
                raise IdempotencyConflict.of(request.idempotency_key, accepted.id)
            admission.settle([accepted.acceptance is Acceptance.ACCEPTED])
        return accepted

    async def accept_all(self, requests: Sequence[CheckedRequest], *, key_id: int | None) -> list[Accepted]:
        """Accept a batch that came as one request, in its own statement; a conflict is one of the answers."""
        await self._check_all(requests)
        with await self._limiter.admit(key_id, requests) as admission:
            answers = await self._flush(requests)
            admission.settle([answer.acceptance is Acceptance.ACCEPTED for answer in answers])
        for request, accepted in zip(requests, answers, strict=True):
            count_accepted(request, accepted)
        return answers

    async def accept_together(
        self, requests: Sequence[CheckedRequest], *, key_id: int | None, share_key: bool = False
    ) -> list[Accepted]:
        """Accept all of them or none; committed on return. Raises as `accept` does.

        If they `share_key`, each with its position, a new request beside a known one is a conflict: it is not the
        batch that was accepted with that key.
        """
        await self._check_all(requests)
        with await self._limiter.admit(key_id, requests) as admission:
            async with self._pool.acquire() as connection, connection.transaction():
                answers = await accept_batch(connection, requests, idempotency_ttl=self._ttl)
                found = {answer.acceptance for answer in answers}
                if Acceptance.CONFLICT in found or (share_key and len(found) > 1):
                    raise IdempotencyConflict
            admission.settle([answer.acceptance is Acceptance.ACCEPTED for answer in answers])
        for request, answer in zip(requests, answers, strict=True):
            count_accepted(request, answer)
        return answers

    async def close(self) -> None:
        """Wait until all joined requests are committed, and return the allowances that they did not use."""
        await self._combiner.drain()
        await self._limiter.close()

    async def _check_all(self, requests: Sequence[CheckedRequest]) -> None:
        """Check each request; in a batch of several, fields begin with `[3].`, as in `check_batch`."""
        if self._check is None or all(request.template is None for request in requests):
            return
        found = await self._check(requests)
        wheres = [f"[{index}]." if len(requests) > 1 else "" for index in range(len(requests))]
        errors = [
            FieldError(f"{where}{error.field}", error.message)
            for where, errors in zip(wheres, found, strict=True)
            for error in errors
        ]
        if errors:
            raise BadInput(errors)

    async def _flush(self, requests: Sequence[CheckedRequest]) -> list[Accepted]:
        # One statement outside a transaction block is its own transaction: it is committed when it returns.
        async with self._pool.acquire() as connection:
            if len(requests) == 1 and (values := usual_values(requests[0])) is not None:
                with suppress(IdempotencyConflict), translated():  # the batch returns the delivery that has the key
                    return [await store.accept_usual(connection, **values, idempotency_ttl=self._ttl)]
            return await accept_batch(connection, requests, idempotency_ttl=self._ttl)


async def cancel(pool: Pool, delivery_id: int, *, actor: str, now: datetime | None = None) -> None:
    """Cancel a waiting delivery."""
    async with audited(pool, actor, "delivery.cancel", f"delivery:{delivery_id}") as (connection, _note):
        done = await store.cancel(connection, delivery_ids=[delivery_id], reason="cancelled_by_operator", now=now)
        await _must(connection, delivery_id, "cancelled", done=bool(done))


async def choose_facts(connection: Connection, types: Sequence[str]) -> None:
    """Set which facts about deliveries are appended to the event store."""
    await store.choose_facts(connection, types=types)


async def count_dead_letters(pool: Pool) -> dict[str, int]:
    """The number of dead letters by reason, most frequent first; the newest `COUNTED` are counted."""
    async with pool.acquire() as connection:
        return await store.count_dead_letters(connection, count_limit=COUNTED)


async def get_delivery(pool: Pool, delivery_id: int) -> Delivery:
    async with pool.acquire() as connection:
        return await _find(connection, delivery_id)


async def list_attempts(pool: Pool, delivery_id: int) -> list[Attempt]:
    async with pool.acquire() as connection:
        attempts = await store.list_attempts(connection, delivery_id=delivery_id)
        if not attempts:
            await _find(connection, delivery_id)
    return attempts


async def list_dead_letters(
    pool: Pool, *, reason: str | None = None, cursor: str | None = None, limit: int = 50
) -> Found[DeadLetter]:
    """A page of dead letters, newest first, and the cursor of the next page."""
    order = {"before_at": ("created_at", datetime), "before_id": ("delivery_id", int)}
    return await read_page(store.list_dead_letters, pool, cursor, limit, order=order, reason=reason)


async def list_deliveries(
    pool: Pool, chosen: DeliveryFilter, *, cursor: str | None = None, limit: int = 50
) -> Found[DeliverySummary]:
    """A page of deliveries, newest first, and the cursor of the next page; see `delivery.listing`."""
    return await search_deliveries(pool, chosen, cursor=cursor, limit=limit)


async def refuse_cancelled(connection: Connection, delivery_ids: Sequence[int], action: str) -> None:
    """Raise `CampaignCancelled` if one of these deliveries belongs to a cancelled campaign."""
    found = await store.find_cancelled_campaign(connection, delivery_ids=delivery_ids)
    if found is not None:
        raise CampaignCancelled(*found, action)


async def reschedule(
    pool: Pool, delivery_id: int, *, send_at: datetime, actor: str, now: datetime | None = None
) -> None:
    """Move a delivery that was never attempted to another time."""
    after = {"send_at": send_at.isoformat()}
    async with audited(pool, actor, "delivery.reschedule", f"delivery:{delivery_id}", after=after) as (
        connection,
        _note,
    ):
        done = await store.reschedule(connection, delivery_id=delivery_id, send_at=send_at, now=now)
        await _must(connection, delivery_id, "rescheduled", done=done)


async def resend(
    pool: Pool, delivery_id: int, *, actor: str, url: str | None = None, now: datetime | None = None
) -> DeliveryId:
    """Send the same content again as a new delivery; the original is unchanged. A webhook may go to another `url`."""
    async with audited(pool, actor, "delivery.resend", f"delivery:{delivery_id}") as (connection, note):
        await store.lock_delivery(connection, delivery_id=delivery_id)
        await refuse_cancelled(connection, [delivery_id], "resent")
        clones = await store.resend(connection, delivery_ids=[delivery_id], url=url, now=now)
        if not clones:
            delivery = await _find(connection, delivery_id)
            if delivery.state in ENDED and delivery.has_body:
                raise DeliveryExpired(delivery_id, "resent")
            _refuse(delivery, "resent", with_body=ENDED)
        note.after = {"delivery_id": clones[0]}
    return clones[0]


async def retry(pool: Pool, delivery_id: int, *, actor: str, now: datetime | None = None) -> None:
    """Retry now instead of at `next_attempt_at`; a dead letter returns to the queue first."""
    async with audited(pool, actor, "delivery.retry", f"delivery:{delivery_id}") as (connection, _note):
        await store.lock_delivery(connection, delivery_id=delivery_id)
        await refuse_cancelled(connection, [delivery_id], "retried")
        done = await store.retry_now(connection, delivery_ids=[delivery_id], now=now)
        if not done:
            done = await store.redrive(connection, delivery_ids=[delivery_id], now=now)
        await _must(connection, delivery_id, "retried", done=bool(done), with_body=(DeliveryState.DEAD_LETTER,))


async def settle(pool: Pool, delivery_id: int, *, actor: str) -> None:
    """Mark an ambiguous dead letter as sent: it did arrive and is not sent again."""
    async with audited(pool, actor, "dead_letter.settle", f"delivery:{delivery_id}") as (connection, _note):
        if not await store.settle_ambiguous(connection, delivery_id=delivery_id):
            raise DeadLetterNotFound.of(delivery_id, kind="ambiguous dead letter")


async def find_last_id(pool: Pool) -> int:
    """The last id that a delivery got; 0 before the first."""
    return await store.find_last_id(pool)


async def _must(
    connection: Connection, delivery_id: int, action: str, *, done: bool, with_body: Collection[DeliveryState] = ()
) -> None:
    """Raise for zero rows: the delivery is unknown, its state does not allow the operation, or its body is missing."""
    if not done:
        _refuse(await _find(connection, delivery_id), action, with_body=with_body)


async def _find(connection: Connection, delivery_id: int) -> Delivery:
    delivery = await store.find_delivery(connection, delivery_id=delivery_id)
    if delivery is None:
        raise DeliveryNotFound.of(delivery_id)
    return delivery


def _refuse(delivery: Delivery, action: str, *, with_body: Collection[DeliveryState]) -> NoReturn:
    if delivery.state in with_body and not delivery.has_body:
        raise BodyGone(action)
    raise WrongState(action, delivery.state)
