"""One function per statement of `queries.sql`, under the same name. Rows become models here and nowhere else."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import asyncpg
import msgspec

from postroom.db.queries import Connection, load
from postroom.delivery.model import (
    Acceptance,
    Accepted,
    Address,
    Attachment,
    Attempt,
    Channel,
    ClaimId,
    DeadLetter,
    Delivery,
    DeliveryId,
    DeliverySummary,
    Lane,
    LaneDepth,
    Outgoing,
    Recipient,
    RecipientKind,
    RecipientOutcome,
    Recovered,
    State,
    Unrendered,
)
from postroom.senders.model import Slot

QUERIES = load("postroom.delivery")

_decode = msgspec.json.Decoder().decode
_decode_headers = msgspec.json.Decoder(dict[str, str]).decode
_decode_attachments = msgspec.json.Decoder(tuple[Attachment, ...]).decode


def _json(value: str | None) -> Any:
    return _decode(value) if value else {}


def _headers(value: str | None) -> Mapping[str, str]:
    return _decode_headers(value) if value else {}


def _attachments(value: str | None) -> tuple[Attachment, ...]:
    return _decode_attachments(value) if value else ()


def _accepted(row: asyncpg.Record) -> Accepted:
    return Accepted(DeliveryId(row["delivery_id"]), State(row["state"]), Acceptance(row["acceptance"]))


def _sender(row: asyncpg.Record) -> Address | None:
    return Address(row["from_email"], row["from_name"]) if row["from_email"] else None


async def accept(connection: Connection, *, room: str | None = None, **columns: Any) -> list[Accepted]:
    """Take requests given as columns; on a connection that is not ours, `room` names the schema."""
    statement = QUERIES["accept"] if room is None else QUERIES.in_room("accept", room)
    return [_accepted(row) for row in await statement.many(connection, **columns)]


async def accept_one(connection: Connection, *, room: str | None = None, **columns: Any) -> Accepted:
    """Take one request given as values, but for its recipients, which are columns."""
    statement = QUERIES["accept_one"] if room is None else QUERIES.in_room("accept_one", room)
    return _accepted(await statement.one(connection, **columns))


async def cancel(connection: Connection, *, delivery_id: int, reason: str, now: datetime | None) -> bool:
    return await QUERIES["cancel"].maybe(connection, delivery_id=delivery_id, reason=reason, now=now) is not None


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
) -> list[asyncpg.Record]:
    """Claimed rows without their recipients; `outgoing` joins the two."""
    return await QUERIES["claim_due"].many(
        connection,
        lane=lane.value,
        batch_limit=batch_limit,
        worker_id=worker_id,
        lease=lease,
        now=now,
        use_senders=use_senders,
    )


async def close_claims(connection: Connection, *, claim_ids: Sequence[int]) -> int:
    return await QUERIES["close_claims"].exec(connection, claim_ids=claim_ids)


async def complete(connection: Connection, *, now: datetime | None, **columns: Sequence[Any]) -> set[DeliveryId]:
    """Write results; returns the ids that were still ours to write."""
    return {DeliveryId(row["id"]) for row in await QUERIES["complete"].many(connection, now=now, **columns)}


async def count_redrivable(
    connection: Connection,
    *,
    reason: str | None,
    source: str | None,
    template_id: str | None,
    created_before: datetime | None,
    delivery_ids: Sequence[int] | None,
) -> int:
    row = await QUERIES["count_redrivable"].one(
        connection,
        reason=reason,
        source=source,
        template_id=template_id,
        created_before=created_before,
        delivery_ids=delivery_ids,
    )
    return int(row["redrivable"])


async def delete_old_deliveries(
    connection: Connection,
    *,
    retention: timedelta,
    dead_letter_retention: timedelta,
    since: datetime | None,
    batch_limit: int,
    now: datetime | None,
) -> list[datetime]:
    """When those had ended that are gone."""
    rows = await QUERIES["delete_old_deliveries"].many(
        connection,
        retention=retention,
        dead_letter_retention=dead_letter_retention,
        since=since,
        batch_limit=batch_limit,
        now=now,
    )
    return [row["finished_at"] for row in rows]


async def delete_old_malformed_commands(
    connection: Connection, *, retention: timedelta, batch_limit: int, now: datetime | None
) -> int:
    return await QUERIES["delete_old_malformed_commands"].exec(
        connection, retention=retention, batch_limit=batch_limit, now=now
    )


async def delete_old_payloads(
    connection: Connection, *, retention: timedelta, since: datetime | None, batch_limit: int, now: datetime | None
) -> list[datetime]:
    """When those had ended whose bodies are gone."""
    rows = await QUERIES["delete_old_payloads"].many(
        connection, retention=retention, since=since, batch_limit=batch_limit, now=now
    )
    return [row["finished_at"] for row in rows]


async def ensure_attempt_partitions(connection: Connection, *, now: datetime | None) -> int:
    return int((await QUERIES["ensure_attempt_partitions"].one(connection, now=now))["made"])


async def expire_waiting(connection: Connection, *, batch_limit: int, now: datetime | None) -> list[DeliveryId]:
    rows = await QUERIES["expire_waiting"].many(connection, batch_limit=batch_limit, now=now)
    return [DeliveryId(row["id"]) for row in rows]


async def fail_rendering(
    connection: Connection, *, delivery_id: Sequence[int], detail: Sequence[str], now: datetime | None
) -> int:
    return await QUERIES["fail_rendering"].exec(connection, delivery_id=delivery_id, detail=detail, now=now)


async def find_delivery(connection: Connection, *, delivery_id: int) -> Delivery | None:
    row = await QUERIES["find_delivery"].maybe(connection, delivery_id=delivery_id)
    if row is None:
        return None
    recipients = await list_recipients(connection, delivery_id=delivery_id)
    same = {
        name: row[name]
        for name in [
            "attempt_count",
            "next_attempt_at",
            "created_at",
            "expires_at",
            "finished_at",
            "ladder",
            "source",
            "idempotency_key",
            "template_id",
            "locale",
            "reason",
            "detail",
            "traceparent",
            "rendered_at",
            "subject",
        ]
    }
    return Delivery(
        id=DeliveryId(row["id"]),
        state=State(row["state"]),
        lane=Lane(row["lane"]),
        channel=Channel(row["channel"]),
        resend_of=row["resend_of"],
        tags=_json(row["tags"]),
        custom_data=_json(row["custom_data"]) or None,
        sender=_sender(row),
        text=row["text_body"],
        html=row["html_body"],
        variables=_json(row["variables"]),
        headers=_json(row["headers"]),
        attachments=_attachments(row["attachments"]),
        recipients=tuple(recipients),
        **same,
    )


async def find_schedule(connection: Connection, *, lane: Lane) -> datetime | None:
    row = await QUERIES["find_schedule"].one(connection, lane=lane.value)
    moment: datetime | None = row["next_attempt_at"]
    return moment


async def forget_workers(connection: Connection, *, worker_id: int, silence: timedelta, now: datetime | None) -> int:
    return await QUERIES["forget_workers"].exec(connection, worker_id=worker_id, silence=silence, now=now)


async def list_attempts(connection: Connection, *, delivery_id: int) -> list[Attempt]:
    return [Attempt(**row) for row in await QUERIES["list_attempts"].many(connection, delivery_id=delivery_id)]


async def list_claim_recipients(
    connection: Connection, *, claim_id: int, now: datetime | None
) -> dict[int, list[Recipient]]:
    """Every recipient of a claim by delivery; one who is suppressed by now says so."""
    grouped: dict[int, list[Recipient]] = {}
    for row in await QUERIES["list_claim_recipients"].many(connection, claim_id=claim_id, now=now):
        outcome = RecipientOutcome.SUPPRESSED if row["is_suppressed"] else RecipientOutcome(row["outcome"])
        recipient = Recipient(RecipientKind(row["kind"]), row["position"], row["email"], row["name"], outcome)
        grouped.setdefault(row["delivery_id"], []).append(recipient)
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
    return [DeadLetter(**{**row, "lane": Lane(row["lane"]), "channel": Channel(row["channel"])}) for row in rows]


async def list_deliveries(connection: Connection, **filters: Any) -> list[DeliverySummary]:
    return [
        DeliverySummary(
            **{
                **row,
                "state": State(row["state"]),
                "lane": Lane(row["lane"]),
                "channel": Channel(row["channel"]),
                "recipients": tuple(row["recipients"] or ()),
            }
        )
        for row in await QUERIES["list_deliveries"].many(connection, **filters)
    ]


async def list_recipients(connection: Connection, *, delivery_id: int) -> list[Recipient]:
    return [
        Recipient(
            RecipientKind(row["kind"]),
            row["position"],
            row["email"],
            row["name"],
            RecipientOutcome(row["outcome"]),
            row["code"],
            row["enhanced_code"],
            row["detail"],
        )
        for row in await QUERIES["list_recipients"].many(connection, delivery_id=delivery_id)
    ]


async def lock_unrendered(connection: Connection, *, batch_limit: int) -> list[Unrendered]:
    return [
        Unrendered(
            DeliveryId(row["id"]),
            Lane(row["lane"]),
            row["template_id"],
            row["locale"],
            _json(row["variables"]),
        )
        for row in await QUERIES["lock_unrendered"].many(connection, batch_limit=batch_limit)
    ]


async def mark_dead_letters_notified(connection: Connection, *, now: datetime | None) -> int:
    return int((await QUERIES["mark_dead_letters_notified"].one(connection, now=now))["told"])


async def mark_rendered(
    connection: Connection,
    *,
    delivery_id: Sequence[int],
    subject: Sequence[str],
    text_body: Sequence[str | None],
    html_body: Sequence[str | None],
    now: datetime | None,
) -> int:
    return await QUERIES["mark_rendered"].exec(
        connection,
        delivery_id=delivery_id,
        subject=subject,
        text_body=text_body,
        html_body=html_body,
        now=now,
    )


async def mark_started(
    connection: Connection, *, claim_id: int, started_through: int, lease: timedelta, now: datetime | None
) -> bool:
    row = await QUERIES["mark_started"].maybe(
        connection, claim_id=claim_id, started_through=started_through, lease=lease, now=now
    )
    return row is not None


async def measure_queue(connection: Connection, *, bound: int) -> list[LaneDepth]:
    return [
        LaneDepth(Lane(row["lane"]), row["capped"], row["due_at"])
        for row in await QUERIES["measure_queue"].many(connection, bound=bound)
    ]


async def put_to_sleep(connection: Connection, *, worker_id: int, lane: Lane) -> int:
    return await QUERIES["put_to_sleep"].exec(connection, worker_id=worker_id, lane=lane.value)


async def recover_claims(
    connection: Connection, *, held_lanes: Sequence[str], batch_limit: int, now: datetime | None
) -> list[Recovered]:
    return [
        Recovered(DeliveryId(row["id"]), State(row["state"]), row["is_ambiguous"])
        for row in await QUERIES["recover_claims"].many(
            connection, held_lanes=held_lanes, batch_limit=batch_limit, now=now
        )
    ]


async def redrive(
    connection: Connection, *, batch_limit: int, now: datetime | None, **filters: Any
) -> list[DeliveryId]:
    rows = await QUERIES["redrive"].many(connection, batch_limit=batch_limit, now=now, **filters)
    return [DeliveryId(row["id"]) for row in rows]


async def register_worker(connection: Connection, *, pid: int, host: str) -> int:
    return int((await QUERIES["register_worker"].one(connection, pid=pid, host=host))["id"])


async def release(
    connection: Connection, *, claim_id: int, delivery_ids: Sequence[int], now: datetime | None
) -> list[DeliveryId]:
    rows = await QUERIES["release"].many(connection, claim_id=claim_id, delivery_ids=delivery_ids, now=now)
    return [DeliveryId(row["id"]) for row in rows]


async def renew_claims(
    connection: Connection, *, worker_id: int, claim_ids: Sequence[int], lease: timedelta, now: datetime | None
) -> set[ClaimId]:
    rows = await QUERIES["renew_claims"].many(
        connection, worker_id=worker_id, claim_ids=claim_ids, lease=lease, now=now
    )
    return {ClaimId(row["id"]) for row in rows}


async def reschedule(connection: Connection, *, delivery_id: int, send_at: datetime, now: datetime | None) -> bool:
    return await QUERIES["reschedule"].maybe(connection, delivery_id=delivery_id, send_at=send_at, now=now) is not None


async def resend(
    connection: Connection, *, delivery_id: int, url: str | None = None, now: datetime | None
) -> DeliveryId | None:
    row = await QUERIES["resend"].maybe(connection, delivery_id=delivery_id, url=url, now=now)
    return DeliveryId(row["id"]) if row else None


async def retry_now(connection: Connection, *, delivery_id: int, now: datetime | None) -> bool:
    return await QUERIES["retry_now"].maybe(connection, delivery_id=delivery_id, now=now) is not None


async def return_untried(connection: Connection, *, account_id: Sequence[int], claim_id: Sequence[int]) -> int:
    return await QUERIES["return_untried"].exec(connection, account_id=account_id, claim_id=claim_id)


async def settle_ambiguous(connection: Connection, *, delivery_id: int) -> bool:
    return await QUERIES["settle_ambiguous"].maybe(connection, delivery_id=delivery_id) is not None


async def wake_up(connection: Connection, *, worker_id: int, lane: Lane) -> int:
    return await QUERIES["wake_up"].exec(connection, worker_id=worker_id, lane=lane.value)


async def wake_workers(connection: Connection, *, lanes: Sequence[str]) -> None:
    await QUERIES["wake_workers"].exec(connection, lanes=lanes)


def outgoing(row: asyncpg.Record, recipients: Sequence[Recipient]) -> Outgoing:
    """A claimed row and its recipients as the value an attempt works on."""
    headers: Mapping[str, str] = {}
    attachments: tuple[Attachment, ...] = ()
    variables: Mapping[str, Any] = {}
    problem = None
    try:
        headers, attachments = _headers(row["headers"]), _attachments(row["attachments"])
        variables = _json(row["variables"])
    except msgspec.MsgspecError as error:  # written by hand: one such row must not stop its neighbours
        problem = f"headers, attachments or variables cannot be read: {error}"
    return Outgoing(
        id=DeliveryId(row["id"]),
        claim_id=ClaimId(row["claim_id"]),
        channel=Channel(row["channel"]),
        lane=Lane(row["lane"]),
        ladder=row["ladder"],
        attempt_no=row["attempt_count"],
        attempt_base=row["attempt_base"],
        is_expired=bool(row["is_expired"]),
        created_at=row["created_at"],
        retry_since=row["retry_since"],
        expires_at=row["expires_at"],
        traceparent=row["traceparent"],
        recipients=tuple(recipients),
        sender=_sender(row),
        subject=row["subject"] or "",
        text=row["text_body"],
        html=row["html_body"],
        headers=headers,
        attachments=attachments,
        problem=problem,
        campaign_id=row["campaign_id"],
        variables=variables,
        sender_account_id=row["sender_account_id"],
        slot=_slot(row),
        idempotency_key=row["idempotency_key"],
    )


def _slot(row: asyncpg.Record) -> Slot | None:
    account_id, domain = row["sender_account_id"], row["shaped_domain"]
    if account_id is None and domain is None:
        return None
    return Slot(
        claim_id=row["claim_id"],
        account_id=account_id,
        start_in_s=row["start_in"].total_seconds() if row["start_in"] else 0.0,
        delay_s=row["send_delay"].total_seconds() if row["send_delay"] else 0.0,
        domain=domain,
        connections=row["domain_connections"],
    )
