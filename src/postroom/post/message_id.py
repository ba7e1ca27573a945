"""Message-IDs that cannot be forged: `<pr.<delivery>.<digest>@<domain>>`.

The digest is an HMAC under the key of the room (`room_keys`); it covers the id, the time of acceptance and the domain.
Mail sent through a plain mailbox has no return path of ours, so the Message-ID in the report takes its place.

A Message-ID proves that the writer saw that mail, so it is evidence about the recipients of that mail only. Without a
key the digest is a plain hash, which anyone can compute from another mail of the same batch (they share the time of
acceptance, and ids are consecutive): it proves nothing, and reports that quote it are not believed.
"""

import hashlib
import hmac
import re
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from functools import lru_cache

from postroom.post.keyed_hash import LARGEST_ID, KeyedHash, RoomKey, SecretKey

_ROOM_LABEL = b"postroom:feedback:v2\0"
_LABEL = b"message id\0"
_DIGEST_BYTES = 8  # 64 bits of a hash: the id of another mail cannot be guessed
PATTERN = re.compile(r"<?\bpr\.(\d{1,19})\.([0-9a-f]{16})@([A-Za-z0-9.-]{1,253})>?", re.IGNORECASE)


def room_keys(secrets: Iterable[SecretKey], room: str) -> tuple[RoomKey, ...]:
    """The keys of a room's Message-IDs and return paths, one per secret: rooms that share a secret share no key."""
    label = _ROOM_LABEL + room.encode()
    return tuple(RoomKey(hmac.digest(each.key, label, hashlib.sha256), each.last_id(room)) for each in secrets)


def make_message_id(delivery_id: int, created_at: datetime, *, domain: str, key: RoomKey | None) -> str:
    """The Message-ID of a delivery whose caller gave none, the same at every attempt."""
    return f"<pr.{delivery_id}.{_digest(delivery_id, created_at, domain, key)}@{domain}>"


def find_message_ids(text: str) -> list[tuple[int, str, str]]:
    """Candidates of our Message-IDs in a text: delivery, digest, domain. The caller must verify them."""
    found = [(int(each[1]), each[2].lower(), each[3].lower()) for each in PATTERN.finditer(text)]
    return [each for each in dict.fromkeys(found) if each[0] <= LARGEST_ID]


def is_message_id_of(created_at: datetime, found: tuple[int, str, str], *, keys: Sequence[RoomKey]) -> bool:
    """True if a delivery of this id and time of acceptance has this Message-ID; without keys always false."""
    delivery_id, digest, domain = found
    return any(
        hmac.compare_digest(_digest(delivery_id, created_at, domain, key), digest)
        for key in keys
        if delivery_id <= key.last_id
    )


def _digest(delivery_id: int, created_at: datetime, domain: str, key: RoomKey | None) -> str:
    text = f"{delivery_id} {_written(created_at)} {domain}".encode()
    digest = hashlib.sha256(text).digest() if key is None else _keyed(key.key).digest(text)
    return digest[:_DIGEST_BYTES].hex()


@lru_cache(maxsize=16)  # preparing a key costs more than the digest
def _keyed(key: bytes) -> KeyedHash:
    return KeyedHash(key, _LABEL)


@lru_cache(maxsize=1024)  # the deliveries of a batch share the time of acceptance
def _written(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat()
