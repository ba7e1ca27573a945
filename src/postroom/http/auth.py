"""Authentication by `Authorization: Bearer pr_…`: looked up by hash and cached briefly.

A key found in the database is cached for `CACHE_S` seconds; for this time a key revoked in another process can still be
used here. Unknown keys are not cached: a new key works at once, and text that cannot be a key causes no query.

Keys are looked up with one statement at a time, which takes all that wait, so that any number of wrong keys occupies
one connection. An address with `WRONG_KEYS` invalid keys within a minute gets 429 for further ones. A valid key always
passes: many clients may share an address, and one of them cannot lock out another.
"""

import hashlib
import hmac
import secrets
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta

from postroom.db.pool import Pool
from postroom.errors import KeyExpired, PostroomError, ScopeMissing, Unauthenticated, WrongKeysTooOften
from postroom.http import store
from postroom.http.model import ApiKey
from postroom.runtime.combiner import Combiner
from postroom.runtime.peers import WrongKeyCounter

CACHE_S = 5.0  # a revoked key works at most this long in another process
CACHE_SIZE = 1000  # keys; bounds memory
WRONG_KEYS = 100  # per address and minute: allows a misconfigured fleet behind one NAT, stops guessing
TOUCH_AFTER = timedelta(minutes=1)  # one write per key and minute instead of one per request

KEY_PREFIX = "pr_"
_SHOWN = 8  # characters after `pr_` that people may see to tell keys apart: 48 of 256 bits
_KEY_LENGTH = len(KEY_PREFIX) + 43  # 32 bytes in base64


class Authenticator:
    """Finds the key behind a request and checks what it may do."""

    def __init__(self, pool: Pool, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._pool, self._monotonic = pool, monotonic
        self._look_ups = Combiner[bytes, ApiKey | None](self._look_up)
        self._known: dict[bytes, tuple[float, ApiKey]] = {}
        self.wrong = WrongKeyCounter(most=WRONG_KEYS, monotonic=monotonic)

    async def authenticate(self, authorization: str | None, scope: str, *, client: str = "") -> ApiKey:
        """The key of the request. Raises `Unauthenticated` without a valid one, `ScopeMissing` if it lacks the scope.

        An expired key raises `KeyExpired`, which names it: the client has proven that it is its own.

        Wrong keys count against the address of `client`; too many of them raise `WrongKeysTooOften`.
        """
        key = await self._find(_bearer(authorization), client)
        if key.expires_at is not None and key.expires_at <= datetime.now(UTC):
            raise KeyExpired(key.name, key.expires_at)
        if not key.allows(scope):
            raise ScopeMissing(scope)
        return key

    def forget(self, key_id: int) -> None:
        """Stop trusting a key at once; called when it was revoked here."""
        self._known = {digest: known for digest, known in self._known.items() if known[1].id != key_id}

    async def _find(self, presented: str, client: str) -> ApiKey:
        digest = hash_key(presented)
        known = self._known.get(digest)
        if known is not None and known[0] > self._monotonic():
            return known[1]
        key = await self._look_ups.submit(digest)
        if key is None:
            self._known.pop(digest, None)
            raise self._refusal(client)
        if len(self._known) >= CACHE_SIZE:
            self._known.clear()
        self._known[digest] = (self._monotonic() + CACHE_S, key)
        return key

    def _refusal(self, client: str) -> PostroomError:
        """Count a wrong key against the address of the client."""
        if not client:
            return Unauthenticated()
        is_limited = self.wrong.wait_s(client)
        self.wrong.failed(client)
        return WrongKeysTooOften() if is_limited else Unauthenticated()

    async def _look_up(self, digests: Sequence[bytes]) -> list[ApiKey | None]:
        async with self._pool.acquire() as connection:
            found = await store.find_keys(connection, key_hashes=list(digests))
            used = datetime.now(UTC) - TOUCH_AFTER
            for key, _stored in found:
                if key.last_used_at is None or key.last_used_at < used:
                    await store.touch_key(connection, key_id=key.id)
        # The index finds by equality of hashes, which tells nothing about the key; the comparison that decides takes
        # the same time wherever two hashes differ.
        return [next((key for key, stored in found if hmac.compare_digest(stored, digest)), None) for digest in digests]


def _bearer(authorization: str | None) -> str:
    scheme, _, presented = (authorization or "").partition(" ")
    presented = presented.strip()
    if scheme.lower() != "bearer" or not looks_like_key(presented):
        raise Unauthenticated
    return presented


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
