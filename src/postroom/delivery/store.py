"""One function per statement of `queries.sql`, under the same name; `rows` converts its results."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import asyncpg

from postroom.db.queries import Connection, column, columns, load
from postroom.db.retention import Step
from postroom.delivery.model import (
    Attempt,
    ClaimId,
    Delivery,
    DeliveryId,
    DeliveryState,
    Lane,
    LaneDepth,
    Outgoing,
    Recipient,
    Recovered,
)
from postroom.delivery.rows import (
    read_accepted,
    read_accepted_one,
    read_claim_recipient,
    read_claimed,
    read_dead_letter,
    read_delivery,
    read_recipient,
    read_unrendered,
)

QUERIES = load("postroom.delivery")


def _ids(rows: Sequence[asyncpg.Record]) -> list[DeliveryId]:
    return [DeliveryId(row["id"]) for row in rows]


def _cancelled_campaign(row: asyncpg.Record) -> tuple[DeliveryId, int]:
    return (DeliveryId(row["id"]), row["campaign_id"])


def _lane_depth(row: asyncpg.Record) -> LaneDepth:
    return LaneDepth(Lane(row["lane"]), row["capped"], row["due_at"], row["due"])


accept = QUERIES["accept"].one_as(read_accepted)
"""Accept requests given as columns."""
accept_usual = QUERIES["accept_usual"].one_as(read_accepted_one)
add_erased_attempts = QUERIES["add_erased_attempts"].many_as(column("id", DeliveryId))
cancel = QUERIES["cancel"].many_as(column("id", DeliveryId))
choose_facts = QUERIES["choose_facts"].exec


async def claim_due(  # noqa: PLR0913 - the statement's parameters
    connection: Connection,
    *,
    lane: Lane,
    batch_limit: int,
    worker_id: int,
    lease: timedelta,
    now: datetime | None,
    use_senders: bool = False,
    webhook_limit: int | None = None,
    byte_limit: int | None = None,
    busy_accounts: Sequence[int] = (),
    with_mail: bool = True,
) -> list[Outgoing]:
    """Claimed deliveries without recipients and content, which `mark_started` reads."""
    rows = await QUERIES["claim_due"].many(
        connection,
        lane=lane.value,
        batch_limit=batch_limit,
        worker_id=worker_id,
        lease=lease,
        now=now,
        use_senders=use_senders,
        webhook_limit=webhook_limit,
        byte_limit=byte_limit,
        busy_accounts=busy_accounts,
        with_mail=with_mail,
    )
    return [read_claimed(row, lane) for row in rows]


close_claims = QUERIES["close_claims"].exec


async def complete(
    connection: Connection, *, worker_id: int, now: datetime | None, **columns: Sequence[Any]
) -> set[DeliveryId]:
    """Write results; returns the ids whose claim was still valid."""
    return set(_ids(await QUERIES["complete"].many(connection, worker_id=worker_id, now=now, **columns)))


async def count_dead_letters(connection: Connection, *, count_limit: int) -> dict[str, int]:
    rows = await QUERIES["count_dead_letters"].many(connection, count_limit=count_limit)
    return {row["reason"]: row["letters"] for row in rows}


async def delete_old_deliveries(
    connection: Connection,
    *,
    retention: timedelta,
    dead_letter_retention: timedelta,
    batch_limit: int,
    now: datetime | None,
    after: int | None = None,
) -> Step:
    row = await QUERIES["delete_old_deliveries"].one(
        connection,
        retention=retention,
        dead_letter_retention=dead_letter_retention,
        after=after,
        batch_limit=batch_limit,
        now=now,
    )
    return Step(0 if row["is_over"] else row["seen"], row["deleted"], row["last_id"])


async def delete_old_payloads(
    connection: Connection, *, retention: timedelta, batch_limit: int, now: datetime | None, after: int | None = None
) -> Step:
    row = await QUERIES["delete_old_payloads"].one(
        connection, retention=retention, after=after, batch_limit=batch_limit, now=now
    )
    return Step(0 if row["is_over"] else row["seen"], row["deleted"], row["last_id"])


expire_waiting = QUERIES["expire_waiting"].many_as(column("id", DeliveryId))


async def fail_unwritable(
    connection: Connection, *, now: datetime | None, worker_id: int | None = None, **columns: Any
) -> list[DeliveryId]:
    """End deliveries that cannot be composed; `worker_id` is the holder of their claims, if they have some."""
    return _ids(await QUERIES["fail_unwritable"].many(connection, worker_id=worker_id, now=now, **columns))


find_cancelled_campaign = QUERIES["find_cancelled_campaign"].maybe_as(_cancelled_campaign)
"""The id of the delivery and of its campaign."""


async def find_delivery(connection: Connection, *, delivery_id: int) -> Delivery | None:
    row = await QUERIES["find_delivery"].maybe(connection, delivery_id=delivery_id)
    if row is None:
        return None
    recipients = await list_recipients(connection, delivery_id=delivery_id)
    return read_delivery(row, recipients)


find_last_id = QUERIES["find_last_id"].one_as(column("id", int))


async def find_schedule(connection: Connection, *, lane: Lane) -> datetime | None:
    row = await QUERIES["find_schedule"].one(connection, lane=lane.value)
    moment: datetime | None = row["due_at"]
    return moment


async def forget_workers(
    connection: Connection, *, retention: timedelta, batch_limit: int, now: datetime | None, worker_id: int = 0
) -> int:
    return await QUERIES["forget_workers"].exec(
        connection, worker_id=worker_id, retention=retention, batch_limit=batch_limit, now=now
    )


list_attempts = QUERIES["list_attempts"].many_as(lambda row: Attempt(**row))


async def list_claim_recipients(
    connection: Connection, *, lane: Lane, delivery_ids: Sequence[int], now: datetime | None
) -> dict[int, list[Recipient]]:
    """All recipients by delivery, with their suppression now. No delivery: no statement."""
    if not delivery_ids:
        return {}
    grouped: dict[int, list[Recipient]] = {}
    for row in await QUERIES["list_claim_recipients"].many(
        connection, lane=lane.value, delivery_ids=delivery_ids, now=now
    ):
        grouped.setdefault(row["delivery_id"], []).append(read_claim_recipient(row))
    return grouped


list_dead_letters = QUERIES["list_dead_letters"].many_as(read_dead_letter)


async def list_last_attempts(connection: Connection, *, delivery_ids: Sequence[int]) -> dict[DeliveryId, Attempt]:
    rows = await QUERIES["list_last_attempts"].many(connection, delivery_ids=delivery_ids)
    return {row["delivery_id"]: Attempt(*list(row.values())[1:]) for row in rows}


list_recipients = QUERIES["list_recipients"].many_as(read_recipient)
lock_delivery = QUERIES["lock_delivery"].has
lock_notice = QUERIES["lock_notice"].has
lock_unrendered = QUERIES["lock_unrendered"].many_as(read_unrendered)
mark_dead_letters_notified = QUERIES["mark_dead_letters_notified"].one_as(column("notified", int))
mark_notice_sent = QUERIES["mark_notice_sent"].exec
mark_rendered = QUERIES["mark_rendered"].exec


async def mark_started(  # noqa: PLR0913 - the statement's parameters
    connection: Connection,
    *,
    worker_id: int,
    claim_id: int,
    started_through: int,
    lease: timedelta,
    now: datetime | None,
    delivery_ids: Sequence[int] = (),
    with_variables: bool = False,
) -> list[asyncpg.Record]:
    """Content and first recipient of these deliveries, for `rows.read_started`. Empty: the claim is lost."""
    return await QUERIES["mark_started"].many(
        connection,
        worker_id=worker_id,
        claim_id=claim_id,
        started_through=started_through,
        lease=lease,
        now=now,
        delivery_ids=delivery_ids,
        with_variables=with_variables,
    )


measure_queue = QUERIES["measure_queue"].many_as(_lane_depth)
put_to_sleep = QUERIES["put_to_sleep"].exec
record_message_ids = QUERIES["record_message_ids"].exec


async def recover_claims(
    connection: Connection,
    *,
    held_lanes: Sequence[str],
    batch_limit: int,
    now: datetime | None,
    lease: timedelta = timedelta(),
    after_outage: bool = False,
) -> list[Recovered]:
    rows = await QUERIES["recover_claims"].many(
        connection, held_lanes=held_lanes, batch_limit=batch_limit, lease=lease, after_outage=after_outage, now=now
    )
    return [
        Recovered(DeliveryId(row["id"]), DeliveryState(row["state"]), row["is_ambiguous"], row["created_at"])
        for row in rows
    ]


redrive = QUERIES["redrive"].many_as(column("id", DeliveryId))
register_worker = QUERIES["register_worker"].one_as(column("id", int))


async def release(
    connection: Connection,
    *,
    worker_id: int,
    claim_id: int,
    delivery_ids: Sequence[int],
    now: datetime | None,
    wait: timedelta = timedelta(),
) -> list[DeliveryId]:
    rows = await QUERIES["release"].many(
        connection, worker_id=worker_id, claim_id=claim_id, delivery_ids=delivery_ids, wait=wait, now=now
    )
    return _ids(rows)


async def renew_claims(
    connection: Connection, *, worker_id: int, claim_ids: Sequence[int], lease: timedelta, now: datetime | None
) -> dict[ClaimId, bool]:
    """The valid claims, and whether each was valid without interruption."""
    rows = await QUERIES["renew_claims"].many(
        connection, worker_id=worker_id, claim_ids=claim_ids, lease=lease, now=now
    )
    return {ClaimId(row["id"]): row["was_held"] for row in rows}


repair_queue = QUERIES["repair_queue"].one_as(columns("last_id", "missing", "orphans"))
"""The last delivery that was compared, None at the end, and the numbers of added and deleted rows."""
reschedule = QUERIES["reschedule"].has


async def resend(
    connection: Connection, *, delivery_ids: Sequence[int], url: str | None = None, now: datetime | None
) -> list[DeliveryId]:
    return _ids(await QUERIES["resend"].many(connection, delivery_ids=delivery_ids, url=url, now=now))


retry_now = QUERIES["retry_now"].many_as(column("id", DeliveryId))
return_untried = QUERIES["return_untried"].exec


async def send(connection: Connection, room: str, **values: Any) -> DeliveryId:
    """Accept one mail on a connection that is not ours; `room` names the schema."""
    row = await QUERIES.call_in_room("send", room, tuple(values)).one(connection, **values)
    return DeliveryId(row["delivery_id"])


async def send_usual(connection: Connection, call: str, *arguments: str) -> DeliveryId:
    """Accept one usual mail on a connection that is not ours, by the call that `usual.usual_call` has chosen."""
    row = await connection.fetchrow(call, *arguments)
    delivery_id: DeliveryId = row[0]  # type: ignore[index] # the call of a function returns a row
    return delivery_id


settle_ambiguous = QUERIES["settle_ambiguous"].has
store_rendered = QUERIES["store_rendered"].exec
wake_followers = QUERIES["wake_followers"].exec
wake_up = QUERIES["wake_up"].exec
wake_workers = QUERIES["wake_workers"].exec
