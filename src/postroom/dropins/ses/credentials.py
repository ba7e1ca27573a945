"""Keys for AWS's clients: a pair that belongs to one API key and follows from it. Pure.

The access key id names the API key. The secret is derived from the installation's secret key, the room, and the id and
creation time of the API key: two rooms with one secret key have different pairs, and so has a room that was made again.
Nothing is stored; revoking the API key revokes its pair.
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

_ACCESS_KEY = re.compile(r"PR([0-9A-F]{18})")


@dataclass(frozen=True, slots=True)
class SesKey:
    """The API key behind a pair."""

    id: int
    created_at: datetime
    name: str
    scopes: tuple[str, ...]
    expires_at: datetime | None = None

    def allows(self, scope: str) -> bool:
        return "*" in self.scopes or scope in self.scopes


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
    return AwsCredentials(f"PR{key.id:018X}", base64.urlsafe_b64encode(derived).rstrip(b"=").decode())


def parse_access_key(access_key_id: str) -> int | None:
    """The id of the API key that an access key id names; None if it is not one of ours."""
    found = _ACCESS_KEY.fullmatch(access_key_id)
    key_id = int(found[1], 16) if found else LARGEST_ID + 1
    return key_id if key_id <= LARGEST_ID else None
