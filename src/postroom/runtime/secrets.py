"""Secrets at rest: sealed with AES-256-GCM under a key derived from POSTROOM_SECRET_KEY.

A secret sealed for one purpose cannot be opened for another; the purpose names the kind and the row of the secret. A
key has an id, so that after a change of the installation's key the old one can still open the secrets it sealed.
"""

import hashlib
import hmac
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from postroom.errors import ConfigurationError, SecretKeyMissing

_NONCE = 12  # bytes (AES-GCM, NIST SP 800-38D)
_LABEL = b"postroom:seal:v1"


@dataclass(frozen=True, slots=True)
class Sealed:
    """A sealed secret for storage."""

    key_id: str
    data: bytes = field(repr=False)  # nonce, ciphertext, tag


class SecretBox:
    """Seals with the first key and opens with any; without a key it can do neither."""

    def __init__(self, keys: Sequence[bytes]) -> None:
        derived = [hmac.digest(key, _LABEL, hashlib.sha256) for key in keys]
        self._keys = {hashlib.sha256(key).hexdigest()[:16]: AESGCM(key) for key in derived}

    @property
    def key_ids(self) -> frozenset[str]:
        """The ids of the keys that it can open with."""
        return frozenset(self._keys)

    def seal(self, secret: bytes, *, purpose: str) -> Sealed:
        """Raises `SecretKeyMissing`."""
        if not self._keys:
            raise SecretKeyMissing
        key_id, key = next(iter(self._keys.items()))
        nonce = secrets.token_bytes(_NONCE)
        return Sealed(key_id, nonce + key.encrypt(nonce, secret, purpose.encode()))

    def open(self, sealed: Sealed, *, purpose: str) -> bytes:
        """Raises `ConfigurationError` if the key is unknown, or the data were changed."""
        key = self._keys.get(sealed.key_id)
        if key is None:
            raise ConfigurationError(
                f"A secret was sealed with the unknown key {sealed.key_id}; add that key to POSTROOM_OLD_SECRET_KEYS."
            )
        try:
            return key.decrypt(sealed.data[:_NONCE], sealed.data[_NONCE:], purpose.encode())
        except InvalidTag as error:
            raise does_not_open(purpose) from error


def does_not_open(purpose: str) -> ConfigurationError:
    return ConfigurationError(
        f"The {purpose} does not open: its ciphertext was changed, or copied from another row. Set the secret again."
    )
