"""Read captured messages with the standard library's parser.

Any bytes can be read: an unknown charset or a broken encoding never raises.
"""

import base64
import binascii
import re
from collections.abc import Sequence
from dataclasses import dataclass
from email import message_from_bytes
from email.errors import HeaderParseError
from email.header import decode_header
from email.message import Message
from email.utils import collapse_rfc2231_value

from postroom.mail.plaintext import plain_text
from postroom.post.text import is_storable

LONGEST_CONTENT = 100_000
"""Characters of a message that are searched."""

_LONG_VALUE = 2_000
"""Characters of a header; the library reads a longer one line by line, so it may have one line."""

_FOLD = re.compile(r"\r?\n(?=[ \t])")
_HALVES = re.compile("[\ud800-\udfff]")
_ESCAPED_OCTET = re.compile(rb"\\udc([89a-f][0-9a-f])")


@dataclass(frozen=True, slots=True)
class AttachedFile:
    """A file in a captured message."""

    filename: str | None
    content_type: str
    content_id: str | None
    size: int
    content: str  # base64


@dataclass(frozen=True, slots=True)
class ReadMessage:
    """A parsed message."""

    headers: tuple[tuple[str, str], ...]
    text: str | None
    html: str | None
    attachments: tuple[AttachedFile, ...]

    def first(self, name: str) -> str:
        """The first value of a header, its name in lower case; empty without one."""
        return next((value for found, value in self.headers if found.lower() == name), "")


@dataclass(frozen=True, slots=True)
class Outline:
    """A message as its list shows it, and the text that is searched."""

    subject: str
    author: str
    content: str
    attachment_count: int


def read_message(raw: bytes) -> ReadMessage:
    """Decoded headers in order, the first text and HTML parts, and all other parts as attachments."""
    message = message_from_bytes(raw)
    texts: dict[str, str] = {}
    attachments: list[AttachedFile] = []
    for part in message.walk():
        if part.is_multipart():
            continue
        kind = part.get_content_type()
        if part is message and kind == "application/json":  # a captured webhook
            kind = "text/plain"
        is_body = part.get_content_disposition() != "attachment" and kind in ("text/plain", "text/html")
        if is_body and kind not in texts:
            texts[kind] = _text(part)
        else:
            attachments.append(_attachment(part))
    headers = tuple((_clean(name), decode_words(str(value))) for name, value in message.raw_items())
    return ReadMessage(headers, texts.get("text/plain"), texts.get("text/html"), tuple(attachments))


def outline_of(raw: bytes) -> Outline:
    """The fields of a message that its list shows and the search reads."""
    read = read_message(raw)
    content = read.text if read.text is not None else plain_text(read.html or "")
    names = " ".join(file.filename for file in read.attachments if file.filename)
    return Outline(
        subject=read.first("subject"),
        author=read.first("from"),
        content=f"{content}\n{names}".strip()[:LONGEST_CONTENT],
        attachment_count=len(read.attachments),
    )


def decode_words(value: str) -> str:
    """The value of a header, unfolded and with encoded words decoded."""
    unfolded = _FOLD.sub("", value)
    if "=?" not in unfolded:
        return _clean(unfolded)
    # Escape each non-ASCII octet, so that the library leaves it unchanged.
    escaped = _octets(unfolded).decode("ascii", "surrogateescape")
    # The library searches the end of an encoded word from each beginning: behind the last end, in quadratic time.
    words, end, rest = escaped.rpartition("?=")
    if len(escaped) > _LONG_VALUE and len(words.splitlines()) > 1:
        return _clean(unfolded)
    try:
        parts = [*decode_header(words + end), (rest, None)] if end else [(escaped, None)]
    except (HeaderParseError, ValueError, binascii.Error):
        return _clean(unfolded)
    return _clean("".join(_decoded(part, charset) for part, charset in parts))


def decode_text(raw: bytes, charset: str | None = None) -> str:
    """Text in its declared charset, or in the most likely one if that fails; no byte is lost."""
    for likely in (charset, "utf-8", "cp1252"):
        try:
            text = raw.decode(likely) if likely else None
        except (LookupError, UnicodeError, ValueError):
            continue
        # Some charsets can encode surrogates, which PostgreSQL cannot store.
        if text is not None and _HALVES.search(text) is None:
            return text
    return raw.decode("latin-1")


def decode_octets(text: str) -> str:
    """Text with the octets that the parser escaped decoded to characters."""
    return text if text.isascii() else decode_text(_octets(text))


def _decoded(part: bytes | str, charset: str | None) -> str:
    if isinstance(part, str):
        return part
    if charset:
        return decode_text(part, charset)
    # Without a charset it was not an encoded word.
    return decode_text(_ESCAPED_OCTET.sub(lambda found: bytes.fromhex(found[1].decode()), part))


def _octets(text: str) -> bytes:
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return text.encode("utf-8", "replace")


def _clean(text: str) -> str:
    return text if is_storable(text) else decode_octets(text).replace("\x00", "")


def _content(part: Message) -> bytes:
    content = part.get_payload(decode=True)
    return content if isinstance(content, bytes) else b""


def _text(part: Message) -> str:
    return _clean(decode_text(_content(part), part.get_content_charset()).replace("\r\n", "\n"))


def _attachment(part: Message) -> AttachedFile:
    content = _content(part)
    content_id = part.get("Content-ID")
    return AttachedFile(
        filename=_filename(part),
        content_type=_clean(part.get_content_type()),
        content_id=_clean(str(content_id)).strip("<> ") if content_id else None,
        size=len(content),
        content=base64.b64encode(content).decode(),
    )


def _filename(part: Message) -> str | None:
    name = part.get_filename()
    return decode_words(collapse_rfc2231_value(name)) if name else None


def first_values(headers: Sequence[tuple[str, str]]) -> dict[str, str]:
    """Headers by name, each with its first value."""
    found: dict[str, str] = {}
    for name, value in headers:
        found.setdefault(name, value)
    return found
