"""Check the signature of a request: find the API key by the headers, then verify the body.

The key is looked up before the body is read, so that clients without a key cannot make the process hold a body. The
signature is verified afterwards, because it covers the body.
"""

from dataclasses import dataclass
from datetime import UTC, datetime

from postroom.dropins.endpoint import WRITE
from postroom.dropins.ses.credentials import SesKey, derive_credentials, parse_access_key
from postroom.dropins.ses.service import use_key
from postroom.errors import KeyExpired, ScopeMissing
from postroom.runtime.aws import Authorization, SignatureRefused, parse_authorization, verify
from postroom.runtime.endpoint import Call

SERVICE = "ses"


class KeyUnknown(Exception):  # noqa: N818 - a condition, like the leaves of errors.py
    """The access key is not one of ours, or was revoked."""


@dataclass(frozen=True, slots=True)
class SigningKey:
    """The key that the request claims to be signed with."""

    key: SesKey
    claim: Authorization
    secret_access_key: str

    def signed(self, call: Call, name: str) -> str | None:
        """A header of the request if the signature covers it; proxies could add or change the others."""
        return call.headers.get(name) if name in self.claim.signed_headers else None

    def verify(self, call: Call, body: bytes) -> None:
        """Raises `SignatureRefused` if the signature is invalid.

        A signer whose key has expired or may not send gets `KeyExpired` or `ScopeMissing`.
        """
        now = datetime.now(UTC)
        verify(
            self.claim,
            call.method,
            target=call.target,
            headers=call.headers,
            body=body,
            secret_access_key=self.secret_access_key,
            now=now,
        )
        if self.key.expires_at is not None and self.key.expires_at <= now:
            raise KeyExpired(self.key.name, self.key.expires_at)
        if not self.key.allows(WRITE):
            raise ScopeMissing(WRITE)


async def find_signer(call: Call) -> SigningKey:
    """Raises `SignatureRefused` without a signature, `KeyUnknown` for an unknown key."""
    claim = parse_authorization(call.headers.get("authorization"))
    if claim.service != SERVICE:
        raise SignatureRefused("mismatch", f"The request must be signed for the service {SERVICE}.")
    secret_key = call.room.settings.secret_key
    key_id = parse_access_key(claim.access_key_id)
    key = None if key_id is None or secret_key is None else await use_key(call.room.pool, key_id)
    if key is None or secret_key is None:
        raise KeyUnknown
    pair = derive_credentials(key, room=call.room.name, secret_key=secret_key)
    return SigningKey(key, claim, pair.secret_access_key)
