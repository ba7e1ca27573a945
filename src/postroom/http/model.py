"""API keys: what they look like, what they may do."""

import hashlib
import secrets
from dataclasses import dataclass
from datetime import datetime

SCOPES = (
    "deliveries:write",
    "deliveries:read",
    "deliveries:operate",
    "inbox:read",
    "inbox:write",
    "templates:read",
    "templates:write",
    "accounts:read",
    "accounts:write",
    "accounts:operate",
    "users:read",
    "users:write",
    "events:read",
    "events:write",
    "outbox:read",
    "outbox:operate",
    "webhooks:manage",
    "senders:read",
    "senders:manage",
    "campaigns:read",
    "campaigns:write",
    "suppressions:read",
    "suppressions:write",
    "stats:read",
    "archive:operate",
    "audit:read",
    "keys:manage",
)
ALL = "*"
"""The scope that holds every other, now and later."""

KEY_PREFIX = "pr_"
_SHOWN = 8  # characters after `pr_` that people may see to tell keys apart: 48 of 256 bits
_KEY_LENGTH = len(KEY_PREFIX) + 43


@dataclass(frozen=True, slots=True)
class ApiKey:
    """One key as it may be shown: everything but the key."""

    id: int
    name: str
    prefix: str
    scopes: tuple[str, ...]
    created_at: datetime
    last_used_at: datetime | None
    revoked_at: datetime | None

    @property
    def actor(self) -> str:
        """How the audit log names the key: its id too, because a name can be given again once its key was revoked."""
        return f"key:{self.id}:{self.name}"

    def allows(self, scope: str) -> bool:
        return ALL in self.scopes or scope in self.scopes


def new_key() -> str:
    """A new key with 256 random bits. It is shown once and not stored."""
    return KEY_PREFIX + secrets.token_urlsafe(32)


def hash_key(key: str) -> bytes:
    """The stored hash of a key. It is random and long, so one round of SHA-256 cannot be guessed back."""
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).digest()


def shown_part(key: str) -> str:
    return key[: len(KEY_PREFIX) + _SHOWN]


def looks_like_key(text: str) -> bool:
    """False for text that cannot be a key, so that garbage causes no query."""
    return len(text) == _KEY_LENGTH and text.startswith(KEY_PREFIX) and text.isascii()
