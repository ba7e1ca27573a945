"""The rules of a request. Each request is checked once, here; the service accepts only a `CheckedRequest`."""

import binascii
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, NewType
from urllib.parse import urlsplit

from postroom.delivery.model import Channel, DeliveryRequest
from postroom.delivery.retry import LADDERS, LONGEST_PATIENCE, MOST_RETRIES, SHORTEST_PATIENCE
from postroom.delivery.rows import json_size
from postroom.errors import BadInput, FieldError
from postroom.post.address import Address
from postroom.post.header import MEDIA_TYPE, check_header, check_text
from postroom.post.mime import Attachment
from postroom.post.text import is_storable

MAX_RECIPIENTS = 100  # servers must take 100 per mail (RFC 5321); many refuse more
MAX_SUBJECT = 998  # the longest line of RFC 5322
MAX_BODY_BYTES = 5 * 1024 * 1024  # mail clients cut or refuse far shorter ones
MAX_ATTACHMENT_BYTES = 25 * 1024 * 1024  # all of them, before base64; most servers refuse larger mail
MAX_VARIABLES_BYTES = 256 * 1024  # of JSON, as Amazon SES allows; a chunk of 100 such mails is below POSTROOM_WORKER_MB
MAX_DATA_BYTES = 64 * 1024  # of JSON in headers, tags and custom data; servers refuse mail with as many headers
MAX_TAGS = 50  # each is counted by the statistics and stored with every attempt
MAX_SOURCE = 100  # a label of metrics and pages; send.sql has the same
MAX_KEY = 255  # as the HTTP header allows; an index entry stays small
MAX_FILENAME = 255  # the longest name on most file systems
MAX_URL = 2048  # longer ones fail in proxies and servers
MAX_DEPTH = 32
"""Nesting limit of JSON: templates read no deeper, and decoders have limits of their own."""

SIGN_IN_SOURCE = "operators"
"""Source of the mail with an operator's sign-in code."""

RESERVED_SOURCES = frozenset({"accounts", "admin", "campaigns", SIGN_IN_SOURCE, "outbox", "schedule"})
"""Sources of Postroom's own mail, and of the first administrator's.

An application that sent under one of them could use the idempotency keys of that mail. functions/bind_source.sql has
the same names.
"""

WAYS_IN = frozenset({"cli", "django", "email_queue", "postroom", "python", "sql"})
"""Default sources by way of acceptance, where no application is named."""

_YEARS = range(1970, 9999)
_LARGEST_NUMBER = 2**63 - 1  # 64 bits, as in check_send_data.sql

_TEMPLATE = re.compile(r"[a-z0-9][a-z0-9._-]{0,99}")
_LOCALE = re.compile(r"[A-Za-z]{2,8}([-_][A-Za-z0-9]{1,8}){0,3}")
_CONTENT_ID = re.compile(r"[!-;=?-~]{1,200}")
_LONGEST_EMAIL = 254  # RFC 5321, as in `address`
_URL = re.compile(r"https?://[!-~]+", re.IGNORECASE)
_NUMBER = re.compile(r"\d+|0x[0-9a-f]*", re.ASCII)
_ADDRESS = re.compile(r"(?:(?:25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)(?:\.(?!$)|$)){4}", re.ASCII)
_NOT_DATA = (
    f"must be JSON without NUL and lone surrogates, with numbers within 64 bits, nested at most {MAX_DEPTH} deep"
)
_TOO_MUCH_DATA = "must be at most {} bytes of JSON"
_CONTROL = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff]")
"""PostgreSQL's text holds neither NUL nor lone surrogates."""

Problems = Iterator[tuple[str, str]]

CheckedRequest = NewType("CheckedRequest", DeliveryRequest)
"""A valid request. The type is the proof: attachments of 25 MB are not decoded a second time."""


def check_request(request: DeliveryRequest) -> CheckedRequest:
    """Return the request as checked; raise `BadInput` that names every invalid field."""
    errors = [FieldError(field, message) for field, message in problems(request)]
    if errors:
        raise BadInput(errors)
    return CheckedRequest(request)


def check_batch(requests: Sequence[DeliveryRequest]) -> list[CheckedRequest]:
    """Check all requests; raise `BadInput` that names every invalid field, as `[3].to` in a batch of several."""
    prefixed = len(requests) > 1
    errors = [
        FieldError(f"[{index}].{field}" if prefixed else field, message)
        for index, request in enumerate(requests)
        for field, message in problems(request)
    ]
    if errors:
        raise BadInput(errors)
    return [CheckedRequest(request) for request in requests]


def check_source(source: str) -> str | None:
    """The reason why an application may not send under this source; None if it may."""
    if source in RESERVED_SOURCES:
        return f"{source} is reserved for Postroom; choose another, such as {source}:app"
    return None


def parse_tag(text: str | None) -> dict[str, str] | None:
    """A filter by tag, written `name=value`."""
    if text is None:
        return None
    name, equals, value = text.partition("=")
    if not (name and equals):
        raise BadInput.of("tag", "must be name=value")
    return {name: value}


def problems(request: DeliveryRequest) -> Problems:
    """Every violated rule, as field and message."""
    if request.channel is Channel.WEBHOOK:
        yield from _webhook(request)
    else:
        if not _has_one_recipient(request):  # nearly all have: a generator takes longer than the check
            yield from _recipients(request)
        if request.endpoint_id is not None:
            yield "endpoint_id", "is for webhooks only"
    yield from _content(request)
    if request.headers:
        yield from _headers(request)
    if request.attachments:
        yield from _attachments(request)
    yield from _bookkeeping(request)
    if request.send_at is not None or request.expires_at is not None:
        yield from _moments(request)
    if request.tags or request.custom_data or (request.variables and not is_plain_data(request.variables)):
        yield from _data(request)


def _has_one_recipient(request: DeliveryRequest) -> bool:
    """True if it has one valid address, and no other."""
    if len(request.to) != 1 or request.cc or request.bcc or request.reply_to or request.sender is not None:
        return False
    return _is_address(request.to[0])


def _recipients(request: DeliveryRequest) -> Problems:
    receiving = len(request.to) + len(request.cc) + len(request.bcc)
    if not request.to:
        yield "to", "at least one recipient is required"
    if receiving > MAX_RECIPIENTS:
        yield "to", f"at most {MAX_RECIPIENTS} recipients are allowed, counting cc and bcc"
    if len(request.reply_to) > MAX_RECIPIENTS:
        yield "reply_to", f"at most {MAX_RECIPIENTS} are allowed"
    named: tuple[tuple[str, tuple[Address, ...]], ...] = (
        ("to", request.to),
        ("cc", request.cc),
        ("bcc", request.bcc),
        ("reply_to", request.reply_to),
    )
    for field, addresses in named:
        for index, address in enumerate(addresses):
            if not _is_address(address):
                yield f"{field}[{index}]", "is not an e-mail address"
    if request.sender is not None and not _is_address(request.sender):
        yield "from", "is not an e-mail address"


def check_url(url: str) -> str | None:
    """The reason why a webhook cannot be posted to this URL; None if it can."""
    if len(url) > MAX_URL:
        return f"must be at most {MAX_URL} characters"
    try:
        parts = urlsplit(url)
        is_complete = _URL.fullmatch(url) is not None and bool(parts.hostname) and parts.port != 0
    except ValueError:  # an invalid port, or an unclosed bracket
        is_complete = False
    if not is_complete:
        return "is not an http or https URL"
    if "@" in parts.netloc:
        return "must not carry a user name or a password"
    if _is_disguised(parts.hostname or ""):
        return "must write an address in its usual notation, such as 192.0.2.1"
    return "must not have a fragment" if "#" in url else None


def _is_disguised(host: str) -> bool:
    """True for addresses in legacy notation: 2130706433, 0x7f.1 and 127.1 are all 127.0.0.1."""
    last = host.rstrip(".").rpartition(".")[2]
    return _NUMBER.fullmatch(last) is not None and ":" not in host and _ADDRESS.fullmatch(host) is None


def is_locale(value: str) -> bool:
    return _LOCALE.fullmatch(value) is not None


def is_template_id(value: str) -> bool:
    return _TEMPLATE.fullmatch(value) is not None


def _webhook(request: DeliveryRequest) -> Problems:
    """Check a webhook: one URL and one body; other fields are rejected."""
    if len(request.to) != 1 or request.cc or request.bcc or request.reply_to or request.sender:
        yield "to", "a webhook goes to exactly one URL"
    for address in request.to[:1]:
        if (reason := check_url(address.email)) is not None:
            yield "to[0]", reason
    if request.text is None:
        yield "text", "is required: the body that is posted"
    for field in ("html", "template", "attachments"):
        if getattr(request, field):
            yield field, "cannot be sent by webhook"


def _content(request: DeliveryRequest) -> Problems:
    if request.template is None and request.channel is Channel.EMAIL:
        if not request.subject or not request.subject.strip():
            yield "subject", "is required without a template"
        if request.text is None and request.html is None:
            yield "text", "text or html is required without a template"
    elif request.template is not None and not is_template_id(request.template):
        yield "template", "is not a template id"
    if request.locale is not None and not is_locale(request.locale):
        yield "locale", "is not a locale such as fr or fr-FR"
    if (request.subject, request.text, request.html) != (None, None, None):
        yield from _texts(request)


def _texts(request: DeliveryRequest) -> Problems:
    if request.template is not None:
        first = next(name for name in ("subject", "text", "html") if getattr(request, name) is not None)
        yield first, "cannot be given together with a template"
    if request.subject is not None and (len(request.subject) > MAX_SUBJECT or check_text(request.subject)):
        yield "subject", f"must be one line of at most {MAX_SUBJECT} characters"
    for name, body in (("text", request.text), ("html", request.html)):
        if body is not None and not is_storable(body):
            yield name, "contains a NUL or half a character"
        elif body is not None and len(body.encode()) > MAX_BODY_BYTES:
            yield name, f"must be at most {MAX_BODY_BYTES} bytes"


def _headers(request: DeliveryRequest) -> Problems:
    seen: set[str] = set()
    is_valid = True
    is_ours = request.endpoint_id is not None  # the outbox sets Content-Type and webhook-id itself
    for name, value in request.headers.items():
        if not _are_texts(name, value):
            reason: str | None = "must be a text"
        elif name.lower() in seen:
            reason = "is given twice"
        else:
            reason = check_text(value) if is_ours else check_header(name, value)
            seen.add(name.lower())
        if reason is not None:
            is_valid = False
            yield f"headers.{name}", reason
    if is_valid and not is_plain_data(request.headers) and json_size(request.headers) > MAX_DATA_BYTES:
        yield "headers", _TOO_MUCH_DATA.format(MAX_DATA_BYTES)


def _attachments(request: DeliveryRequest) -> Problems:
    total = 0
    for index, attachment in enumerate(request.attachments):
        where = f"attachments[{index}]"
        if not isinstance(attachment, Attachment) or not _are_texts(attachment.filename, attachment.content_type):
            yield where, "must be an Attachment with texts"
            continue
        if not is_label(attachment.filename, MAX_FILENAME):
            yield f"{where}.filename", f"must be 1 to {MAX_FILENAME} characters without control characters"
        if not MEDIA_TYPE.fullmatch(attachment.content_type):
            yield f"{where}.content_type", "is not a media type such as image/png or text/calendar; method=REQUEST"
        if attachment.content_id is not None and not _CONTENT_ID.fullmatch(attachment.content_id):
            yield f"{where}.content_id", "must be printable ASCII without spaces"
        size = _decoded_size(attachment.content)
        if size is None:
            yield f"{where}.content", "is not base64"
        total += size or 0
    if total > MAX_ATTACHMENT_BYTES:
        yield "attachments", f"must be at most {MAX_ATTACHMENT_BYTES} bytes together"


def _are_texts(*values: object) -> bool:
    return all(isinstance(value, str) for value in values)


def _decoded_size(content: str) -> int | None:
    """The number of bytes in base64, None if it is invalid; `a2b_base64` alone accepts surplus padding: `AAAA=`."""
    try:
        return (
            None if not _are_texts(content) or len(content) % 4 else len(binascii.a2b_base64(content, strict_mode=True))
        )
    except ValueError:
        return None


def _bookkeeping(request: DeliveryRequest) -> Problems:
    if not is_label(request.source, MAX_SOURCE):
        yield "source", f"must be 1 to {MAX_SOURCE} characters without control characters"
    if request.idempotency_key is not None and not is_label(request.idempotency_key, MAX_KEY):
        yield "idempotency_key", f"must be 1 to {MAX_KEY} characters without control characters"
    if request.ladder is not None and request.ladder not in LADDERS:
        yield "ladder", f"must be one of {', '.join(sorted(LADDERS))}"
    if request.max_retries is not None and not 0 <= request.max_retries <= MOST_RETRIES:
        yield "max_retries", f"must be between 0 and {MOST_RETRIES}"
    if request.give_up_after is not None and not SHORTEST_PATIENCE <= request.give_up_after <= LONGEST_PATIENCE:
        yield "give_up_after", "must be between 1 second and 30 days"
    if request.traceparent is not None and not is_label(request.traceparent, MAX_KEY):
        yield "traceparent", f"must be 1 to {MAX_KEY} characters"


def _moments(request: DeliveryRequest) -> Problems:
    for field in ("send_at", "expires_at"):
        moment: datetime | None = getattr(request, field)
        if moment is None:
            continue
        if moment.utcoffset() is None:
            yield field, "must have a time zone, such as 2030-01-31T09:00:00Z"
        elif moment.year not in _YEARS:
            yield field, f"must be between the years {_YEARS[0]} and {_YEARS[-1]}"


def _data(request: DeliveryRequest) -> Problems:
    if len(request.tags) > MAX_TAGS:
        yield "tags", f"at most {MAX_TAGS} are allowed"
    limits = (("variables", MAX_VARIABLES_BYTES), ("tags", MAX_DATA_BYTES), ("custom_data", MAX_DATA_BYTES))
    for field, most in limits:
        value = getattr(request, field)
        if not value or is_plain_data(value):
            continue
        if has_unstorable(value):
            yield field, _NOT_DATA
        elif json_size(value) > most:
            yield field, _TOO_MUCH_DATA.format(most)


def is_label(value: str, longest: int) -> bool:
    """True for a short text without control characters."""
    return 1 <= len(value) <= longest and not _has_control(value)


def _is_address(address: Address) -> bool:
    """True if it has the form of an address. Addresses from outside are parsed by `post.address.parse_address`."""
    if address.name is not None and _has_control(address.name):
        return False
    return "@" in address.email and len(address.email) <= _LONGEST_EMAIL and not _has_control(address.email)


def _has_control(text: str) -> bool:
    # Printable text has no such character, and is recognised in a tenth of the time.
    return not text.isprintable() and _CONTROL.search(text) is not None


def is_plain_data(value: Mapping[str, Any]) -> bool:
    """True for few printable names and texts, which most data is; it takes a third of the time of `has_unstorable`."""
    try:
        names, texts = "".join(value), "".join(value.values())
    except TypeError:  # another type than a text
        return False
    # In JSON a printable character takes at most four bytes, and a name with its text eight more.
    is_small = 4 * (len(names) + len(texts)) + 8 * len(value) <= MAX_DATA_BYTES
    return is_small and names.isprintable() and texts.isprintable()


def has_unstorable(value: Any, depth: int = 0) -> bool:
    """True if it contains a value that jsonb cannot return unchanged, or is nested too deeply."""
    match value:
        case str():
            return not is_storable(value)
        case None | bool():
            return False
        case int() | float():
            return not -_LARGEST_NUMBER <= value <= _LARGEST_NUMBER  # true for NaN as well
        case dict() | Mapping() if depth < MAX_DEPTH:
            return any(
                not isinstance(key, str) or not is_storable(key) or has_unstorable(part, depth + 1)
                for key, part in value.items()
            )
        case list() | tuple() if depth < MAX_DEPTH:
            return any(has_unstorable(part, depth + 1) for part in value)
        case _:
            return True
