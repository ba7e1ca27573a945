"""Recipients for the Gmail API, which has no envelope and mails everyone in To, Cc and Bcc.

The headers are changed to match the envelope. A recipient of the envelope that no header names is added to Bcc,
which Gmail removes. A named address that is not in the envelope (already delivered, or suppressed) is removed: a
missing name in a header is better than a mail to a suppressed address. A signature over a changed header is removed
too, since it would be invalid.
"""

import re
from collections.abc import Iterator, Sequence
from email.utils import formataddr, getaddresses

_FIELD = re.compile(rb"([!-9;-~]+):((?:[^\r\n]|\r\n[ \t])*)\r\n")
_NOBODY = b"To: undisclosed-recipients:;\r\n"
_NAMING = frozenset({b"to", b"cc"})


def addressed(raw: bytes, recipients: Sequence[str]) -> bytes:
    """Return the message addressed to exactly these recipients."""
    head, blank, body = raw.partition(b"\r\n\r\n")
    fields = [(found[1].lower(), found[0]) for found in _FIELD.finditer(head + b"\r\n")]
    receiving = {recipient.casefold() for recipient in recipients}
    named = {email.casefold() for name, field in fields if name in _NAMING for _, email in _mailboxes(field)}
    blind = [recipient for recipient in recipients if recipient.casefold() not in named]
    if not blind and named <= receiving and all(name != b"bcc" for name, _ in fields):
        return raw
    kept = list(_kept(fields, receiving) if named - receiving else _without(fields, {b"bcc"}))
    if blind:
        kept.append(b"Bcc: " + ",\r\n ".join(blind).encode() + b"\r\n")
    return b"".join(kept)[:-2] + (blank or b"\r\n\r\n") + body


def _without(fields: Sequence[tuple[bytes, bytes]], names: set[bytes]) -> Iterator[bytes]:
    yield from (field for name, field in fields if name not in names)


def _kept(fields: Sequence[tuple[bytes, bytes]], receiving: set[str]) -> Iterator[bytes]:
    """The header without excluded recipients and without signatures over its old content."""
    for name, field in fields:
        if name not in _NAMING:
            if name not in (b"bcc", b"dkim-signature"):
                yield field
            continue
        left = [formataddr(box) for box in _mailboxes(field) if box[1].casefold() in receiving]
        if left:
            yield field[: len(name)] + b": " + ",\r\n ".join(left).encode("utf-8", "surrogateescape") + b"\r\n"
        elif name == b"to":
            yield _NOBODY


def _mailboxes(field: bytes) -> list[tuple[str, str]]:
    text = field.partition(b":")[2].decode("utf-8", "surrogateescape")
    return [box for box in getaddresses([" ".join(text.split())]) if box[1]]
