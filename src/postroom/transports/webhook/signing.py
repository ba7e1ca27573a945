"""Signatures of Standard Webhooks: a receiver can verify origin, integrity and age of a request.

The signed text is `id.timestamp.body`, with HMAC-SHA256 under each secret; the signatures are in one header,
separated by spaces. During a rotation there are two secrets, and a receiver accepts either.
"""

import base64
import binascii
import hashlib
import hmac
from collections.abc import Sequence

from postroom.settings import Settings

PREFIX = "whsec_"
_SIZES = range(24, 65)  # bytes of a key (Standard Webhooks)


def read_secret(secret: str) -> bytes:
    """The key inside `whsec_…`; ValueError if it is invalid."""
    if not secret.startswith(PREFIX):
        raise ValueError(f"a webhook secret begins with {PREFIX}")
    try:
        key = base64.b64decode(secret.removeprefix(PREFIX), validate=True)
    except binascii.Error:
        raise ValueError("a webhook secret is base64") from None
    if len(key) not in _SIZES:
        raise ValueError(f"a webhook secret has {_SIZES[0]} to {_SIZES[-1]} bytes")
    return key


def derived_secret(secret_key: bytes) -> str:
    """The secret of an installation without its own: derived from its key for this purpose only."""
    derived = hmac.digest(secret_key, b"postroom:webhook-secret:v1", hashlib.sha256)
    return PREFIX + base64.b64encode(derived).decode()


def webhook_secrets(settings: Settings) -> Sequence[str]:
    """The secrets of the settings, or one derived from the installation's key; empty without a key."""
    if settings.webhook_secrets or settings.secret_key is None:
        return settings.webhook_secrets
    return (derived_secret(settings.secret_key),)


def sign(keys: Sequence[bytes], *, message_id: str, timestamp: int, body: bytes) -> str:
    """The value of `webhook-signature`."""
    content = f"{message_id}.{timestamp}.".encode() + body
    return " ".join("v1," + base64.b64encode(hmac.digest(key, content, hashlib.sha256)).decode() for key in keys)
