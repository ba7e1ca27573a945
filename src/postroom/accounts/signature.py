"""Signed secrets of links; each signature is valid for one action.

    base64url, unpadded, of  secret ‖ HMAC-SHA256(key, path ‖ secret)

`path` is the path of the link, `/activate` or `/recover`, so a secret signed for one action is invalid for the other.
Pure; verification takes constant time, and a forged secret never reaches the database.
"""

import base64
import binascii
import hmac

from postroom.accounts.model import Action

PATHS = {Action.ACTIVATION: "/activate", Action.PASSWORD_RECOVERY: "/recover"}

SECRET_BYTES = 32  # 256 bits cannot be guessed, however many tokens exist
SIGNED_LENGTH = 86  # characters: 64 bytes in base64 without padding


def sign(key: bytes, action: Action, secret: bytes) -> str:
    """The signed secret for a link."""
    return base64.urlsafe_b64encode(secret + _digest(key, action, secret)).decode().rstrip("=")


def verify(key: bytes, action: Action, signed: str) -> bytes | None:
    """The secret, if it was signed with this key for this action; otherwise None."""
    if len(signed) != SIGNED_LENGTH or not signed.isascii():
        return None
    try:
        raw = base64.b64decode(signed + "==", altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        return None
    secret = raw[:SECRET_BYTES]
    # Compare the encoded form: decoding ignores four bits of the last character, so 16 spellings would match.
    return secret if hmac.compare_digest(sign(key, action, secret), signed) else None


def open_signed(key: bytes, signed: str) -> tuple[Action, bytes] | None:
    """The action and the secret of a signed secret; tries every action, for constant time."""
    found = [(action, verify(key, action, signed)) for action in Action]
    return next(((action, secret) for action, secret in found if secret is not None), None)


def _digest(key: bytes, action: Action, secret: bytes) -> bytes:
    return hmac.digest(key, PATHS[action].encode() + secret, "sha256")
