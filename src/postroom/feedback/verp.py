"""Marks that cannot be forged: the return path `bounce+<id>.<tag>@domain`, the Message-ID `<pr.<id>.<digest>@domain>`.

Both carry an HMAC under a key that is derived from POSTROOM_SECRET_KEY and the name of the room, so rooms that share a
secret do not share marks. The tag of a return path covers the delivery's id, in base32 because some servers change the
case of addresses. The digest of a Message-ID covers the id, the time of acceptance and the domain: mail through plain
mailboxes has no return path of ours, and the Message-ID inside the report takes its place.

A mark proves that the writer saw that mail. Therefore it is evidence about the recipients of that mail only, see
`attribution`. Without a key a Message-ID is a plain hash, which anyone can compute from the mail of a neighbour in the
same batch (they share the time of acceptance, and ids follow each other): it is never believed.
"""

import base64
import hashlib
import hmac
import re
from collections.abc import Sequence
from datetime import UTC, datetime

from postroom.settings import Settings

PREFIX = "bounce+"
_LABEL = b"postroom:feedback:v2\0"
_RETURN_PATH_LABEL, _MESSAGE_ID_LABEL = b"return path\0", b"message id\0"
_TAG_BYTES = 10  # 80 bits: sixteen letters
_DIGEST_LETTERS = 16
_LARGEST_ID = 2**63 - 1
_RETURN_PATH = re.compile(r"bounce\+(\d{1,19})\.([a-z2-7]{16})@([a-z0-9.-]{1,253})", re.IGNORECASE)
_MESSAGE_ID = re.compile(r"<?\bpr\.(\d{1,19})\.([0-9a-f]{16})@([A-Za-z0-9.-]{1,253})>?", re.IGNORECASE)
MARK = re.compile(f"{_RETURN_PATH.pattern}|{_MESSAGE_ID.pattern}", re.IGNORECASE)
"""Whatever looks like a mark."""


def room_keys(settings: Settings) -> tuple[bytes, ...]:
    """The keys of this room's marks: the one that makes them, then those that only read; empty without a secret."""
    if settings.secret_key is None:
        return ()
    return tuple(room_key(secret, settings.schema) for secret in (settings.secret_key, *settings.old_secret_keys))


def room_key(secret_key: bytes, room: str) -> bytes:
    """The key of one room's return paths and Message-IDs."""
    return hmac.digest(secret_key, _LABEL + room.encode(), hashlib.sha256)


def return_path(delivery_id: int, *, domain: str, key: bytes) -> str:
    """The envelope sender of a delivery."""
    return f"{PREFIX}{delivery_id}.{_tag(delivery_id, key)}@{domain}"


def read_return_path(address: str, *, domain: str, keys: Sequence[bytes]) -> int | None:
    """The delivery a return path was made for; None if it is none of ours. Every wrong tag takes the same time."""
    found = _RETURN_PATH.fullmatch(address.strip().removeprefix("<").removesuffix(">"))
    if found is None or found[3].lower() != domain.lower():
        return None
    return _checked(found[1], found[2], keys)


def find_return_paths(text: str, *, domain: str, keys: Sequence[bytes]) -> list[int]:
    """Every delivery whose return path stands somewhere in a text, in order."""
    ids = [
        _checked(found[1], found[2], keys)
        for found in _RETURN_PATH.finditer(text)
        if found[3].lower() == domain.lower()
    ]
    return list(dict.fromkeys(delivery_id for delivery_id in ids if delivery_id is not None))


def message_id(delivery_id: int, created_at: datetime, *, domain: str, key: bytes | None) -> str:
    """The Message-ID of a delivery whose caller gave none, the same at every attempt."""
    return f"<pr.{delivery_id}.{_digest(delivery_id, created_at, domain, key)}@{domain}>"


def find_message_ids(text: str) -> list[tuple[int, str, str]]:
    """Message-IDs in a text that look like ours: delivery, digest, domain. They are still to be checked."""
    found = [(int(each[1]), each[2].lower(), each[3].lower()) for each in _MESSAGE_ID.finditer(text)]
    return [each for each in dict.fromkeys(found) if each[0] <= _LARGEST_ID]


def is_message_id_of(created_at: datetime, found: tuple[int, str, str], *, keys: Sequence[bytes]) -> bool:
    """True if a delivery of this id and time of acceptance has this Message-ID; without keys none has."""
    delivery_id, digest, domain = found
    return any(hmac.compare_digest(_digest(delivery_id, created_at, domain, key), digest) for key in keys)


def _digest(delivery_id: int, created_at: datetime, domain: str, key: bytes | None) -> str:
    covered = f"{delivery_id} {created_at.astimezone(UTC).isoformat()} {domain}".encode()
    if key is None:
        return hashlib.sha256(covered).hexdigest()[:_DIGEST_LETTERS]
    return hmac.digest(key, _MESSAGE_ID_LABEL + covered, hashlib.sha256).hex()[:_DIGEST_LETTERS]


def _checked(number: str, tag: str, keys: Sequence[bytes]) -> int | None:
    delivery_id = int(number)
    is_ours = any(hmac.compare_digest(_tag(delivery_id, key).encode(), tag.lower().encode()) for key in keys)
    return delivery_id if is_ours and delivery_id <= _LARGEST_ID and str(delivery_id) == number else None


def _tag(delivery_id: int, key: bytes) -> str:
    digest = hmac.digest(key, _RETURN_PATH_LABEL + str(delivery_id).encode(), hashlib.sha256)
    return base64.b32encode(digest[:_TAG_BYTES]).decode().lower()
