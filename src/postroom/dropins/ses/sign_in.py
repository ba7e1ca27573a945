"""Check the signature of a request before its body is held.

| client                                             | before its signature is verified, the process          |
|----------------------------------------------------|--------------------------------------------------------|
| signs the hash of the body (`X-Amz-Content-SHA256`) | reads nothing                                         |
| names its key by an id that cannot be guessed      | reads the body, because the signature covers it        |
| names its key by an id of release 0.1.0            | holds 64 kB; hashes a larger body and drops it         |

A dropped body whose signature is valid is asked for again (503): AWS's libraries repeat the request, and the second one
is read, because the same client sends as many bytes for the same key. A number that no key has is answered like a wrong
signature.
"""

import re
import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from postroom.db.pool import Pool
from postroom.dropins.endpoint import WRITE, HashedBody, read_hashed
from postroom.dropins.ses import store
from postroom.dropins.ses.credentials import NamedKey, SesKey, derive_credentials, parse_access_key
from postroom.errors import KeyExpired, ScopeMissing
from postroom.runtime.aws import (
    Authorization,
    SignatureRefused,
    announced_content,
    check_content,
    parse_authorization,
    verify,
)
from postroom.runtime.combiner import Combiner
from postroom.runtime.endpoint import Call
from postroom.runtime.peers import WrongKeyCounter, network_of

SERVICE = "ses"
UNVERIFIED_BYTES = 64 * 1024  # a usual mail; larger ones are asked for again
_TOUCH_AFTER = timedelta(minutes=1)  # one write per key and minute
_REPEAT_S = 300.0  # AWS's libraries repeat a request within seconds
_MOST_EXPECTED = 1000  # bodies; bounds memory

_SIZE = re.compile(r"[0-9]{1,12}")
_NO_KEY = SesKey(0, datetime.fromtimestamp(0, UTC), "", ())


class KeyUnknown(Exception):  # noqa: N818 - a condition, like the leaves of errors.py
    """The access key is not one of ours, or was revoked."""


class BodyDropped(Exception):  # noqa: N818 - a condition, like the leaves of errors.py
    """The signature is valid; the body was too large to be held before that was known. Repeat the request."""

    def __init__(self) -> None:
        super().__init__(
            "Repeat the request: this access key id can be guessed, so the signature of a large body is verified "
            "first. Use the access key id that `postroom keys ses-credentials` prints now."
        )


@dataclass(frozen=True, slots=True)
class SigningKey:
    """The key that the request claims to be signed with."""

    key: SesKey
    claim: Authorization
    secret_access_key: str
    is_guessable: bool

    def signed(self, call: Call, name: str) -> str | None:
        """A header of the request if the signature covers it; proxies could add or change the others."""
        return call.headers.get(name) if name in self.claim.signed_headers else None

    def verify(self, call: Call, content: str) -> None:
        """Raises `SignatureRefused` if the signature is invalid for a body with this SHA-256.

        A signer whose key has expired or may not send gets `KeyExpired` or `ScopeMissing`.
        """
        now = datetime.now(UTC)
        verify(
            self.claim,
            call.method,
            target=call.target,
            headers=call.headers,
            content=content,
            secret_access_key=self.secret_access_key,
            now=now,
        )
        if self.key.expires_at is not None and self.key.expires_at <= now:
            raise KeyExpired(self.key.name, self.key.expires_at)
        if not self.key.allows(WRITE):
            raise ScopeMissing(WRITE)


class SesSignIn:
    """The keys of a room, and what a process remembers between two requests of a client."""

    def __init__(self, pool: Pool, wrong: WrongKeyCounter, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._pool, self._wrong, self._monotonic = pool, wrong, monotonic
        # One statement at a time: wrong signatures, however many, occupy one connection.
        self._keys = Combiner[int, SesKey | None](self._find_keys)
        self._no_secret = secrets.token_urlsafe(32)
        self._expected: dict[tuple[str, int, int], float] = {}

    async def read(self, call: Call) -> tuple[SigningKey, bytes]:
        """The signer of a request and its verified body.

        Raises `SignatureRefused` without a valid signature, `KeyUnknown` for an unknown key, and `BodyDropped`.
        """
        try:
            signer = await self._find_signer(call)
            content = announced_content(signer.claim, call.headers)
            if content is None:
                body = await self._read_unverified(call, signer)
            else:
                signer.verify(call, content)
                body = await read_hashed(call)
                check_content(call.headers, body.sha256)
        except (SignatureRefused, KeyUnknown):
            if call.client:
                self._wrong.failed(call.client)
            raise
        if signer.key.last_used_at is None or signer.key.last_used_at < datetime.now(UTC) - _TOUCH_AFTER:
            await store.touch_key(self._pool, key_id=signer.key.id)
        if body.raw is None:
            self._expect(call, signer, body.size)
            raise BodyDropped
        return signer, body.raw

    async def _read_unverified(self, call: Call, signer: SigningKey) -> HashedBody:
        is_held = not signer.is_guessable or self._is_expected(call, signer)
        body = await read_hashed(call, most_held=None if is_held else UNVERIFIED_BYTES)
        signer.verify(call, body.sha256)
        return body

    def _expect(self, call: Call, signer: SigningKey, size: int) -> None:
        """Let the next request of this client hold a body of this size."""
        now = self._monotonic()
        self._expected = {each: until for each, until in self._expected.items() if until > now}
        if len(self._expected) < _MOST_EXPECTED:
            self._expected[network_of(call.client), signer.key.id, size] = now + _REPEAT_S

    def _is_expected(self, call: Call, signer: SigningKey) -> bool:
        announced = call.headers.get("content-length", "")
        size = int(announced) if _SIZE.fullmatch(announced) else -1
        return self._expected.pop((network_of(call.client), signer.key.id, size), 0.0) > self._monotonic()

    async def _find_signer(self, call: Call) -> SigningKey:
        claim = parse_authorization(call.headers.get("authorization"))
        if claim.service != SERVICE:
            raise SignatureRefused("mismatch", f"The request must be signed for the service {SERVICE}.")
        room, secret_key = call.room.name, call.room.settings.secret_key
        named = None if secret_key is None else parse_access_key(claim.access_key_id, room=room, secret_key=secret_key)
        if named is None or secret_key is None:
            raise KeyUnknown
        key = await self._keys.submit(named.id)
        if key is None:
            return self._no_signer(named, claim)
        pair = derive_credentials(key, room=room, secret_key=secret_key)
        return SigningKey(key, claim, pair.secret_access_key, named.is_guessable)

    def _no_signer(self, named: NamedKey, claim: Authorization) -> SigningKey:
        """For a guessed number without a key: a signer whose signature never matches, so that numbers tell nothing."""
        if not named.is_guessable:
            raise KeyUnknown
        return SigningKey(_NO_KEY, claim, self._no_secret, is_guessable=True)

    async def _find_keys(self, key_ids: Sequence[int]) -> list[SesKey | None]:
        found = {key.id: key for key in await store.find_keys(self._pool, key_ids=list(key_ids))}
        return [found.get(key_id) for key_id in key_ids]
