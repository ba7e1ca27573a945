"""One function per statement of `queries.sql`, under the same name; `rows` converts its results."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import asyncpg

from postroom.db.queries import Connection, load
from postroom.db.retention import Step
from postroom.delivery.model import (
    Accepted,
    Attempt,
    ClaimId,
    DeadLetter,
    Delivery,
    DeliveryId,
    DeliveryState,
    Lane,
    LaneDepth,
    Outgoing,
    Recipient,
    Recovered,
    Unrendered,
)
from postroom.delivery.rows import (
    read_accepted,
    read_claim_recipient,
    read_claimed,
    read_dead_letter,
    read_delivery,
    read_recipient,
    read_unrendered,
)

QUERIES = load("postroom.delivery")


async def accept(connection: Connection, **columns: Any) -> list[Accepted]:
    """Accept requests given as columns."""
    return [read_accepted(row) for row in await QUERIES["accept"].many(connection, **columns)]


async def accept_one(connection: Connection, **columns: Any) -> Accepted:
    """Accept one request given as values; its recipients are columns."""
    return read_accepted(await QUERIES["accept_one"].one(connection, **columns))


async def cancel(
    connection: Connection, *, delivery_ids: Sequence[int], reason: str, now: datetime | None
) -> list[DeliveryId]:
    return _ids(await QUERIES["cancel"].many(connection, delivery_ids=delivery_ids, reason=reason, now=now))


async def choose_facts(connection: Connection, *, types: Sequence[str]) -> int:
    return await QUERIES["choose_facts"].exec(connection, types=types)


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
    """Claimed deliveries without recipients and content, which `list_claim_recipients` and `mark_started` read."""
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
    return [read_claimed(row) for row in rows]


async def close_claims(connection: Connection, *, claim_ids: Sequence[int]) -> int:
    return await QUERIES["close_claims"].exec(connection, claim_ids=claim_ids)


async def complete(connection: Connection, *, now: datetime | None, **columns: Sequence[Any]) -> set[DeliveryId]:
    """Write results; returns the ids whose claim was still valid."""
    return {DeliveryId(row["id"]) for row in await QUERIES["complete"].many(connection, now=now, **columns)}


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


async def ensure_ledger_partitions(connection: Connection, *, now: datetime | None) -> int:
    return int((await QUERIES["ensure_ledger_partitions"].one(connection, now=now))["made"])


async def expire_waiting(connection: Connection, *, batch_limit: int, now: datetime | None) -> list[DeliveryId]:
    rows = await QUERIES["expire_waiting"].many(connection, batch_limit=batch_limit, now=now)
    return _ids(rows)


async def fail_rendering(
    connection: Connection, *, delivery_id: Sequence[int], detail: Sequence[str], now: datetime | None
) -> int:
    return await QUERIES["fail_rendering"].exec(connection, delivery_id=delivery_id, detail=detail, now=now)


async def find_cancelled_campaign(
    connection: Connection, *, delivery_ids: Sequence[int]
) -> tuple[DeliveryId, int] | None:
    """The id of the delivery and of its campaign."""
    row = await QUERIES["find_cancelled_campaign"].maybe(connection, delivery_ids=delivery_ids)
    return (DeliveryId(row["id"]), row["campaign_id"]) if row else None


async def find_delivery(connection: Connection, *, delivery_id: int) -> Delivery | None:
    row = await QUERIES["find_delivery"].maybe(connection, delivery_id=delivery_id)
    if row is None:
        return None
    recipients = await list_recipients(connection, delivery_id=delivery_id)
    return read_delivery(row, recipients)


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


async def list_attempts(connection: Connection, *, delivery_id: int) -> list[Attempt]:
    return [Attempt(**row) for row in await QUERIES["list_attempts"].many(connection, delivery_id=delivery_id)]


async def list_claim_recipients(
    connection: Connection, *, lane: Lane, delivery_ids: Sequence[int], now: datetime | None
) -> dict[int, list[Recipient]]:
    """All recipients by delivery, with their suppression now."""
    grouped: dict[int, list[Recipient]] = {}
    for row in await QUERIES["list_claim_recipients"].many(
        connection, lane=lane.value, delivery_ids=delivery_ids, now=now
    ):
        grouped.setdefault(row["delivery_id"], []).append(read_claim_recipient(row))
    return grouped


async def list_dead_letters(
    connection: Connection,
    *,
    reason: str | None,
    before_at: datetime | None,
    before_id: int | None,
    page_limit: int,
) -> list[DeadLetter]:
    rows = await QUERIES["list_dead_letters"].many(
        connection, reason=reason, before_at=before_at, before_id=before_id, page_limit=page_limit
    )
    return [read_dead_letter(row) for row in rows]


async def list_last_attempts(connection: Connection, *, delivery_ids: Sequence[int]) -> dict[DeliveryId, Attempt]:
    rows = await QUERIES["list_last_attempts"].many(connection, delivery_ids=delivery_ids)
    return {row["delivery_id"]: Attempt(*list(row.values())[1:]) for row in rows}


async def list_recipients(connection: Connection, *, delivery_id: int) -> list[Recipient]:
    return [read_recipient(row) for row in await QUERIES["list_recipients"].many(connection, delivery_id=delivery_id)]


async def lock_notice(connection: Connection, *, kind: str, interval: timedelta, now: datetime | None) -> bool:
    return await QUERIES["lock_notice"].maybe(connection, kind=kind, interval=interval, now=now) is not None


async def lock_unrendered(connection: Connection, *, batch_limit: int) -> list[Unrendered]:
    return [read_unrendered(row) for row in await QUERIES["lock_unrendered"].many(connection, batch_limit=batch_limit)]


async def mark_dead_letters_notified(connection: Connection, *, now: datetime | None) -> int:
    return int((await QUERIES["mark_dead_letters_notified"].one(connection, now=now))["notified"])


async def mark_notice_sent(connection: Connection, *, kind: str, now: datetime | None) -> int:
    return await QUERIES["mark_notice_sent"].exec(connection, kind=kind, now=now)


async def mark_rendered(connection: Connection, *, delivery_id: Sequence[int], now: datetime | None) -> int:
    return await QUERIES["mark_rendered"].exec(connection, delivery_id=delivery_id, now=now)


async def mark_started(  # noqa: PLR0913 - the statement's parameters
    connection: Connection,
    *,
    claim_id: int,
    started_through: int,
    lease: timedelta,
    now: datetime | None,
    delivery_ids: Sequence[int] = (),
    with_variables: bool = False,
) -> list[asyncpg.Record]:
    """The content of these deliveries, for `rows.read_content`, and the database's time. Empty: the claim is lost."""
    return await QUERIES["mark_started"].many(
        connection,
        claim_id=claim_id,
        started_through=started_through,
        lease=lease,
        now=now,
        delivery_ids=delivery_ids,
        with_variables=with_variables,
    )


async def measure_queue(connection: Connection, *, bound: int) -> list[LaneDepth]:
    return [
        LaneDepth(Lane(row["lane"]), row["capped"], row["due_at"], row["due"])
        for row in await QUERIES["measure_queue"].many(connection, bound=bound)
    ]


async def put_to_sleep(connection: Connection, *, worker_id: int, lane: Lane) -> int:
    return await QUERIES["put_to_sleep"].exec(connection, worker_id=worker_id, lane=lane.value)


async def record_message_ids(connection: Connection, *, delivery_id: Sequence[int], message_id: Sequence[str]) -> int:
    return await QUERIES["record_message_ids"].exec(connection, delivery_id=delivery_id, message_id=message_id)


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


async def redrive(connection: Connection, *, delivery_ids: Sequence[int], now: datetime | None) -> list[DeliveryId]:
    return _ids(await QUERIES["redrive"].many(connection, delivery_ids=delivery_ids, now=now))


async def register_worker(connection: Connection, *, pid: int, host: str) -> int:
    return int((await QUERIES["register_worker"].one(connection, pid=pid, host=host))["id"])


async def release(
    connection: Connection,
    *,
    claim_id: int,
    delivery_ids: Sequence[int],
    now: datetime | None,
    wait: timedelta = timedelta(),
) -> list[DeliveryId]:
    rows = await QUERIES["release"].many(connection, claim_id=claim_id, delivery_ids=delivery_ids, wait=wait, now=now)
    return _ids(rows)


async def renew_claims(
    connection: Connection, *, worker_id: int, claim_ids: Sequence[int], lease: timedelta, now: datetime | None
) -> dict[ClaimId, bool]:
    """The valid claims, and whether each was valid without interruption."""
    rows = await QUERIES["renew_claims"].many(
        connection, worker_id=worker_id, claim_ids=claim_ids, lease=lease, now=now
    )
    return {ClaimId(row["id"]): row["was_held"] for row in rows}


async def reschedule(connection: Connection, *, delivery_id: int, send_at: datetime, now: datetime | None) -> bool:
    return await QUERIES["reschedule"].maybe(connection, delivery_id=delivery_id, send_at=send_at, now=now) is not None


async def resend(
    connection: Connection, *, delivery_ids: Sequence[int], url: str | None = None, now: datetime | None
) -> list[DeliveryId]:
    return _ids(await QUERIES["resend"].many(connection, delivery_ids=delivery_ids, url=url, now=now))


async def retry_now(connection: Connection, *, delivery_ids: Sequence[int], now: datetime | None) -> list[DeliveryId]:
    return _ids(await QUERIES["retry_now"].many(connection, delivery_ids=delivery_ids, now=now))


async def return_untried(connection: Connection, *, account_id: Sequence[int], claim_id: Sequence[int]) -> int:
    return await QUERIES["return_untried"].exec(connection, account_id=account_id, claim_id=claim_id)


async def send(connection: Connection, room: str, **values: Any) -> DeliveryId:
    """Accept one mail on a connection that is not ours; `room` names the schema."""
    row = await QUERIES.call_in_room("send", room, tuple(values)).one(connection, **values)
    return DeliveryId(row["delivery_id"])


async def settle_ambiguous(connection: Connection, *, delivery_id: int) -> bool:
    return await QUERIES["settle_ambiguous"].maybe(connection, delivery_id=delivery_id) is not None


async def store_rendered(
    connection: Connection,
    *,
    delivery_id: Sequence[int],
    subject: Sequence[str],
    text_body: Sequence[str | None],
    html_body: Sequence[str | None],
    now: datetime | None = None,
) -> int:
    return await QUERIES["store_rendered"].exec(
        connection, delivery_id=delivery_id, subject=subject, text_body=text_body, html_body=html_body, now=now
    )


async def wake_up(connection: Connection, *, worker_id: int, lane: Lane) -> int:
    return await QUERIES["wake_up"].exec(connection, worker_id=worker_id, lane=lane.value)


async def wake_workers(connection: Connection, *, lanes: Sequence[str]) -> None:
    await QUERIES["wake_workers"].exec(connection, lanes=lanes)


def _ids(rows: Sequence[asyncpg.Record]) -> list[DeliveryId]:
    return [DeliveryId(row["id"]) for row in rows]
