"""Claim due events, create their deliveries and plan the next events, in one transaction."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from uuid import uuid4

from postroom.db.pool import Pool
from postroom.db.queries import Connection, arrays
from postroom.delivery import service as deliveries
from postroom.delivery.check import CheckedRequest, check_request
from postroom.delivery.errors import ClaimLost
from postroom.errors import BadInput
from postroom.runtime.loop import Signal, unheard
from postroom.schedule import store
from postroom.schedule.handover import HandoverResult, refusal, request_for, result_of
from postroom.schedule.model import Claimed, ScheduledEventStatus, SchedulePolicy
from postroom.schedule.plan import Subject
from postroom.schedule.planner import following_event, planned_columns

LEASE = timedelta(minutes=5)
"""Time after which `recover_events` checks a claimed event; a claim normally lasts for one transaction."""

KEY_TTL = timedelta(days=400)
"""More than a year, so that a yearly occurrence cannot become a second delivery while the first is kept."""


async def hand_over_due(
    pool: Pool, policy: SchedulePolicy, *, now: datetime | None = None, signal: Signal = unheard
) -> list[HandoverResult]:
    """Claim and hand over one batch and plan the next events; an empty list if no event is due."""
    async with pool.acquire() as connection, connection.transaction():
        claimed = await store.claim_due(connection, claim_id=uuid4(), lease=LEASE, now=now)
        signal("claimed")
        results = await hand_over(connection, claimed, policy, now=now)
    signal("handed_over")
    return results


async def hand_over(
    connection: Connection, claimed: Sequence[Claimed], policy: SchedulePolicy, *, now: datetime | None
) -> list[HandoverResult]:
    """Create the deliveries of claimed events. Raises `ClaimLost`, which rolls back the batch, if a claim expired."""
    if not claimed:
        return []
    results = await _deliver(connection, claimed, policy, now=now)
    ours = await store.hand_over(
        connection,
        claim_id=claimed[0].claim_id,
        now=now,
        **arrays(results, "delivery_id", "status", "failure_reason", "late_by", event_id="event.id"),
        **planned_columns(
            following_event(Subject(event.user_id, event.person, event.occasion), event, policy) for event in claimed
        ),
    )
    if len(ours) < len(results):
        raise ClaimLost("Another scheduler has claimed an event of this batch; the handover was rolled back.")
    return results


async def _deliver(
    connection: Connection, claimed: Sequence[Claimed], policy: SchedulePolicy, *, now: datetime | None
) -> list[HandoverResult]:
    results: list[HandoverResult] = []
    going: list[tuple[Claimed, CheckedRequest]] = []
    for event in claimed:
        try:
            reason = refusal(event, policy)
            request = check_request(request_for(event, policy))
        except BadInput as bad:
            reason = reason or f"bad_input: {bad.errors[0].field}: {bad.errors[0].message}"
        except Exception as error:  # noqa: BLE001 - a row that plain SQL wrote must not stop the others of its batch
            reason = f"bad_input: {error if isinstance(error, ValueError) else type(error).__name__}"
        if reason is None:
            going.append((event, request))
        else:
            results.append(HandoverResult(event, ScheduledEventStatus.FAILED, failure_reason=reason))
    requests = [request for _, request in going]
    accepted = await deliveries.accept_batch(connection, requests, idempotency_ttl=KEY_TTL, now=now)
    return results + [result_of(event, answer) for (event, _), answer in zip(going, accepted, strict=True)]
