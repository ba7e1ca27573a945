"""Convert a Django message to deliveries."""

import base64
import mimetypes
from collections.abc import Iterable, Iterator, Mapping
from email.message import Message
from email.utils import getaddresses, parseaddr, quote
from typing import Any

from postroom.delivery.shapes import AttachmentBody, DeliveryBody
from postroom.errors import BadInput
from postroom.intake.media_type import OCTETS, media_type_of, plain_media_type
from postroom.intake.smtp.headers import SubmissionHeaders, is_mark, read_marks
from postroom.intake.smtp.message import content_of
from postroom.intake.smtp.submission import NO_SUBJECT, key_of, recipients_of
from postroom.post.address import Address

Keyed = tuple[DeliveryBody, str | None]
"""A delivery and its idempotency key."""

_SET_BY_US = ("date", "sender")
"""Headers that Postroom writes itself; values from the site are dropped."""

_CALENDAR = "text/calendar"


def deliveries_of(message: Any) -> Iterator[Keyed]:
    """The deliveries of an `EmailMessage`, each with its idempotency key; none if it has no recipients.

    If there are only blind copies, each gets a separate delivery: in one delivery, they would see each other.
    """
    marks = read_marks(tuple((name, str(value)) for name, value in message.extra_headers.items()))
    to, cc, bcc = _recipients(message)
    shared = {**_content(message, marks), **_headers(message), "lane": marks.lane, "tags": marks.tags}
    if marks.campaign:
        shared["custom_data"] = {"campaign": marks.campaign}
    key = key_of(marks, _given(message, "message-id"), [_email(written) for written in (*to, *cc, *bcc)])
    if to or cc:
        # A delivery needs a To; Cc recipients are equally visible.
        yield DeliveryBody(to=to or cc, cc=cc if to else [], bcc=bcc, **shared), key
        return
    for index, address in enumerate(bcc):
        own = f"{key}/{index}" if key is not None and len(bcc) > 1 else key
        yield DeliveryBody(to=[address], **shared), own


def _recipients(message: Any) -> tuple[list[Any], list[Any], list[Any]]:
    """The recipients by field. A `To` or `Cc` header decides who is shown, as in Django; the others are blind."""
    to, cc, bcc = list(message.to), list(message.cc), list(message.bcc)
    shown = {"to": _given(message, "to"), "cc": _given(message, "cc")}
    if shown == {"to": None, "cc": None}:
        return to, cc, bcc
    headers = tuple(
        (name, ", ".join(map(str, listed)) if written is None else written)
        for (name, written), listed in zip(shown.items(), (to, cc), strict=True)
    )
    with BadInput.naming("to"):
        found = recipients_of(headers, [_email(written) for written in (*to, *cc, *bcc)])
    return _written(found["to"]), _written(found.get("cc", ())), _written(found["bcc"])


def _written(addresses: Iterable[Address]) -> list[Any]:
    return [_mailbox(each.name, each.email) for each in addresses]


def _mailbox(name: str | None, email: str) -> str:
    # Not `formataddr`: it would write a name in encoded words, which are read as they stand here.
    return f'"{quote(name)}" <{email}>' if name else email


def _email(written: Any) -> str:
    """The bare address; an invalid one is rejected later, by name."""
    return parseaddr(str(written))[1] or str(written)


def _given(message: Any, wanted: str) -> str | None:
    """A header that the site wrote itself: one that Django makes up is another each time."""
    return next((str(value) for name, value in message.extra_headers.items() if name.lower() == wanted), None)


def _headers(message: Any) -> dict[str, Any]:
    """The author, the reply addresses and the headers to keep."""
    given = {name: str(value) for name, value in message.extra_headers.items() if not is_mark(name)}
    for name in ("to", "cc", *_SET_BY_US):
        _take(given, name)
    sender = _take(given, "from") or message.from_email
    answered = _take(given, "reply-to")
    reply_to = [_mailbox(*pair) for pair in getaddresses([answered])] if answered else list(message.reply_to)
    return {"sender": str(sender) if sender else None, "reply_to": reply_to, "headers": given}


def _take(headers: dict[str, str], wanted: str) -> str | None:
    name = next((name for name in headers if name.lower() == wanted), None)
    return headers.pop(name) if name is not None else None


def _content(message: Any, marks: SubmissionHeaders) -> dict[str, Any]:
    attachments = [_attachment(file, index) for index, file in enumerate(message.attachments)]
    attachments += [_attachment(("invite.ics", *each), index) for index, each in enumerate(_calendars(message))]
    if marks.template is not None:
        chosen = {"template": marks.template, "variables": marks.variables, "locale": marks.locale}
        return {**chosen, "attachments": attachments}
    bodies = _bodies(message)
    return {
        "subject": str(message.subject) or NO_SUBJECT,
        "text": bodies.get("text/plain"),
        "html": bodies.get("text/html"),
        "attachments": attachments,
    }


def _bodies(message: Any) -> Mapping[str, str]:
    bodies = {f"text/{message.content_subtype}": str(message.body)}
    for index, alternative in enumerate(getattr(message, "alternatives", None) or ()):
        content, kind = alternative
        if _is_calendar(kind):
            continue
        if kind not in ("text/plain", "text/html"):
            raise BadInput.of(f"alternatives[{index}]", f"{kind} is not sent: a mail is text, HTML or both")
        if kind in bodies and bodies[kind].strip():
            raise BadInput.of(f"alternatives[{index}]", f"there is a body of {kind} already")
        bodies[kind] = content.decode() if isinstance(content, bytes) else str(content)
    if unknown := set(bodies) - {"text/plain", "text/html"}:
        raise BadInput.of("content_subtype", f"{', '.join(unknown)} is not sent: a mail is text, HTML or both")
    if "text/html" in bodies and not bodies.get("text/plain", "").strip():
        bodies.pop("text/plain", None)  # derived from the HTML when the mail is composed
    return bodies


def _calendars(message: Any) -> list[tuple[Any, str]]:
    """Invitations beside the text. They travel as files, and their type still says `method=REQUEST`."""
    given = (tuple(each) for each in getattr(message, "alternatives", None) or ())
    return [(content, kind) for content, kind in given if _is_calendar(kind)]


def _is_calendar(kind: str) -> bool:
    return kind.partition(";")[0].strip().lower() == _CALENDAR


def _attachment(file: Any, index: int) -> AttachmentBody:
    if isinstance(file, Message):
        return _from_part(file, index)
    filename, content, kind = file
    kind = plain_media_type(kind or mimetypes.guess_type(filename or "")[0] or OCTETS)
    return AttachmentBody(
        filename=filename or _name(kind, index),
        content_type=kind,
        content=base64.b64encode(_octets(content, kind)).decode(),
    )


def _from_part(part: Message, index: int) -> AttachmentBody:
    """A MIME part that the site built itself, an image with a Content-ID for example."""
    content_id = str(part.get("Content-ID", "")).strip().strip("<>")
    kind = media_type_of(part)
    # A multipart needs its headers for the boundary; an attached message does not need those of the part around it.
    content = part.as_bytes() if part.get_content_maintype() == "multipart" else content_of(part)
    return AttachmentBody(
        filename=part.get_filename() or _name(kind, index),
        content_type=kind,
        content=base64.b64encode(content).decode(),
        content_id=content_id or None,
    )


def _name(kind: str, index: int) -> str:
    return f"attachment-{index + 1}{mimetypes.guess_extension(kind.partition(';')[0]) or '.bin'}"


def _octets(content: Any, kind: str) -> bytes:
    if isinstance(content, bytes | bytearray | memoryview):
        return bytes(content)
    if isinstance(content, Message):
        return content.as_bytes()
    if hasattr(content, "message"):  # a Django message, forwarded
        return bytes(content.message().as_bytes())
    return _encoded(str(content), kind)


def _encoded(text: str, kind: str) -> bytes:
    """Text in the charset that its type names, if it can be written in it."""
    part = Message()
    part["Content-Type"] = kind
    try:
        return text.encode(part.get_content_charset() or "utf-8")
    except (LookupError, ValueError):
        raise BadInput.of("attachments", f"a text cannot be written as {kind}") from None
