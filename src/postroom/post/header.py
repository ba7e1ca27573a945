"""Header fields: which of them a caller may set, and their encoding.

Headers are checked when a request is accepted, and again when the message is composed. A carriage return, line feed or
NUL in a name or value raises ValueError with the name of the field, so that no caller can inject a header through a
subject. Text that is not plain ASCII becomes encoded words (RFC 2047) of at most 75 characters which never split a
character. Lines are folded at 76 columns where the syntax allows it and are never longer than 998 octets. Values are
returned without the final line end.
"""

import binascii
import re
from collections.abc import Sequence
from functools import lru_cache
from urllib.parse import quote

from postroom.post.address import Address

FORBIDDEN_HEADERS = frozenset(
    {
        "authentication-results",
        "bcc",
        "cc",
        "date",
        "delivered-to",
        "dkim-signature",
        "domainkey-signature",
        "errors-to",
        "from",
        "mime-version",
        "received",
        "received-spf",
        "reply-to",
        "return-path",
        "sender",
        "subject",
        "to",
    }
)
"""Fields a caller may not set, in lower case: they follow from the delivery."""

RELAY_HEADERS = frozenset({"apparently-to", "x-mc-bccaddress", "x-msys-api", "x-pm-bcc", "x-smtpapi"})
"""Fields, in lower case, by which relays (Mandrill, SparkPost, Postmark, SendGrid) add recipients: these would be in no
ledger, limit or suppression list."""

RESERVED_PREFIX = "postroom-"
"""Reserved for Postroom's own use; an application cannot set such a header."""

FORBIDDEN_PREFIXES = ("arc-", "content-", "resent-", RESERVED_PREFIX)

_STRUCTURED = frozenset(
    {
        "auto-submitted",
        "cfbl-address",
        "cfbl-feedback-id",
        "feedback-id",
        "importance",
        "in-reply-to",
        "message-id",
        "precedence",
        "priority",
        "references",
        "x-priority",
    }
)
_TOKEN = r"[A-Za-z0-9!#$&^_.+-]{1,127}"  # noqa: S105 - a token of RFC 2045, not a secret
MEDIA_TYPE = re.compile(rf'{_TOKEN}/{_TOKEN}(?:; ?{_TOKEN}=(?:{_TOKEN}|"[ !#-:<-\[\]-~]{{0,200}}")){{0,10}}')
"""Content types allowed for an attachment: a type, and parameters such as `method=REQUEST` or `charset="utf-8"`."""

LINE_LIMIT = 998  # RFC 5322, 2.1.1
NAME_LIMIT = 76  # a longer name leaves no room for a value in the 78 columns that RFC 5322 recommends
_LONGEST_WORD = LINE_LIMIT - NAME_LIMIT - 2  # a word cannot be folded; ": " stands before the first
_LONGEST_ID = 250  # some servers cut longer ids, which breaks threads and bounces
_PRINTABLE = re.compile(r"[!-~](?:[ -~]*[!-~])?")
_HEADER_NAME = re.compile(r"[!-9;-~]+")
_MESSAGE_ID = re.compile(r"<[!-;=?A-~]+@[!-;=?A-~]+>")
_BREAKS = re.compile("[\r\n\0]")
_SURROGATES = re.compile("[\ud800-\udfff]")

Field = tuple[bytes, bytes]
"""A header field as emitted: its name and its folded value."""

_COLUMNS = 76  # RFC 2047 limits lines with encoded words to 76, RFC 5322 others to 78: the smaller fits both
_WORD_OVERHEAD = len("=?utf-8?q??=")
_WORD_ROOM = 75 - _WORD_OVERHEAD  # RFC 2047 limits an encoded word to 75 characters
_INSIDE_CHARACTER = 0b1000_0000  # prefix of the second and later octets of a UTF-8 character
_LEAST_ROOM = 16  # even after a very long field name the first word must hold one character
_CHARSET = "UTF-8''"
_PIECE_ROOM = _COLUMNS - len(f" filename*10*={_CHARSET};")

_ATOMS = re.compile(r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+(?: [A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+)*")
# Reject an address that could end its own angle bracket or begin another, even if it was checked before.
_MAILBOX = re.compile(
    r'[^\x00-\x20\x7f-\xa0<>()\[\],;:\\"@\ud800-\udfff]+@[^\x00-\x20\x7f-\xa0<>()\[\],;:\\"@\ud800-\udfff]+'
)
_FILENAME = re.compile(r"(?! )[A-Za-z0-9._ ()+,=@~#&-]{1,60}(?<! )")
_NOT_FALLBACK = re.compile(r"[^A-Za-z0-9._ -]")

_Q_SAFE = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789!*+-/"
_Q_TABLE = [chr(octet) if octet in _Q_SAFE else "_" if octet == ord(" ") else f"={octet:02X}" for octet in range(256)]


def check_header(name: str, value: str) -> str | None:
    """The reason why a caller may not set this header, in a few words; None if allowed."""
    if name.lower() in RELAY_HEADERS:
        return "lets a relay add recipients; give them as to, cc or bcc"
    return _check_written(name, value)


def _check_written(name: str, value: str) -> str | None:
    """The reason why a mail cannot have this header. Waiting mail of release 0.1.0 may have one of `RELAY_HEADERS`."""
    lowered = name.lower()
    if _HEADER_NAME.fullmatch(name) is None or len(name) > NAME_LIMIT:
        return "is not a header name"
    if lowered in FORBIDDEN_HEADERS or lowered.startswith(FORBIDDEN_PREFIXES):
        return "is set by Postroom and cannot be given"
    return check_text(value) or (_check_structured(lowered, value) if is_structured(lowered) else None)


def check_text(value: str) -> str | None:
    """The reason why no header can contain this text; None if it can."""
    if _BREAKS.search(value) is not None:
        return "contains a line break or a NUL"
    if _SURROGATES.search(value) is not None:
        return "contains half a character (a lone surrogate)"
    return None


def is_structured(lowered: str) -> bool:
    """True for fields in which encoded words have no meaning."""
    return lowered in _STRUCTURED or lowered.startswith("list-")


def encode_addresses(field: str, addresses: Sequence[Address]) -> bytes:
    """An address list, folded between and, if need be, inside the addresses."""
    if len(addresses) == 1 and addresses[0].name is None:
        return encode_mailbox(field, addresses[0].email)
    words: list[str] = []
    for address in addresses:
        words += _address_words(field, address)
        words[-1] += ","
    return _fold(words, len(field) + 2)[:-1].encode()


def encode_mailbox(field: str, email: str) -> bytes:
    """One address without a name, as in nearly every mail: one word, never folded."""
    if _MAILBOX.fullmatch(email) is None:
        refuse_breaks(field, email)
        raise ValueError(f"{field} has an address that cannot be written: {email!r}")
    return email.encode()


@lru_cache(maxsize=256)  # most headers of a campaign are the same in every mail
def encode_custom(name: str, value: str) -> bytes:
    """The value of a caller's header, after a last check that it is allowed."""
    reason = _check_written(name, value)
    if reason is not None:
        raise ValueError(f"header {name!r} {reason}")
    if not is_structured(name.lower()):
        return encode_text(name, value, longest_word=_LONGEST_WORD)
    return _fold(value.split(), len(name) + 2).encode()


def encode_filename(filename: str) -> tuple[bytes, bytes]:
    """The parameters for a file name: of Content-Disposition, and to add to Content-Type.

    A name that is not plain ASCII is written by RFC 2231 in the first only; its ASCII substitute goes into the
    second, the next place readers check. With both in one field, readers such as Python's prefer the substitute.
    """
    refuse_breaks("attachment filename", filename)
    if not filename:
        return b"", b""
    if _FILENAME.fullmatch(filename) is not None:
        return b'; filename="%b"' % filename.encode(), b""
    pieces = _percent_pieces(filename)
    if len(pieces) == 1:
        parameters = f";\r\n filename*=UTF-8''{pieces[0]}"
    else:
        parameters = "".join(
            f";\r\n filename*{number}*={'' if number else _CHARSET}{piece}" for number, piece in enumerate(pieces)
        )
    fallback = _NOT_FALLBACK.sub("_", filename)
    stem, dot, ending = fallback.rpartition(".")
    short = f"{stem[:40]}.{ending[:16]}" if dot else fallback[:57]
    return parameters.encode(), f';\r\n name="{short}"'.encode()


def encode_text(field: str, value: str, *, longest_word: int = _COLUMNS - 1) -> bytes:
    """Unstructured text such as a subject: unchanged if possible, otherwise in encoded words."""
    used = len(field) + 2
    if _PRINTABLE.fullmatch(value) is not None and "=?" not in value:
        if len(value) + used <= _COLUMNS:
            return value.encode()
        words = value.split(" ")
        # Two spaces in a row could leave a line of only spaces after folding.
        if "" not in words and max(used + len(words[0]) - 1, *map(len, words)) <= longest_word:
            return _fold(words, used).encode()
    refuse_breaks(field, value)
    return _fold(_encoded_words(value, _COLUMNS - used), used).encode() if value else b""


def refuse_breaks(field: str, value: str) -> None:
    """Raise ValueError for text forbidden in headers: line breaks, NUL, lone surrogates."""
    reason = check_text(value)
    if reason is not None:
        raise ValueError(f"{field} {reason}")


def _check_structured(lowered: str, value: str) -> str | None:
    if _PRINTABLE.fullmatch(value) is None:
        return "must be printable ASCII without spaces at its ends"
    if lowered == "message-id" and (_MESSAGE_ID.fullmatch(value) is None or len(value) > _LONGEST_ID):
        return "must look like <unique@domain>"
    if max(map(len, value.split())) > _LONGEST_WORD:
        return "has a word too long for a line"
    return None


def _address_words(field: str, address: Address) -> list[str]:
    mailbox, name = encode_mailbox(field, address.email).decode(), address.name
    if name is None or not name.strip(" "):
        return [mailbox]
    words = _name_words(field, name)
    words.append(f"<{mailbox}>")
    return words


def _name_words(field: str, name: str) -> list[str]:
    """A display name as atoms, as one quoted string, or as encoded words, whichever preserves it exactly."""
    if "=?" not in name:
        if _ATOMS.fullmatch(name) is not None and len(name) < _COLUMNS:
            return name.split(" ")
        if _PRINTABLE.fullmatch(name) is not None:
            escaped = name.replace("\\", "\\\\").replace('"', '\\"')
            if len(escaped) < _WORD_ROOM:
                return [f'"{escaped}"']
    refuse_breaks(field, name)
    return _encoded_words(name, _COLUMNS - len(field) - 2)


def _encoded_words(value: str, columns: int) -> list[str]:
    """The whole value as encoded words; the first one fits in the given columns."""
    data = value.encode()
    room = max(_LEAST_ROOM, min(columns - _WORD_OVERHEAD, _WORD_ROOM))
    quoted_length = len(data) + 2 * len(data.translate(None, _Q_SAFE + b" "))
    if quoted_length <= (len(data) + 2) // 3 * 4:
        return [f"=?utf-8?q?{piece}?=" for piece in _quoted_pieces(value, room)]
    return [f"=?utf-8?b?{piece}?=" for piece in _base64_pieces(data, room)]


def _quoted_pieces(value: str, room: int) -> list[str]:
    return _pack(
        [_Q_TABLE[ord(char)] if char < "\x80" else "".join(map(_Q_TABLE.__getitem__, char.encode())) for char in value],
        room,
    )


def _base64_pieces(data: bytes, room: int) -> list[str]:
    pieces = []
    start = 0
    while start < len(data):
        end = min(start + room // 4 * 3, len(data))
        while end < len(data) and data[end] & 0b1100_0000 == _INSIDE_CHARACTER:
            end -= 1
        pieces.append(binascii.b2a_base64(data[start:end], newline=False).decode())
        start, room = end, _WORD_ROOM
    return pieces


def _percent_pieces(filename: str) -> list[str]:
    """The percent-encoded name in pieces that each fit a line beside their parameter name."""
    return _pack([quote(char, safe="") for char in filename], _PIECE_ROOM, later=_PIECE_ROOM)


def _pack(symbols: Sequence[str], room: int, *, later: int = _WORD_ROOM) -> list[str]:
    """Join indivisible symbols into pieces: the first at most `room` long, the others at most `later`."""
    pieces: list[str] = []
    piece: list[str] = []
    left = room
    for symbol in symbols:
        if len(symbol) > left:
            pieces.append("".join(piece))
            piece, left = [], later
        piece.append(symbol)
        left -= len(symbol)
    pieces.append("".join(piece))
    return pieces


def _fold(words: Sequence[str], used: int) -> str:
    """Join words by spaces, with a line break before the space where a line would be too long."""
    # The first word stays beside the name whatever its length: some readers fail on an empty first line.
    column = used + len(words[0])
    pieces = [words[0]]
    for word in words[1:]:
        column += len(word) + 1
        if column > _COLUMNS:
            pieces.append("\r\n ")
            column = len(word) + 1
        else:
            pieces.append(" ")
        pieces.append(word)
    return "".join(pieces)
