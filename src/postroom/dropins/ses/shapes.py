"""Requests of SES's clients, and their conversion to deliveries."""

import binascii
import mimetypes
from collections.abc import Mapping, Sequence
from dataclasses import replace
from email.parser import BytesHeaderParser
from email.policy import compat32
from typing import Any

import msgspec

from postroom.delivery.check import CheckedRequest
from postroom.delivery.shapes import AttachmentBody, DeliveryBody, request_from
from postroom.dropins.endpoint import decode, once
from postroom.errors import BadInput
from postroom.intake.media_type import plain_media_type
from postroom.intake.parsing import RequestCopies
from postroom.intake.smtp.submission import SubmittedEnvelope, read_submission
from postroom.post.address import Address, parse_address, split_addresses
from postroom.runtime.record import Shape

_TAGS = "x-ses-message-tags"
_SPOKEN_TO_SES = frozenset(
    {
        _TAGS,
        "x-ses-configuration-set",
        "x-ses-from-arn",
        "x-ses-return-path-arn",
        "x-ses-source-arn",
        "x-ses-tenant",
    }
)
"""Headers of a whole message that SES reads and takes away: what `SendEmail` has fields for."""


class _Aws(Shape, frozen=True, kw_only=True, rename="pascal"):
    """AWS writes its names LikeThis."""


class Text(_Aws, frozen=True, kw_only=True):
    """A text; its charset is UTF-8 here, whatever it says."""

    data: str
    charset: str | None = None


class Body(_Aws, frozen=True, kw_only=True):
    """The bodies of a message."""

    text: Text | None = None
    html: Text | None = None


class SesHeader(_Aws, frozen=True, kw_only=True):
    """One header."""

    name: str
    value: str


class File(_Aws, frozen=True, kw_only=True):
    """A file in base64."""

    raw_content: str
    file_name: str
    content_type: str | None = None
    content_id: str | None = None
    content_disposition: str | None = None
    content_description: str | None = None
    content_transfer_encoding: str | None = None


class Simple(_Aws, frozen=True, kw_only=True):
    """A message in parts."""

    subject: Text
    body: Body
    headers: list[SesHeader] = msgspec.field(default_factory=list)
    attachments: list[File] = msgspec.field(default_factory=list)


class Raw(_Aws, frozen=True, kw_only=True):
    """A whole message in base64."""

    data: str


class SesTemplate(_Aws, frozen=True, kw_only=True):
    """One of our templates, by its name; the data are JSON in a string."""

    template_name: str
    template_data: str = "{}"
    headers: list[SesHeader] = msgspec.field(default_factory=list)
    attachments: list[File] = msgspec.field(default_factory=list)


class SesContent(_Aws, frozen=True, kw_only=True):
    """One of three ways to say what is sent."""

    simple: Simple | None = None
    raw: Raw | None = None
    template: SesTemplate | None = None


class Destination(_Aws, frozen=True, kw_only=True):
    """The recipients."""

    to_addresses: list[str] = msgspec.field(default_factory=list)
    cc_addresses: list[str] = msgspec.field(default_factory=list)
    bcc_addresses: list[str] = msgspec.field(default_factory=list)


class SendEmail(_Aws, frozen=True, kw_only=True):
    """The request of `SendEmail`."""

    content: SesContent
    destination: Destination | None = None
    from_email_address: str | None = None
    reply_to_addresses: list[str] = msgspec.field(default_factory=list)
    email_tags: list[SesHeader] = msgspec.field(default_factory=list)
    configuration_set_name: str | None = None
    endpoint_id: str | None = None
    tenant_name: str | None = None
    from_email_address_identity_arn: str | None = None
    feedback_forwarding_email_address: str | None = None
    feedback_forwarding_email_address_identity_arn: str | None = None


def requests_of(raw: bytes, *, source: str, idempotency_key: str | None, traceparent: str | None) -> RequestCopies:
    """The deliveries that a `SendEmail` asks for, each passing every rule; `BadInput` names what is wrong."""
    email = decode(raw, SendEmail)
    return RequestCopies.of(_requests(email, source=source, idempotency_key=idempotency_key, traceparent=traceparent))


def _requests(
    email: SendEmail, *, source: str, idempotency_key: str | None, traceparent: str | None
) -> list[CheckedRequest]:
    ways = [way for way in (email.content.simple, email.content.raw, email.content.template) if way is not None]
    if len(ways) != 1:
        raise BadInput.of("Content", "must be one of Simple, Raw and Template")
    if isinstance(ways[0], Raw):
        return _raw(email, ways[0], source=source, key=idempotency_key, traceparent=traceparent)
    shared: dict[str, Any] = {
        "reply_to": email.reply_to_addresses,
        "sender": email.from_email_address,
        "headers": once("Headers", ((header.name, header.value) for header in ways[0].headers)),
        "attachments": [_attachment(file) for file in ways[0].attachments],
        "tags": _tags(email),
        **_content(ways[0]),
    }
    many = [DeliveryBody(**who, **shared) for who in _recipients(email.destination or Destination())]
    return [
        request_from(
            body,
            source=source,
            idempotency_key=f"{idempotency_key}/{index}" if idempotency_key and len(many) > 1 else idempotency_key,
            traceparent=traceparent,
        )
        for index, body in enumerate(many)
    ]


def _recipients(to: Destination) -> list[dict[str, Any]]:
    """The recipients by field; without To and Cc, each blind copy is a separate mail, so that none sees another."""
    if to.to_addresses:
        return [{"to": to.to_addresses, "cc": to.cc_addresses, "bcc": to.bcc_addresses}]
    if to.cc_addresses or not to.bcc_addresses:
        return [{"to": to.cc_addresses, "bcc": to.bcc_addresses}]
    return [{"to": [address]} for address in to.bcc_addresses]


def _content(way: Simple | SesTemplate) -> dict[str, Any]:
    if isinstance(way, Simple):
        text, html = way.body.text, way.body.html
        return {
            "subject": way.subject.data,
            "text": text.data if text else None,
            "html": html.data if html else None,
        }
    try:
        variables = msgspec.json.decode(way.template_data, type=dict[str, Any])
    except (msgspec.MsgspecError, RecursionError, UnicodeError):
        raise BadInput.of("Content.Template.TemplateData", "must be a JSON object") from None
    return {"template": way.template_name, "variables": variables}


def _attachment(file: File) -> AttachmentBody:
    guessed = mimetypes.guess_type(file.file_name)[0] or "application/octet-stream"
    return AttachmentBody(
        filename=file.file_name,
        content_type=plain_media_type(file.content_type or guessed),
        content=file.raw_content,
        content_id=file.content_id.strip("<>") if file.content_id else None,
    )


def _tags(email: SendEmail) -> dict[str, str]:
    return once("EmailTags", ((tag.name, tag.value) for tag in email.email_tags))


def _raw(email: SendEmail, raw: Raw, *, source: str, key: str | None, traceparent: str | None) -> list[CheckedRequest]:
    """A whole message: its headers complete the destination, and its From is the author."""
    with BadInput.naming("Content.Raw.Data", "is not base64"):
        message = binascii.a2b_base64(raw.data)
    found = read_submission(message, _envelope(email, message), source=source)
    many = len(found) > 1
    answered = tuple(_address("ReplyToAddresses", each) for each in email.reply_to_addresses)
    return [
        replace(
            request,
            idempotency_key=f"{key}/{index}" if key is not None and many else key,
            traceparent=traceparent,
            reply_to=answered or request.reply_to,
            headers={name: value for name, value in request.headers.items() if name.lower() not in _SPOKEN_TO_SES},
            tags={**request.tags, **_header_tags(request.headers), **_tags(email)},
        )
        for index, request in enumerate(found)
    ]


def _header_tags(headers: Mapping[str, str]) -> dict[str, str]:
    """The labels that a whole message carries in a header: `name=value, name=value`."""
    written = next((value for name, value in headers.items() if name.lower() == _TAGS), "")
    pairs = [pair.partition("=") for pair in written.split(",") if pair.strip()]
    if not all(equals for _name, equals, _value in pairs):
        raise BadInput.of("X-SES-MESSAGE-TAGS", "must be name=value, separated by commas")
    return once("X-SES-MESSAGE-TAGS", ((name.strip(), value.strip()) for name, _equals, value in pairs))


def _envelope(email: SendEmail, message: bytes) -> SubmittedEnvelope:
    to = email.destination or Destination()
    given = [*to.to_addresses, *to.cc_addresses, *to.bcc_addresses]
    headers = [(name, str(value)) for name, value in BytesHeaderParser(policy=compat32).parsebytes(message).raw_items()]
    if not given:
        given = _named(headers, "to", "cc", "bcc")
    sender = [email.from_email_address] if email.from_email_address else _named(headers, "from")
    if not given:
        raise BadInput.of("Destination", "has no recipient, and neither has the message")
    if not sender:
        raise BadInput.of("FromEmailAddress", "is required: the message has no From")
    written = _address("FromEmailAddress", sender[0])
    return SubmittedEnvelope(written.email, [_address("Destination", each).email for each in given])


def _named(headers: Sequence[tuple[str, str]], *fields: str) -> list[str]:
    values = [" ".join(value.split()) for name, value in headers if name.lower() in fields]
    with BadInput.naming("Content"):
        return [address for _, address in split_addresses(values) if address]


def _address(field: str, written: str) -> Address:
    try:
        return parse_address(written)
    except ValueError as error:
        raise BadInput.of(field, f"{written[:100]!r}: {error}") from None
