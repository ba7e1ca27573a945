"""Convert an envelope and a message to delivery requests. Pure.

The envelope decides the recipients. An envelope address that is also in To or Cc is shown there, with its display name;
any other is a blind copy. If no envelope address is in To or Cc, each recipient gets a separate delivery: in one
delivery, they would see each other.

Relays split a message with many recipients into several transactions, and each is a separate submission. So an
`Idempotency-Key` is used alone only if the envelope has exactly the addresses of To and Cc. Otherwise the recipients
are part of the key; they always are if the key is derived from the Message-ID.
"""

import hashlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from postroom.delivery.check import CheckedRequest, check_request
from postroom.delivery.model import DeliveryRequest
from postroom.errors import BadInput
from postroom.inbox.reader import decode_words
from postroom.intake.parsing import RequestCopies
from postroom.intake.smtp.headers import SubmissionHeaders, is_mark, read_marks
from postroom.intake.smtp.message import Headers, Parts, read_parts
from postroom.post.address import Address, normalize, parse_address, split_addresses
from postroom.post.header import check_header, is_structured

NO_SUBJECT = "(no subject)"
_TRACE = frozenset({"x-originating-ip", "x-received"})
"""Trace headers, which relays may write differently when they repeat a message."""

# A fast path: most headers contain one simple address, and the standard library's grammar is thirty times slower.
_PLAIN = re.compile(r"(?:(?P<name>[A-Za-z0-9 ]*) ?<)?(?P<email>[A-Za-z0-9._+-]+@[A-Za-z0-9.-]+)(?(name)>)")
MOST_COPIES_BYTES = 100 * 1024 * 1024
"""Limit of the total size of one message's separate deliveries."""


@dataclass(frozen=True, slots=True)
class SubmittedEnvelope:
    """The sender and the recipients of a submission, as validated addresses."""

    sender: str | None  # None: a bounce report; its From header must name the author
    recipients: Sequence[str]


def read_submission(raw: bytes, envelope: SubmittedEnvelope, *, source: str) -> list[CheckedRequest]:
    """Parse and validate the deliveries of a message; raises `BadInput`."""
    parts = read_parts(raw)
    marks = read_marks(parts.headers)
    visible = DeliveryRequest(
        **recipients_of(parts.headers, envelope.recipients),
        reply_to=tuple(_named(parts.headers, "reply-to", strict=True).values()),
        sender=_sender(parts.headers, envelope),
        **_content(parts, marks),
        headers=dict(_kept(parts.headers)),
        tags=marks.tags,
        custom_data={"campaign": marks.campaign} if marks.campaign else None,
        lane=marks.lane,
        source=source,
        idempotency_key=_key(parts.headers, marks, envelope.recipients),
    )
    requests = list(_everybody_alone(visible)) if not visible.to else [visible]
    if len(requests) * len(raw) > MOST_COPIES_BYTES:
        raise BadInput.of("message", "is too large for so many blind copies")
    return [check_request(request) for request in requests]


def read_copies(raw: bytes, envelope: SubmittedEnvelope, *, source: str) -> RequestCopies:
    """The same, as `RequestCopies` for `read_aside`."""
    return RequestCopies.of(read_submission(raw, envelope, source=source))


def _content(parts: Parts, marks: SubmissionHeaders) -> dict[str, Any]:
    if marks.template is not None:
        chosen = {"template": marks.template, "variables": marks.variables, "locale": marks.locale}
        return {**chosen, "attachments": parts.attachments}
    subject = " ".join(decode_words(_first(parts.headers, "subject") or "").split())
    return {
        "subject": subject or NO_SUBJECT,
        "text": parts.text,
        "html": parts.html,
        "attachments": parts.attachments,
    }


def _sender(headers: Headers, envelope: SubmittedEnvelope) -> Address:
    """The author: From; the envelope sender if From is missing or a bare name such as cron's `root`."""
    written = _first(headers, "from") or ""
    if found := _named(headers, "from"):
        return next(iter(found.values()))
    if "@" in written:
        raise BadInput.of("From", "contains no e-mail address")
    if envelope.sender is None:
        raise BadInput.of("From", "is required: the envelope names no sender")
    return _address(envelope.sender)


def recipients_of(headers: Headers, envelope: Sequence[str]) -> dict[str, Any]:
    to, cc = _named(headers, "to"), _named(headers, "cc")
    receiving = {normalize(address.email): address for address in map(_address, envelope)}
    shown_to = tuple(to[email] for email in to if email in receiving)
    shown_cc = tuple(cc[email] for email in cc if email in receiving and email not in to)
    blind = tuple(address for email, address in receiving.items() if email not in to and email not in cc)
    if not shown_to:  # a delivery needs a To; Cc recipients are equally visible
        return {"to": shown_cc, "bcc": blind}
    return {"to": shown_to, "cc": shown_cc, "bcc": blind}


def _everybody_alone(request: DeliveryRequest) -> Iterator[DeliveryRequest]:
    for address in request.bcc:
        key = request.idempotency_key
        if key is not None and len(request.bcc) > 1:
            key = _digest(key, normalize(address.email))
        yield replace(request, to=(address,), bcc=(), idempotency_key=key)


def _key(headers: Headers, marks: SubmissionHeaders, recipients: Sequence[str]) -> str | None:
    key = key_of(marks, _first(headers, "message-id"), recipients)
    if key is None or marks.idempotency_key is None:
        return key
    receiving = {normalize(_address(each).email) for each in recipients}
    named = {*_named(headers, "to"), *_named(headers, "cc")}
    if len(receiving) > 1 and not named & receiving:
        return key  # only blind copies: each gets a key derived from this one
    return key if named == receiving else _digest(key, *sorted(receiving))


def key_of(marks: SubmissionHeaders, message_id: str | None, recipients: Sequence[str]) -> str | None:
    """The idempotency key of a message: its own, or one derived from its Message-ID and its recipients."""
    if marks.idempotency_key is not None:
        return marks.idempotency_key
    identity = " ".join((message_id or "").split())
    return _digest(identity, *sorted(map(normalize, recipients))) if identity else None


def _digest(*parts: str) -> str:
    joined = "\n".join(parts).encode("utf-8", "surrogateescape")
    return f"submission:{hashlib.sha256(joined).hexdigest()}"


def _named(headers: Headers, field: str, *, strict: bool = False) -> dict[str, Address]:
    """The addresses of a header by their comparable form; invalid ones are skipped, or rejected if `strict`."""
    raw = [" ".join(value.split()) for name, value in headers if name.lower() == field and value.strip()]
    if len(raw) == 1 and (plain := _PLAIN.fullmatch(raw[0])) is not None:
        pairs = [(plain["name"] or "", plain["email"])]
    else:
        with BadInput.naming(field.title()):
            pairs = split_addresses(raw)
    found: dict[str, Address] = {}
    for name, email in pairs:
        shown = "".join(character for character in decode_words(name) if character.isprintable()).strip()
        try:
            address = parse_address(_utf8(email))
        except ValueError:
            if strict:
                raise BadInput.of(field.title(), "contains an invalid e-mail address") from None
            continue
        found.setdefault(normalize(address.email), Address(address.email, shown[:255] or None))
    return found


def _kept(headers: Headers) -> Iterator[tuple[str, str]]:
    """The headers to keep: the first of each name that a caller may set, if its value can be encoded."""
    seen: set[str] = set()
    for name, raw in headers:
        lowered = name.lower()
        value = " ".join(raw.split()) if is_structured(lowered) else decode_words(raw).strip()
        if lowered in seen or lowered in _TRACE or is_mark(name) or check_header(name, value) is not None:
            continue
        seen.add(lowered)
        yield name, value


def _first(headers: Headers, field: str) -> str | None:
    return next((value for name, value in headers if name.lower() == field), None)


def _address(written: str) -> Address:
    return parse_address(_utf8(written))


def _utf8(written: str) -> str:
    """Decode non-ASCII bytes as UTF-8."""
    return written.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
