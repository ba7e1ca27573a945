"""The media type of a file, with the parameters that matter to its reader.

An invitation needs `method=REQUEST`, and a Latin-1 table is unreadable without its `charset`. Dropped parameters belong
to the enclosing message (`boundary`), are stored elsewhere (`name`), are private (`x-…`), or cannot be encoded.
"""

import re
from email.message import Message

from postroom.post.header import MEDIA_TYPE

OCTETS = "application/octet-stream"

_TOKEN = re.compile(r"[A-Za-z0-9!#$&^_.+-]{1,127}")
_ELSEWHERE = ("boundary", "name")


def media_type_of(part: Message) -> str:
    """The type of a MIME part with its parameters; `application/octet-stream` if it is invalid."""
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
    """The same for a type given as text. An invalid type is returned unchanged, so that validation names it."""
    if MEDIA_TYPE.match(written) is None or not written.isprintable():
        return written
    part = Message()
    part["Content-Type"] = written
    return media_type_of(part)
