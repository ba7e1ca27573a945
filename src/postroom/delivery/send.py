"""`postroom.send`: accept one mail in your own transaction, on your own connection."""

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any

from postroom.db.drivers import async_connection
from postroom.db.faults import translated
from postroom.delivery import service, store
from postroom.delivery.check import check_request
from postroom.delivery.model import IDEMPOTENCY_TTL, DeliveryId, DeliveryRequest, Lane
from postroom.delivery.rows import USUAL
from postroom.delivery.usual import usual_call
from postroom.errors import BadInput, FieldError
from postroom.post.address import Address, parse_address
from postroom.post.mime import Attachment
from postroom.runtime.tracing import current_traceparent

Addresses = str | Iterable[str]

_LISTS = ("cc", "bcc", "reply_to", "attachments")
_NO_LISTS = ((),) * len(_LISTS)
_OPTIONS = ("sender", "headers", "tags", "custom_data", "send_at", "expires_at", "max_retries", "give_up_after")
_NO_OPTIONS = (None,) * len(_OPTIONS)
_FIELDS = (*USUAL, *_LISTS, *_OPTIONS)

_TEXTS = ("subject", "text", "html", "template", "locale", "lane", "source", "idempotency_key", "sender")
_TYPES: Mapping[str, tuple[type, str]] = {
    **dict.fromkeys(("to", "cc", "bcc", "reply_to"), (Iterable, "an address or a list of addresses")),
    **dict.fromkeys(_TEXTS, (str, "a text")),
    **dict.fromkeys(("variables", "headers", "tags", "custom_data"), (Mapping, "a mapping")),
    **dict.fromkeys(("send_at", "expires_at"), (datetime, "a datetime")),
    "max_retries": (int, "an integer"),
    "give_up_after": (timedelta, "a timedelta"),
    "attachments": (Iterable, "a list of attachments"),
}
"""The type of each field, and its name for people."""


async def send(  # noqa: PLR0913 - one keyword per field of a mail
    connection: object,
    *,
    to: Addresses,
    subject: str | None = None,
    text: str | None = None,
    html: str | None = None,
    template: str | None = None,
    variables: Mapping[str, Any] | None = None,
    locale: str | None = None,
    lane: str = "transactional",
    source: str = "python",
    idempotency_key: str | None = None,
    idempotency_ttl: timedelta = IDEMPOTENCY_TTL,
    send_at: datetime | None = None,
    expires_at: datetime | None = None,
    max_retries: int | None = None,
    give_up_after: timedelta | None = None,
    sender: str | None = None,
    cc: Addresses = (),
    bcc: Addresses = (),
    reply_to: Addresses = (),
    headers: Mapping[str, str] | None = None,
    attachments: Iterable[Attachment] = (),
    tags: Mapping[str, str] | None = None,
    custom_data: Mapping[str, Any] | None = None,
    room: str = "postroom",
) -> DeliveryId:
    """Accept one mail and return its delivery id; it is accepted when your transaction commits, and not before.

    `connection` leads to the database of the room, with any search path: a connection of asyncpg or psycopg, or a
    connection or session of SQLAlchemy. `postroom.sync.send` takes synchronous connections. Addresses are
    `ada@example.org` or `Ada Lovelace <ada@example.org>`. The same `idempotency_key` with the same content returns the
    first id again; with other content it raises `IdempotencyConflict`. `max_retries` limits the attempts after the
    first, and `give_up_after` the time since the first; without them the lane's retry schedule applies.
    Bad input raises `BadInput` naming each field. For a role that is not Postroom's own the source is the role's name,
    or that name followed by `:` and a word.
    """
    own = async_connection(connection)
    traceparent = current_traceparent()
    usual = (to, subject, text, html, template, variables, locale, lane, source, idempotency_key)
    lists = (cc, bcc, reply_to, attachments)
    options = (sender, headers, tags, custom_data, send_at, expires_at, max_retries, give_up_after)
    if lists == _NO_LISTS and options == _NO_OPTIONS and traceparent is None and idempotency_ttl == IDEMPOTENCY_TTL:
        call = usual_call(room, usual)
        if call is not None:
            with translated():
                return await store.send_usual(own, *call)
    given = dict(zip(_FIELDS, usual + lists + options, strict=True), traceparent=traceparent)
    checked = check_request(_request_of(given))
    return await service.accept_from_application(own, checked, room=room, idempotency_ttl=idempotency_ttl)


def _request_of(given: Mapping[str, Any]) -> DeliveryRequest:
    """The request with these fields, its addresses parsed; raises `BadInput` that names each invalid one."""
    if errors := _wrong_types(given):
        raise BadInput(errors)
    fields = {name: value for name, value in given.items() if value is not None}
    fields["to"] = parse_addresses("to", given["to"], errors)
    for name in ("cc", "bcc", "reply_to"):
        fields[name] = parse_addresses(name, given[name] or (), errors)
    fields["sender"] = _sender(given["sender"], errors) if given["sender"] else None
    if "lane" in fields:
        fields["lane"] = _lane(fields["lane"], errors)
    fields["attachments"] = tuple(given["attachments"] or ())
    if errors:
        raise BadInput(errors)
    return DeliveryRequest(**fields)


def _wrong_types(given: Mapping[str, Any]) -> list[FieldError]:
    """An error for each value of another type than `send` takes; the checks of content rely on the types."""
    return [
        FieldError("from" if name == "sender" else name, f"must be {word}")
        for name, (kind, word) in _TYPES.items()
        if given[name] is not None and not isinstance(given[name], kind)
    ]


def parse_addresses(field: str, values: Addresses, errors: list[FieldError]) -> tuple[Address, ...]:
    """Parse a list of addresses; each invalid one is reported as `field[index]`."""
    parsed: list[Address] = []
    for index, value in enumerate([values] if isinstance(values, str) else values):
        try:
            parsed.append(parse_address(value))
        except ValueError as error:
            errors.append(FieldError(f"{field}[{index}]", str(error)))
        except TypeError:
            errors.append(FieldError(f"{field}[{index}]", "must be a text"))
    return tuple(parsed)


def _sender(value: str, errors: list[FieldError]) -> Address | None:
    try:
        return parse_address(value)
    except ValueError as error:
        errors.append(FieldError("from", str(error)))
        return None


def _lane(value: str, errors: list[FieldError]) -> Lane:
    try:
        return Lane(value)
    except ValueError:
        errors.append(FieldError("lane", f"must be one of {', '.join(Lane)}"))
        return Lane.TRANSACTIONAL
