"""Conversion between rows and records, in both directions; only this module does it."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from datetime import datetime, timedelta
from itertools import islice, repeat
from operator import attrgetter
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

import asyncpg
import msgspec
from msgspec.structs import replace

from postroom.delivery.model import (
    IDEMPOTENCY_TTL,
    Acceptance,
    Accepted,
    Channel,
    ClaimId,
    DeadLetter,
    Delivery,
    DeliveryId,
    DeliveryRequest,
    DeliveryState,
    DeliverySummary,
    Lane,
    Outgoing,
    Recipient,
    RecipientKind,
    RecipientOutcome,
    Unrendered,
)
from postroom.post.address import Address, is_plain_address, write_address
from postroom.post.mime import Attachment
from postroom.runtime.record import read_row
from postroom.senders.model import StartSlot

T = TypeVar("T")

_NO_ATTACHMENTS: tuple[Attachment, ...] = ()

# Looking a member up by its value in a dict takes a quarter of the time of calling the class.
_ACCEPTANCES = {member.value: member for member in Acceptance}
_STATES = {member.value: member for member in DeliveryState}
_CHANNELS = {member.value: member for member in Channel}
_KINDS = {member.value: member for member in RecipientKind}
_OUTCOMES = {member.value: member for member in RecipientOutcome}

_decode = msgspec.json.Decoder().decode
_decode_headers = msgspec.json.Decoder(dict[str, str]).decode
_decode_variables = msgspec.json.Decoder(dict[str, Any]).decode
_decode_attachments = msgspec.json.Decoder(tuple[Attachment, ...]).decode


def read_accepted(row: asyncpg.Record) -> list[Accepted]:
    """The answers to a batch, in its order."""
    ids, states, acceptances = row
    if states is None:
        return [Accepted(each, DeliveryState.QUEUED, Acceptance.ACCEPTED) for each in ids]
    return [_accepted(*answer) for answer in zip(ids, states, acceptances, strict=True)]


def read_accepted_one(row: asyncpg.Record) -> Accepted:
    """The answer to one request."""
    return _accepted(*row)


def _accepted(delivery_id: DeliveryId, state: str, acceptance: str) -> Accepted:
    return Accepted(delivery_id, _STATES[state], _ACCEPTANCES[acceptance])


def read_dead_letter(row: asyncpg.Record) -> DeadLetter:
    subject = None if row["lane"] == Lane.AUTH else row["subject"]
    return read_row(DeadLetter, {**row, "subject": subject, "recipients": row["recipients"] or ()})


def read_delivery(row: asyncpg.Record, recipients: Sequence[Recipient]) -> Delivery:
    values = {
        **row,
        "state": DeliveryState(row["state"]),
        "lane": Lane(row["lane"]),
        "channel": Channel(row["channel"]),
        **{name: _shown(_json, row[name], {}) for name in _JSON},
        "custom_data": _shown(_json, row["custom_data"], {}) or None,
        "sender": _sender(row),
        "text": row["text_body"],
        "html": row["html_body"],
        "attachments": _shown(_attachments, row["attachments"], _NO_ATTACHMENTS),
        "recipients": tuple(recipients),
    }
    # Not `read_row`: SQL may have written headers or tags of another form, and people must see such a row.
    return Delivery(**{each.name: values[each.name] for each in fields(Delivery)})


def read_claimed(row: asyncpg.Record, lane: Lane) -> Outgoing:
    """A claimed delivery, whose recipients and content are read when it starts."""
    return Outgoing(
        id=DeliveryId(row["id"]),
        claim_id=ClaimId(row["claim_id"]),
        channel=_CHANNELS[row["channel"]],
        lane=lane,
        ladder=row["ladder"],
        attempt_no=row["attempt_count"],
        attempt_base=row["attempt_base"],
        created_at=row["created_at"],
        dated_at=row["dated_at"] or row["created_at"],
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
        template_id=row["template_id"],
        template_version_id=row["template_version_id"],
        locale=row["locale"],
        sender_account_id=row["sender_account_id"],
        slot=_slot(row),
        idempotency_key=row["idempotency_key"],
        endpoint_id=row["endpoint_id"],
        size=row["size"],
    )


def read_started(outgoing: Outgoing, row: asyncpg.Record, recipients: Sequence[Recipient] | None = None) -> Outgoing:
    """The same delivery with its content and its recipients: the first one, or those given."""
    headers: Mapping[str, str] = {}
    attachments: tuple[Attachment, ...] = ()
    variables: Mapping[str, Any] = {}
    problem = None
    try:
        headers, attachments = _headers(row["headers"]), _attachments(row["attachments"])
        if row["variables"]:
            variables = _decode_variables(row["variables"])
    except Exception as error:  # noqa: BLE001 - RecursionError too: one row must not stop the others of its claim
        problem = f"headers, attachments or variables cannot be read: {_reason(error)}"
    return replace(
        outgoing,
        recipients=_first_recipient(row) if recipients is None else tuple(recipients),
        sender=_sender(row),
        subject=row["subject"] or "",
        text=row["text_body"],
        html=row["html_body"],
        headers=headers,
        attachments=attachments,
        problem=problem,
        variables=variables,
        is_stopped=row["is_stopped"],
    )


def read_recipient(row: asyncpg.Record) -> Recipient:
    """A recipient with its outcome."""
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
    """A recipient for an attempt, with its suppression or hold."""
    outcome = RecipientOutcome.SUPPRESSED if row["is_suppressed"] else _OUTCOMES[row["outcome"]]
    return Recipient(_KINDS[row["kind"]], row["position"], row["email"], row["name"], outcome, held_for=row["held_for"])


def _first_recipient(row: asyncpg.Record) -> tuple[Recipient, ...]:
    """The recipient that is stored with the delivery; none if the delivery was deleted."""
    address = row["recipient_email"]
    if address is None:
        return ()
    outcome = RecipientOutcome.SUPPRESSED if row["is_suppressed"] else _OUTCOMES[row["recipient_outcome"]]
    return (Recipient(RecipientKind.TO, 0, address, row["recipient_name"], outcome, held_for=row["held_for"]),)


def read_summary(row: asyncpg.Record) -> DeliverySummary:
    return read_row(DeliverySummary, {**row, "recipients": row["recipients"] or ()})


def read_unrendered(row: asyncpg.Record) -> Unrendered:
    variables: Mapping[str, Any] = {}
    problem = None
    try:
        variables = _decode_variables(row["variables"]) if row["variables"] else {}
    except Exception as error:  # noqa: BLE001 - as in `read_started`
        problem = f"the variables cannot be read: {_reason(error)}"
    return Unrendered(
        DeliveryId(row["id"]), row["template_id"], row["template_version_id"], row["locale"], variables, problem
    )


def _reason(error: Exception) -> str:
    """The message of a decoder error; of another error only the type, because its text may quote the mail."""
    return str(error) if isinstance(error, msgspec.MsgspecError) else type(error).__name__


def _slot(row: asyncpg.Record) -> StartSlot | None:
    account_id, domain = row["sender_account_id"], row["shaped_domain"]
    if account_id is None and domain is None:
        return None
    return StartSlot(
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
    """A column for people: an unreadable one is shown empty, so that its delivery can still be found and cancelled."""
    try:
        return read(value)
    except Exception:  # noqa: BLE001 - as in `read_started`
        return empty


def _json(value: str | None) -> Any:
    return _decode(value) if value else {}


def _headers(value: str | None) -> Mapping[str, str]:
    return _decode_headers(value) if value else {}


def _attachments(value: str | None) -> tuple[Attachment, ...]:
    return _decode_attachments(value) if value else ()


# ── values become columns ─────────────────────────────────────────────────────────────────────────────────────────

_encode = msgspec.json.Encoder(order="deterministic").encode


def encode_json(value: Any) -> str:
    """The JSON text of a value; the same for mappings with another order of their names."""
    return _encode(value).decode()


def json_size(value: Any) -> int:
    """The bytes of its JSON text as PostgreSQL writes it, with a space after each colon and comma."""
    return len(msgspec.json.format(_encode(value), indent=0))


def _is_json(kind: Any) -> bool:
    """True for mappings and for lists of records, optional ones too."""
    return any(get_origin(each) in {Mapping, tuple} for each in (kind, *get_args(kind)))


def ladder_of(request: DeliveryRequest) -> str:
    """The retry schedule of a request: its own, or the default of its channel and lane."""
    if request.ladder is not None:
        return request.ladder
    if request.channel is Channel.WEBHOOK:
        return "webhook"
    return "auth" if request.lane is Lane.AUTH else "generic"


_DERIVED = ("to", "cc", "bcc", "reply_to", "sender", "ladder")
_JSON = tuple(name for name, kind in get_type_hints(DeliveryRequest).items() if name not in _DERIVED and _is_json(kind))
"""Fields that become a JSON text."""
_PLAIN = tuple(each.name for each in fields(DeliveryRequest) if each.name not in (*_DERIVED, *_JSON))
"""Fields that are passed as they are; they and `_JSON` are parameters of `accept` and `send` with the same name."""
_as_json = attrgetter(*_JSON)
_GETTERS = {name: attrgetter(name) for name in (*_PLAIN, *_JSON)}

_SHARED_COLUMNS = frozenset(("channel", "lane", "source", "ladder", "template", "locale"))
"""Columns that most batches have in common."""

_OTHER_COLUMNS = ("other_ordinal", "other_kind", "other_position", "other_email", "other_name")


def accept_columns(
    requests: Sequence[DeliveryRequest], *, idempotency_ttl: timedelta, now: datetime | None
) -> dict[str, Any]:
    """One list per column; recipients after the first are flat and refer to their request by ordinal, from one.

    A column without values becomes NULL instead of a list of NULLs, which costs time to encode and to read; a shared
    column with one value becomes a list of one. Column by column, because rows take twice the time.
    """
    columns: dict[str, Sequence[Any]] = {name: list(map(get, requests)) for name, get in _GETTERS.items()}
    for name in _JSON:
        columns[name] = [encode_json(value) if value else None for value in columns[name]]
    columns["ladder"] = [ladder_of(request) for request in requests]
    columns["from_email"] = [request.sender.email if request.sender else None for request in requests]
    columns["from_name"] = [request.sender.name if request.sender else None for request in requests]
    columns["email"] = [request.to[0].email for request in requests]
    columns["name"] = [request.to[0].name for request in requests]
    others = [
        (ordinal, *each) for ordinal, request in enumerate(requests, start=1) for each in _other_recipients(request)
    ]
    return {
        **{name: _shortened(name, column) for name, column in columns.items()},
        **dict(zip(_OTHER_COLUMNS, zip(*others, strict=True) if others else repeat(None), strict=False)),
        "idempotency_ttl": idempotency_ttl,
        "now": now,
    }


def _shortened(name: str, column: Sequence[Any]) -> Sequence[Any] | None:
    if (name in _SHARED_COLUMNS or column[0] is None) and column.count(column[0]) == len(column):
        return None if column[0] is None else column[:1]
    return column


_SENT = tuple(name for name in _PLAIN if name not in ("channel", "lane", "endpoint_id"))
"""Without those that SQL `send` does not take, and the lane, for which it has a default."""
_sent = attrgetter(*_SENT)


def send_values(request: DeliveryRequest, *, idempotency_ttl: timedelta) -> dict[str, Any]:
    """One mail as the arguments of SQL `send`, without those that have no value."""
    given = zip(_SENT, _sent(request), strict=True)
    values = {name: value for name, value in given if value is not None}
    values["to"] = [write_address(address) for address in request.to]
    if request.lane is not Lane.TRANSACTIONAL:
        values["lane"] = request.lane.value
    if idempotency_ttl != IDEMPOTENCY_TTL:
        values["idempotency_ttl"] = idempotency_ttl
    for name, value in zip(_JSON, _as_json(request), strict=True):
        if value:
            values[name] = encode_json(value)
    if request.sender is not None:
        values["from"] = write_address(request.sender)
    for name in ("cc", "bcc", "reply_to"):
        if addresses := getattr(request, name):
            values[name] = [write_address(address) for address in addresses]
    return values


USUAL = ("to", "subject", "text", "html", "template", "variables", "locale", "lane", "source", "idempotency_key")
"""The fields that a usual mail may have (see `postroom.delivery.usual`), in the order of the statement `send_usual`."""
_usual = attrgetter(*USUAL)
_rare = attrgetter(*(each.name for each in fields(DeliveryRequest) if each.name not in USUAL))
_NOTHING_RARE = _rare(DeliveryRequest())


def usual_values(request: DeliveryRequest) -> dict[str, Any] | None:
    """One checked mail as the arguments of `accept_usual`; None if it is not a usual one."""
    if len(request.to) != 1 or _rare(request) != _NOTHING_RARE:
        return None
    first = request.to[0]
    if first.name is not None or not is_plain_address(first.email):
        return None
    variables = encode_json(request.variables) if request.variables else None
    return {**dict(zip(USUAL, _usual(request), strict=True)), "to": first.email, "variables": variables}


def _other_recipients(request: DeliveryRequest) -> Iterable[tuple[str, int, str, str | None]]:
    """The recipients after the first, which most mail does not have."""
    if len(request.to) == 1 and not request.cc and not request.bcc and not request.reply_to:
        return ()
    return islice(_recipients(request), 1, None)


def _recipients(request: DeliveryRequest) -> Iterator[tuple[str, int, str, str | None]]:
    """Kind, position, address and name of each recipient, in the order of kind and position."""
    kinds = (("to", request.to), ("cc", request.cc), ("bcc", request.bcc), ("reply_to", request.reply_to))
    for kind, addresses in kinds:
        for position, address in enumerate(addresses):
            yield kind, position, address.email, address.name
