"""One-time codes of authenticator apps: TOTP (RFC 6238) with SHA-1, six digits and 30 seconds, which all apps use."""

import base64
import hmac
import secrets
import struct
from urllib.parse import quote

SECRET_BYTES = 20  # as long as the hash (RFC 4226, section 4)
STEP_S = 30  # RFC 6238 5.2

_DIGITS = 6  # that all apps show
_DRIFT = 1  # steps before and after the present one: clocks differ, and a person types slowly


def new_secret() -> bytes:
    return secrets.token_bytes(SECRET_BYTES)


def code_at(secret: bytes, step: int) -> str:
    """The code of a time step (RFC 4226, section 5.3)."""
    digest = hmac.digest(secret, struct.pack(">Q", step), "sha1")
    offset = digest[-1] & 0x0F
    number = int.from_bytes(digest[offset : offset + 4]) & 0x7FFFFFFF
    return f"{number % 10**_DIGITS:0{_DIGITS}}"


def find_step(secret: bytes, code: str, *, now: float, after: int = 0) -> int | None:
    """The time step of a code; None if it is wrong, or not later than the step of the last code that was used."""
    present = int(now) // STEP_S
    steps = range(max(0, present - _DRIFT), present + _DRIFT + 1)
    right = [step for step in steps if hmac.compare_digest(code_at(secret, step).encode(), code.encode())]
    return next((step for step in right if step > after), None)


def written_secret(secret: bytes) -> str:
    """A secret as people type it into an app."""
    return base64.b32encode(secret).decode()


def otpauth_uri(secret: bytes, *, account: str, issuer: str) -> str:
    """The address that an authenticator app opens."""
    label = quote(f"{issuer}:{account}", safe="@")
    return f"otpauth://totp/{label}?secret={written_secret(secret)}&issuer={quote(issuer, safe='')}"
