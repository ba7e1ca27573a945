"""Keys for AWS's clients: a pair that belongs to one API key and follows from it. Pure.

The access key id names the API key and carries 50 bits of an HMAC, so that only those who were given it can name a key.
The secret is derived from the installation's secret key, the room, and the id and creation time of the API key: two
rooms with one secret key have different pairs, and so has a room that was made again. Nothing is stored; revoking the
API key revokes its pair.

Release 0.1.0 printed access key ids that anyone can guess: `PR` and the number of the API key. They stay valid, with
the same secret.
"""

import base64
import hashlib
import hmac
import re
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from postroom.runtime.aws import AwsCredentials

LARGEST_ID = 2**63 - 1  # bigint

_ID_BYTES = 5  # eight characters: a trillion API keys
_TAG_CHARACTERS = 10  # of five bits
_ACCESS_KEY = re.compile(r"PS([A-Z2-7]{8})([A-Z2-7]{10})")
_GUESSABLE = re.compile(r"PR([0-9A-F]{18})")


@dataclass(frozen=True, slots=True)
class SesKey:
    """The API key behind a pair."""

    id: int
    created_at: datetime
    name: str
    scopes: tuple[str, ...]
    expires_at: datetime | None = None
    last_used_at: datetime | None = None

    def allows(self, scope: str) -> bool:
        return "*" in self.scopes or scope in self.scopes


@dataclass(frozen=True, slots=True)
class NamedKey:
    """The API key that an access key id names. A guessable name proves nothing about the client."""

    id: int
    is_guessable: bool


class KeyFacts(Protocol):
    """An API key as far as its pair depends on it."""

    @property
    def id(self) -> int: ...

    @property
    def created_at(self) -> datetime: ...


def derive_credentials(key: KeyFacts, *, room: str, secret_key: bytes) -> AwsCredentials:
    """The pair of an API key; the access key id has twenty characters, as AWS's have."""
    made = round(key.created_at.timestamp() * 1_000_000)
    derived = hmac.digest(secret_key, f"postroom:ses:v2:{room}:{key.id}:{made}".encode(), hashlib.sha256)
    named = base64.b32encode(key.id.to_bytes(_ID_BYTES)).decode()
    access_key_id = f"PS{named}{_tag(key.id, room=room, secret_key=secret_key)}"
    return AwsCredentials(access_key_id, base64.urlsafe_b64encode(derived).rstrip(b"=").decode())


def parse_access_key(access_key_id: str, *, room: str, secret_key: bytes) -> NamedKey | None:
    """The API key that an access key id names; None if it is not one of this room."""
    if found := _ACCESS_KEY.fullmatch(access_key_id):
        key_id = int.from_bytes(base64.b32decode(found[1]))
        is_ours = hmac.compare_digest(found[2], _tag(key_id, room=room, secret_key=secret_key))
        return NamedKey(key_id, is_guessable=False) if is_ours else None
    if found := _GUESSABLE.fullmatch(access_key_id):
        key_id = int(found[1], 16)
        return NamedKey(key_id, is_guessable=True) if key_id <= LARGEST_ID else None
    return None


def _tag(key_id: int, *, room: str, secret_key: bytes) -> str:
    derived = hmac.digest(secret_key, f"postroom:ses:access-key:{room}:{key_id}".encode(), hashlib.sha256)
    return base64.b32encode(derived).decode()[:_TAG_CHARACTERS]
