"""The media type of a file, as others write it: its parameters are part of what it is.

An invitation is one by `method=REQUEST`, and a table in Latin-1 is unreadable without its `charset`. What is left out
belongs to the message the file came in (`boundary`), is said elsewhere (`name`), is a private matter (`x-…`), or
cannot be written.
"""

import re
from email.message import Message

from postroom.post.header import MEDIA_TYPE

OCTETS = "application/octet-stream"

_TOKEN = re.compile(r"[A-Za-z0-9!#$&^_.+-]{1,127}")
_ELSEWHERE = ("boundary", "name")


def media_type_of(part: Message) -> str:
    """The type of a MIME part with its parameters; octets if it cannot be read."""
    kind = part.get_content_type().lower()
    if MEDIA_TYPE.fullmatch(kind) is None:
        return OCTETS
    given = dict(part.get_params(failobj=[])[1:]) if ";" in str(part.get("Content-Type", "")) else {}
    for name, value in given.items():
        lowered = name.lower()
        if not value or not isinstance(value, str) or lowered in _ELSEWHERE or lowered.startswith("x-"):
            continue
        shown = value if _TOKEN.fullmatch(value) else f'"{value}"'
        if MEDIA_TYPE.fullmatch(f"{kind}; {lowered}={shown}"):
            kind = f"{kind}; {lowered}={shown}"
    return kind


def plain_media_type(written: str) -> str:
    """The same for a type written by hand. What is none stays as it is, to be refused by name."""
    if MEDIA_TYPE.match(written) is None or not written.isprintable():
        return written
    part = Message()
    part["Content-Type"] = written
    return media_type_of(part)
