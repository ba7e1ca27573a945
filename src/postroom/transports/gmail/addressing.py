"""Recipients as the Gmail API wants them: it has no envelope and mails whoever stands in To, Cc and Bcc.

So the headers are made to say what the envelope says. Who is in the envelope and not named becomes a blind copy, a
header that Gmail takes out again. Who is named and not in the envelope (served before, or suppressed) is taken out: a
message whose headers show a person less is better than a person who gets a message he must not get. Only then does a
signature over those headers go too, since it would be broken.
"""

import re
from collections.abc import Iterator, Sequence
from email.utils import formataddr, getaddresses

_FIELD = re.compile(rb"([!-9;-~]+):((?:[^\r\n]|\r\n[ \t])*)\r\n")
_NOBODY = b"To: undisclosed-recipients:;\r\n"
_NAMING = frozenset({b"to", b"cc"})


def addressed(raw: bytes, recipients: Sequence[str]) -> bytes:
    """The message for exactly these recipients."""
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
    """The header without those who must not receive it, and without signatures over what it was."""
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
