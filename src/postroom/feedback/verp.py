"""Return paths that nobody can invent: `bounce+<id>.<tag>@domain`.

The tag is an HMAC of the delivery's id, in base32 so that a server which changes the case of addresses does no harm. A
bounce that comes to such an address speaks of that delivery; one that comes with any other tag speaks of nothing. The
tag proves that the writer saw the mail, so it never proves more than a word about a recipient of that very mail.

Mail through plain mailboxes has no return path of ours. There the Message-ID inside the report takes its place: it
holds a hash of the delivery's id, its time of acceptance in microseconds, and the domain. It has no key, but whoever
did not get the mail would have to guess the microsecond, and each guess is a mail to us; whoever did get it can only
speak of its recipients, as with the tag. That is enough to suppress, while the row is there to check it against.
"""

import base64
import hashlib
import hmac
import re
from datetime import UTC, datetime

PREFIX = "bounce+"
_LABEL = b"postroom:return-path:v1"
_TAG_BYTES = 10  # 80 bits: sixteen letters
_LARGEST_ID = 2**63 - 1
_RETURN_PATH = re.compile(r"bounce\+(\d{1,19})\.([a-z2-7]{16})@([a-z0-9.-]{1,253})", re.IGNORECASE)
_MESSAGE_ID = re.compile(r"<?\bpr\.(\d{1,19})\.([0-9a-f]{16})@([A-Za-z0-9.-]{1,253})>?", re.IGNORECASE)


def return_path(delivery_id: int, *, domain: str, key: bytes) -> str:
    """The envelope sender of a delivery."""
    return f"{PREFIX}{delivery_id}.{_tag(delivery_id, key)}@{domain}"


def read_return_path(address: str, *, domain: str, key: bytes) -> int | None:
    """The delivery a return path was made for; None if it is none of ours. Every wrong tag takes the same time."""
    found = _RETURN_PATH.fullmatch(address.strip().removeprefix("<").removesuffix(">"))
    if found is None or found[3].lower() != domain.lower():
        return None
    return _checked(found[1], found[2], key)


def find_return_paths(text: str, *, domain: str, key: bytes) -> list[int]:
    """Every delivery whose return path stands somewhere in a text, in order."""
    ids = [
        _checked(found[1], found[2], key) for found in _RETURN_PATH.finditer(text) if found[3].lower() == domain.lower()
    ]
    return list(dict.fromkeys(delivery_id for delivery_id in ids if delivery_id is not None))


def find_message_ids(text: str) -> list[tuple[int, str, str]]:
    """Message-IDs in a text that look like ours: delivery, digest, domain. They are still to be checked."""
    found = [(int(each[1]), each[2].lower(), each[3].lower()) for each in _MESSAGE_ID.finditer(text)]
    return [each for each in dict.fromkeys(found) if each[0] <= _LARGEST_ID]


def is_message_id_of(created_at: datetime, message_id: tuple[int, str, str]) -> bool:
    """True if a delivery of this id and time of acceptance has this Message-ID; see `postroom.mail.compose`."""
    delivery_id, digest, domain = message_id
    created = created_at.astimezone(UTC).isoformat()
    expected = hashlib.sha256(f"{delivery_id} {created} {domain}".encode()).hexdigest()[:16]
    return hmac.compare_digest(expected, digest)


def _checked(number: str, tag: str, key: bytes) -> int | None:
    delivery_id = int(number)
    expected = _tag(delivery_id, key)
    is_ours = hmac.compare_digest(expected.encode(), tag.lower().encode())
    return delivery_id if is_ours and delivery_id <= _LARGEST_ID and str(delivery_id) == number else None


def _tag(delivery_id: int, key: bytes) -> str:
    derived = hmac.digest(key, _LABEL, hashlib.sha256)
    digest = hmac.digest(derived, str(delivery_id).encode(), hashlib.sha256)
    return base64.b32encode(digest[:_TAG_BYTES]).decode().lower()
