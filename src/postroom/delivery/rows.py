"""From rows to values, here and nowhere else."""

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any, TypeVar

import asyncpg
import msgspec
from msgspec.structs import replace

from postroom.delivery.model import (
    Acceptance,
    Accepted,
    Channel,
    ClaimId,
    DeadLetter,
    Delivery,
    DeliveryId,
    DeliverySummary,
    Lane,
    Outgoing,
    Recipient,
    RecipientKind,
    RecipientOutcome,
    State,
    Unrendered,
)
from postroom.post.address import Address
from postroom.post.mime import Attachment
from postroom.senders.model import Slot

T = TypeVar("T")

_decode = msgspec.json.Decoder().decode
_decode_headers = msgspec.json.Decoder(dict[str, str]).decode
_decode_variables = msgspec.json.Decoder(dict[str, Any]).decode
_decode_attachments = msgspec.json.Decoder(tuple[Attachment, ...]).decode


def read_accepted(row: asyncpg.Record) -> Accepted:
    return Accepted(DeliveryId(row["delivery_id"]), State(row["state"]), Acceptance(row["acceptance"]))


def read_dead_letter(row: asyncpg.Record) -> DeadLetter:
    lane = Lane(row["lane"])
    return DeadLetter(
        **{
            **row,
            "lane": lane,
            "channel": Channel(row["channel"]),
            "subject": None if lane is Lane.AUTH else row["subject"],
            "recipients": tuple(row["recipients"] or ()),
        }
    )


def read_delivery(row: asyncpg.Record, recipients: Sequence[Recipient]) -> Delivery:
    same = {
        name: row[name]
        for name in [
            "attempt_count",
            "next_attempt_at",
            "created_at",
            "expires_at",
            "finished_at",
            "ladder",
            "max_retries",
            "give_up_after",
            "source",
            "idempotency_key",
            "template_id",
            "campaign_id",
            "campaign_name",
            "locale",
            "reason",
            "detail",
            "traceparent",
            "rendered_at",
            "has_body",
            "subject",
        ]
    }
    return Delivery(
        id=DeliveryId(row["id"]),
        state=State(row["state"]),
        lane=Lane(row["lane"]),
        channel=Channel(row["channel"]),
        resend_of=row["resend_of"],
        tags=_shown(_json, row["tags"], {}),
        custom_data=_shown(_json, row["custom_data"], {}) or None,
        sender=_sender(row),
        text=row["text_body"],
        html=row["html_body"],
        variables=_shown(_json, row["variables"], {}),
        headers=_shown(_json, row["headers"], {}),
        attachments=_shown(_attachments, row["attachments"], ()),
        recipients=tuple(recipients),
        **same,
    )


def read_claimed(row: asyncpg.Record) -> Outgoing:
    """A claimed delivery, whose recipients and content are read when it starts."""
    return Outgoing(
        id=DeliveryId(row["id"]),
        claim_id=ClaimId(row["claim_id"]),
        channel=Channel(row["channel"]),
        lane=Lane(row["lane"]),
        ladder=row["ladder"],
        attempt_no=row["attempt_count"],
        attempt_base=row["attempt_base"],
        created_at=row["created_at"],
        dated_at=row["dated_at"],
        age=row["age"] or timedelta(),
        max_retries=row["max_retries"],
        give_up_after=row["give_up_after"],
        throttled_by=tuple(row["throttled_by"] or ()),
        expires_at=row["expires_at"],
        traceparent=row["traceparent"],
        recipients=(),
        sender=None,
        subject="",
        text=None,
        html=None,
        headers={},
        attachments=(),
        campaign_id=row["campaign_id"],
        sender_account_id=row["sender_account_id"],
        slot=_slot(row),
        idempotency_key=row["idempotency_key"],
        endpoint_id=row["endpoint_id"],
        size=row["size"],
    )


def read_content(outgoing: Outgoing, row: asyncpg.Record) -> Outgoing:
    """The same delivery with what it says."""
    headers: Mapping[str, str] = {}
    attachments: tuple[Attachment, ...] = ()
    variables: Mapping[str, Any] = {}
    problem = None
    try:
        headers, attachments = _headers(row["headers"]), _attachments(row["attachments"])
        if outgoing.campaign_id is not None and row["variables"]:
            variables = _decode_variables(row["variables"])
    except Exception as error:  # noqa: BLE001 - RecursionError too: one row must not stop the others of its claim
        problem = f"headers, attachments or variables cannot be read: {_reason(error)}"
    return replace(
        outgoing,
        sender=_sender(row),
        subject=row["subject"] or "",
        text=row["text_body"],
        html=row["html_body"],
        headers=headers,
        attachments=attachments,
        problem=problem,
        variables=variables,
    )


def read_recipient(row: asyncpg.Record) -> Recipient:
    """With what became of it."""
    return Recipient(
        RecipientKind(row["kind"]),
        row["position"],
        row["email"],
        row["name"],
        RecipientOutcome(row["outcome"]),
        row["code"],
        row["enhanced_code"],
        row["detail"],
    )


def read_claim_recipient(row: asyncpg.Record) -> Recipient:
    """As an attempt needs it; one who is suppressed or on hold by now says so."""
    outcome = RecipientOutcome.SUPPRESSED if row["is_suppressed"] else RecipientOutcome(row["outcome"])
    return Recipient(
        RecipientKind(row["kind"]), row["position"], row["email"], row["name"], outcome, held_for=row["held_for"]
    )


def read_summary(row: asyncpg.Record) -> DeliverySummary:
    return DeliverySummary(
        **{
            **row,
            "state": State(row["state"]),
            "lane": Lane(row["lane"]),
            "channel": Channel(row["channel"]),
            "recipients": tuple(row["recipients"] or ()),
        }
    )


def read_unrendered(row: asyncpg.Record) -> Unrendered:
    variables: Mapping[str, Any] = {}
    problem = None
    try:
        variables = _decode_variables(row["variables"]) if row["variables"] else {}
    except Exception as error:  # noqa: BLE001 - as in `read_content`
        problem = f"the variables cannot be read: {_reason(error)}"
    return Unrendered(DeliveryId(row["id"]), Lane(row["lane"]), row["template_id"], row["locale"], variables, problem)


def _reason(error: Exception) -> str:
    """The decoder's own words; of another error only its type, because its text may quote the mail."""
    return str(error) if isinstance(error, msgspec.MsgspecError) else type(error).__name__


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
        doubtful_account_id=row["doubtful_account_id"],
    )


def _sender(row: asyncpg.Record) -> Address | None:
    return Address(row["from_email"], row["from_name"]) if row["from_email"] else None


def _shown(read: Callable[[str | None], T], value: str | None, empty: T) -> T:
    """A column for people: one that cannot be read is shown empty, and its delivery can still be found and ended."""
    try:
        return read(value)
    except Exception:  # noqa: BLE001 - as in `read_content`
        return empty


def _json(value: str | None) -> Any:
    return _decode(value) if value else {}


def _headers(value: str | None) -> Mapping[str, str]:
    return _decode_headers(value) if value else {}


def _attachments(value: str | None) -> tuple[Attachment, ...]:
    return _decode_attachments(value) if value else ()
