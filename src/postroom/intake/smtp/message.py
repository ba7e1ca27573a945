"""Parse the bytes of a submitted message into its parts. Hostile input; only `BadInput` is raised.

The standard library's parser is used with its lenient policy, because many mail programs send invalid MIME. Headers are
read raw, so that UTF-8 in them (RFC 6532) survives. For text with a wrong, unknown or missing charset, the likely
charset is guessed.
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
from urllib.parse import unquote

from postroom.delivery.check import MAX_FILENAME
from postroom.errors import BadInput
from postroom.inbox.reader import decode_octets, decode_text, decode_words
from postroom.intake.media_type import media_type_of
from postroom.post.mime import Attachment
from postroom.post.mime_guard import find_excess

MOST_PARTS = 1000  # real mail has less than a hundred; parsing time grows with them
DEEPEST = 50  # levels of parts; the parser is recursive
BROKEN_BY_COMPOSING = frozenset({"multipart/signed", "multipart/encrypted", "application/pkcs7-mime"})
"""Types of messages signed or encrypted as a whole: composing them again would break the signature."""

_CONTENT_ID = re.compile(r"[!-;=?-~]{1,200}")
_SHOWN_ID = re.compile(r"""cid:([^\s"'<>)]+)""", re.IGNORECASE)
_CONTROL = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff]")
_BODIES = ("text/plain", "text/html")
_AMP = "text/x-amp-html"

Headers = tuple[tuple[str, str], ...]
"""Names and raw values, in the order of the message."""


@dataclass(frozen=True, slots=True)
class Parts:
    """A parsed message."""

    headers: Headers
    text: str | None
    html: str | None
    attachments: tuple[Attachment, ...]


def read_parts(raw: bytes) -> Parts:
    """Read the headers, the first text and HTML bodies, and all other parts as attachments."""
    if (excess := find_excess(raw)) is not None:
        raise BadInput.of("message", excess)
    message = BytesParser(policy=compat32).parsebytes(raw)
    leaves = list(_leaves(message, 0))
    bodies: dict[str, str] = {}
    files: list[Message] = []
    for leaf in leaves:
        _mend_headers(leaf)
        kind = leaf.get_content_type()
        if kind in _BODIES and kind not in bodies and not _is_file(leaf):
            bodies[kind] = _text(leaf)
        elif kind == _AMP and not _is_file(leaf):
            raise BadInput.of("message", f"has a body of {_AMP}, which is not sent: a mail is text, HTML or both")
        else:
            files.append(leaf)
    html = bodies.get("text/html")
    text = bodies.get("text/plain")
    # A cid URL may percent-encode any character (RFC 2392): `cid:a%40b` refers to the part `a@b`.
    shown = frozenset(map(unquote, _SHOWN_ID.findall(html or "")))
    attachments = tuple(
        _attachment(leaf, index, html=html or "", shown=shown) for index, leaf in enumerate(files, start=1)
    )
    headers = tuple((name, str(value)) for name, value in message.raw_items())
    return Parts(headers, "" if text is None and html is None else text, html, attachments)


def _leaves(part: Message, depth: int) -> Iterator[Message]:
    """The leaf parts; an attached message counts as one leaf."""
    if part.get_content_type() in BROKEN_BY_COMPOSING:
        raise BadInput.of("message", "is signed or encrypted as a whole; composing it again would break that")
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
    """Decode raw octets in headers; the parser would return replacement characters."""
    for name, value in list(part.raw_items()):
        if name.lower().startswith("content-") and not str(value).isascii():
            part.replace_header(name, decode_octets(str(value)))


def _is_file(part: Message) -> bool:
    return part.get_content_disposition() == "attachment" or part.get_filename() is not None


def content_of(part: Message) -> bytes:
    """The octets of a part; for an attached message, the message without the part's headers."""
    if part.is_multipart():  # a forwarded message, or a report about one
        children = part.get_payload()
        return b"".join(child.as_bytes() for child in children if isinstance(child, Message))
    content = part.get_payload(decode=True)
    return content if isinstance(content, bytes) else b""


def _text(part: Message) -> str:
    text = decode_text(content_of(part), part.get_content_charset())
    return text.replace("\r\n", "\n").replace("\x00", "")


def _attachment(part: Message, number: int, *, html: str, shown: frozenset[str]) -> Attachment:
    kind = media_type_of(part)
    return Attachment(
        filename=_filename(part, number, kind.partition(";")[0]),
        content_type=kind,
        content=base64.b64encode(content_of(part)).decode(),
        content_id=_content_id(part, html, shown),
    )


def _filename(part: Message, number: int, kind: str) -> str:
    given = part.get_filename()
    name = _CONTROL.sub("", decode_words(collapse_rfc2231_value(given))).strip() if given else ""
    return name[-MAX_FILENAME:] or f"attachment-{number}{mimetypes.guess_extension(kind) or '.bin'}"


def _content_id(part: Message, html: str, shown: frozenset[str]) -> str | None:
    """The Content-ID if the HTML refers to it: many programs give every attachment an id, not only inline images."""
    given = str(part.get("Content-ID", "")).strip().strip("<>")
    return given if _CONTENT_ID.fullmatch(given) and (given in shown or f"cid:{given}" in html) else None
