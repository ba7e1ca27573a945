"""From the bytes of a submitted message to its parts. Hostile input; nothing here raises but `BadInput`.

The standard library's parser does the work, with its lenient policy: what mail programs really send is parsed as well
as it can be. Headers are read raw, so that UTF-8 in them (RFC 6532) survives.
"""

import base64
import mimetypes
import re
from collections.abc import Iterator
from dataclasses import dataclass
from email.message import Message
from email.parser import BytesParser
from email.policy import compat32
from email.utils import collapse_rfc2231_value

from postroom.delivery.check import MAX_FILENAME
from postroom.delivery.model import Attachment
from postroom.errors import BadInput
from postroom.transports.capture.reader import decode_words

MOST_PARTS = 1000
DEEPEST = 50
BROKEN_BY_COMPOSING = frozenset({"multipart/signed", "multipart/encrypted", "application/pkcs7-mime"})
"""What is signed or encrypted as a whole would not be, once it is composed anew."""

_CONTENT_ID = re.compile(r"[!-;=?-~]{1,200}")
_CONTENT_TYPE = re.compile(r"[a-z0-9!#$&^_.+-]{1,64}/[a-z0-9!#$&^_.+-]{1,64}")
_CONTROL = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff]")
_BODIES = ("text/plain", "text/html")

Headers = tuple[tuple[str, str], ...]
"""Names and raw values, in the order they came."""


@dataclass(frozen=True, slots=True)
class Parts:
    """A message taken apart."""

    headers: Headers
    text: str | None
    html: str | None
    attachments: tuple[Attachment, ...]


def read_parts(raw: bytes) -> Parts:
    """Headers, the first text and HTML bodies, and everything else as files."""
    try:
        message = BytesParser(policy=compat32).parsebytes(raw)
        leaves = list(_leaves(message, 0))
    except RecursionError:
        raise BadInput.of("message", "is nested too deeply") from None
    bodies: dict[str, str] = {}
    files: list[Message] = []
    for leaf in leaves:
        _mend_headers(leaf)
        kind = leaf.get_content_type()
        if kind in _BODIES and kind not in bodies and not _is_file(leaf):
            bodies[kind] = _text(leaf)
        else:
            files.append(leaf)
    html = bodies.get("text/html")
    text = bodies.get("text/plain")
    attachments = tuple(_attachment(leaf, index, html or "") for index, leaf in enumerate(files, start=1))
    headers = tuple((name, str(value)) for name, value in message.raw_items())
    return Parts(headers, "" if text is None and html is None else text, html, attachments)


def _leaves(part: Message, depth: int) -> Iterator[Message]:
    """The parts that hold something; a message inside the message is one of them and stays whole."""
    if part.get_content_type() in BROKEN_BY_COMPOSING:
        raise BadInput.of("message", "is signed or encrypted as a whole, which does not survive being composed anew")
    if depth > DEEPEST:
        raise BadInput.of("message", "is nested too deeply")
    if not part.is_multipart() or part.get_content_maintype() == "message":
        yield part
        return
    children = part.get_payload()
    assert isinstance(children, list)
    if len(children) > MOST_PARTS:
        raise BadInput.of("message", f"has more than {MOST_PARTS} parts")
    for child in children:
        assert isinstance(child, Message)
        yield from _leaves(child, depth + 1)


def _mend_headers(part: Message) -> None:
    """Give headers that hold raw UTF-8 their characters back; the parser would answer with replacements."""
    for name, value in list(part.raw_items()):
        if name.lower().startswith("content-") and not str(value).isascii():
            part.replace_header(name, str(value).encode("utf-8", "surrogateescape").decode("utf-8", "replace"))


def _is_file(part: Message) -> bool:
    return part.get_content_disposition() == "attachment" or part.get_filename() is not None


def _content(part: Message) -> bytes:
    if part.is_multipart():  # a forwarded message, or a report about one
        children = part.get_payload()
        return b"".join(child.as_bytes() for child in children if isinstance(child, Message))
    content = part.get_payload(decode=True)
    return content if isinstance(content, bytes) else b""


def _text(part: Message) -> str:
    content = _content(part)
    try:
        text = content.decode(part.get_content_charset() or "utf-8", "replace")
    except (LookupError, ValueError):
        text = content.decode("utf-8", "replace")
    # Some charsets can spell half characters; the database cannot.
    text = text.encode("utf-8", "surrogatepass").decode("utf-8", "replace")
    return text.replace("\r\n", "\n").replace("\x00", "")


def _attachment(part: Message, number: int, html: str) -> Attachment:
    kind = part.get_content_type().lower()
    if not _CONTENT_TYPE.fullmatch(kind):
        kind = "application/octet-stream"
    return Attachment(
        filename=_filename(part, number, kind),
        content_type=kind,
        content=base64.b64encode(_content(part)).decode(),
        content_id=_content_id(part, html),
    )


def _filename(part: Message, number: int, kind: str) -> str:
    given = part.get_filename()
    name = _CONTROL.sub("", decode_words(collapse_rfc2231_value(given))).strip() if given else ""
    return name[-MAX_FILENAME:] or f"attachment-{number}{mimetypes.guess_extension(kind) or '.bin'}"


def _content_id(part: Message, html: str) -> str | None:
    """Only if the HTML shows it: many programs give every file an id, and not every file is a picture in the text."""
    given = str(part.get("Content-ID", "")).strip().strip("<>")
    return given if _CONTENT_ID.fullmatch(given) and f"cid:{given}" in html else None
