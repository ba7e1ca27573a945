"""Encryption of account secrets at rest: one line of text that names the provider and the key that sealed it.

    local:<key id>:<base64 of nonce, ciphertext, tag>              AES-256-GCM under the installation's key
    kms:<key arn>:<base64 of the wrapped data key>:<base64 of …>   the same under a data key that AWS KMS wraps

A secret is bound to its kind and its account: copied to another row it cannot be decrypted.
"""

import base64
import binascii
from collections.abc import Sequence
from typing import Protocol

from postroom.errors import ConfigurationError
from postroom.runtime.secrets import Sealed, SecretBox

_KINDS = {"smtp": "SMTP password", "gmail": "Gmail service account", "ses": "SES access key"}


def purpose_of(auth_type: str, sender_id: int) -> str:
    """The associated data of a secret."""
    return f"{_KINDS[auth_type]} of sender account {sender_id}"


class Sealer(Protocol):
    """Seals secrets and opens the secrets it sealed."""

    @property
    def scheme(self) -> str:
        """The prefix before the first colon of its sealed texts."""

    async def seal(self, secret: bytes, *, purpose: str) -> tuple[str, str]:
        """Return the id of the key and the text to store."""

    async def open(self, text: str, *, purpose: str) -> bytes:
        """Decrypt a text. Raises `ConfigurationError` if the key differs or the text was modified."""


class LocalSealer:
    """AES-256-GCM with the installation's key; previous keys can be given to open older secrets."""

    scheme = "local"

    def __init__(self, box: SecretBox) -> None:
        self._box = box

    @classmethod
    def from_keys(cls, *keys: bytes | None) -> "LocalSealer":
        """Build a sealer; the first key seals. None stands for a key that is not set."""
        return cls(SecretBox([key for key in keys if key is not None]))

    async def seal(self, secret: bytes, *, purpose: str) -> tuple[str, str]:
        sealed = self._box.seal(secret, purpose=purpose)
        return sealed.key_id, f"{self.scheme}:{sealed.key_id}:{base64.b64encode(sealed.data).decode()}"

    async def open(self, text: str, *, purpose: str) -> bytes:
        _, key_id, data = split(text, 3)
        return self._box.open(Sealed(key_id, decoded(data)), purpose=purpose)


class Sealers:
    """Seals with the first sealer and opens with the matching one, for migration between providers."""

    scheme = "any"

    def __init__(self, first: Sealer, *others: Sealer) -> None:
        self._first = first
        self._by_scheme = {sealer.scheme: sealer for sealer in (*others, first)}

    async def seal(self, secret: bytes, *, purpose: str) -> tuple[str, str]:
        return await self._first.seal(secret, purpose=purpose)

    async def open(self, text: str, *, purpose: str) -> bytes:
        sealer = self._by_scheme.get(text.partition(":")[0])
        if sealer is None:
            raise ConfigurationError(
                "A secret was sealed by a provider that is not configured here; set its key settings."
            )
        return await sealer.open(text, purpose=purpose)


def split(text: str, parts: int) -> Sequence[str]:
    """The parts of a sealed text. AWS key names contain colons, so the middle part takes the rest."""
    fields = text.split(":")
    if len(fields) < parts:
        raise ConfigurationError("A sealed secret has an unknown format.")
    tail = fields[len(fields) - (parts - 2) :]
    return [fields[0], ":".join(fields[1 : len(fields) - (parts - 2)]), *tail]


def decoded(data: str) -> bytes:
    try:
        return base64.b64decode(data, validate=True)
    except binascii.Error:
        raise ConfigurationError("A sealed secret was modified after sealing.") from None
