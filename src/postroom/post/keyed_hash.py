"""HMAC-SHA256 with a prepared key (RFC 2104), for values that every mail needs. Pure.

`hmac.HMAC` wraps each step in Python code: a copy with its digest takes 0.8 µs, and 0.5 µs here. A mail of a campaign
with five links has eight of them.
"""

import hashlib

_BLOCK = 64  # of SHA-256
_INNER, _OUTER = (bytes(byte ^ mask for byte in range(256)) for mask in (0x36, 0x5C))


class KeyedHash:
    """The HMAC of texts that start with `prefix`."""

    __slots__ = ("_inner", "_outer")

    def __init__(self, key: bytes, prefix: bytes = b"") -> None:
        block = (hashlib.sha256(key).digest() if len(key) > _BLOCK else key).ljust(_BLOCK, b"\0")
        self._inner = hashlib.sha256(block.translate(_INNER) + prefix)
        self._outer = hashlib.sha256(block.translate(_OUTER))

    def digest(self, text: bytes) -> bytes:
        inner, outer = self._inner.copy(), self._outer.copy()
        inner.update(text)
        outer.update(inner.digest())
        return outer.digest()
