"""Return paths that cannot be forged: `bounce+<delivery>.<tag>@<domain>`.

The tag is an HMAC of the delivery's id under the key of the room (`message_id.room_keys`), in base32 because some
servers change the case of addresses. It proves that the writer saw that mail, so it is evidence about the recipients of
that mail only.
"""

import base64
import hmac
import re
from collections.abc import Sequence
from functools import lru_cache
from itertools import islice

from postroom.post.keyed_hash import KeyedHash, RoomKey

PREFIX = "bounce+"
_LABEL = b"return path\0"
_TAG_BYTES = 10  # 80 bits: sixteen letters
MOST_QUOTED = 5  # addresses of a report that are tried with the keys of all rooms
PATTERN = re.compile(r"bounce\+(\d{1,19})\.([a-z2-7]{16})@([a-z0-9.-]{1,253})", re.IGNORECASE)


def make_return_path(delivery_id: int, *, domain: str, key: RoomKey) -> str:
    """The envelope sender of a delivery."""
    return f"{PREFIX}{delivery_id}.{_tag(delivery_id, key)}@{domain}"


def read_return_path(address: str, *, domain: str, keys: Sequence[RoomKey]) -> int | None:
    """The delivery of a return path; None if it is not ours. Every wrong tag takes the same time."""
    found = PATTERN.fullmatch(address.strip().removeprefix("<").removesuffix(">"))
    if found is None or found[3].lower() != domain.lower():
        return None
    return _checked(found[1], found[2], keys)


def find_return_paths(text: str, *, domain: str, keys: Sequence[RoomKey]) -> list[int]:
    """The deliveries of all valid return paths in a text, in order."""
    ids = [_checked(found[1], found[2], keys) for found in PATTERN.finditer(text) if found[3].lower() == domain.lower()]
    return list(dict.fromkeys(delivery_id for delivery_id in ids if delivery_id is not None))


def quoted_return_paths(raw: bytes) -> list[str]:
    """The first addresses in a message that look like return paths. The caller must verify them."""
    return list(dict.fromkeys(found[0] for found in islice(PATTERN.finditer(raw.decode("latin-1")), MOST_QUOTED)))


def _checked(number: str, tag: str, keys: Sequence[RoomKey]) -> int | None:
    delivery_id = int(number)
    is_ours = any(
        hmac.compare_digest(_tag(delivery_id, key).encode(), tag.lower().encode())
        for key in keys
        if delivery_id <= key.last_id
    )
    return delivery_id if is_ours and str(delivery_id) == number else None


def _tag(delivery_id: int, key: RoomKey) -> str:
    digest = _keyed(key.key).digest(str(delivery_id).encode())
    return base64.b32encode(digest[:_TAG_BYTES]).decode().lower()


@lru_cache(maxsize=4096)  # preparing a key costs more than the digest, and a process may serve a thousand rooms
def _keyed(key: bytes) -> KeyedHash:
    return KeyedHash(key, _LABEL)
