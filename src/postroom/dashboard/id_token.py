"""ID tokens of OpenID Connect: the signature and the claims that every token must have. Pure.

RS256 and ES256 are accepted, which providers use; a token names its key, but never whether it is checked.
"""

import base64
import binascii
import hmac
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature
from cryptography.hazmat.primitives.hashes import SHA256

SKEW_S = 60  # clocks of the provider and of this host may differ by a minute
SMALLEST_RSA = 2048  # bits

_LONGEST_TOKEN = 16_384  # bounds the work for a hostile response
_PARTS = 3  # header, payload and signature (RFC 7515)
_ES256_BYTES = 32  # of each of the two numbers of a signature


class IdTokenInvalidError(Exception):
    """The provider's token cannot be trusted; the message names the check that failed and no part of the token."""


def read_id_token(
    token: str, keys: Sequence[Mapping[str, Any]], *, issuer: str, audience: str, nonce: str, now: float
) -> dict[str, Any]:
    """The claims of a token that the issuer signed for this client and this sign-in. Raises `IdTokenInvalidError`."""
    parts = token.split(".")
    if len(token) > _LONGEST_TOKEN or len(parts) != _PARTS or not token.isascii():
        raise IdTokenInvalidError("the ID token is not a signed JWT")
    header, claims = _object(parts[0]), _object(parts[1])
    _check_signature(header, keys, f"{parts[0]}.{parts[1]}".encode(), _decode(parts[2]))
    _check_claims(claims, issuer=issuer, audience=audience, nonce=nonce)
    _check_times(claims, now)
    return claims


def _check_signature(
    header: Mapping[str, Any], keys: Sequence[Mapping[str, Any]], signed: bytes, signature: bytes
) -> None:
    verify = {"RS256": _is_rs256, "ES256": _is_es256}.get(str(header.get("alg")))
    if verify is None or "crit" in header:
        raise IdTokenInvalidError("the ID token is not signed with RS256 or ES256")
    fitting = [key for key in keys if _fits(key, header)]
    if not any(verify(key, signed, signature) for key in fitting):
        raise IdTokenInvalidError("the signature of the ID token is not by a key of the provider")


def _fits(key: Mapping[str, Any], header: Mapping[str, Any]) -> bool:
    is_named = header.get("kid") is None or key.get("kid") == header["kid"]
    return is_named and (key.get("use", "sig"), key.get("alg", header["alg"])) == ("sig", header["alg"])


def _is_rs256(key: Mapping[str, Any], signed: bytes, signature: bytes) -> bool:
    try:
        public = rsa.RSAPublicNumbers(_number(key["e"]), _number(key["n"])).public_key()
        public.verify(signature, signed, padding.PKCS1v15(), SHA256())
    except (InvalidSignature, KeyError, TypeError, ValueError):
        return False
    return key.get("kty") == "RSA" and public.key_size >= SMALLEST_RSA


def _is_es256(key: Mapping[str, Any], signed: bytes, signature: bytes) -> bool:
    if len(signature) != 2 * _ES256_BYTES or (key.get("kty"), key.get("crv")) != ("EC", "P-256"):
        return False
    pair = (int.from_bytes(half) for half in (signature[:_ES256_BYTES], signature[_ES256_BYTES:]))
    try:
        public = ec.EllipticCurvePublicNumbers(_number(key["x"]), _number(key["y"]), ec.SECP256R1()).public_key()
        public.verify(encode_dss_signature(*pair), signed, ec.ECDSA(SHA256()))
    except (InvalidSignature, KeyError, TypeError, ValueError):
        return False
    return True


def _check_claims(claims: Mapping[str, Any], *, issuer: str, audience: str, nonce: str) -> None:
    if claims.get("iss") != issuer:
        raise IdTokenInvalidError("the ID token was issued by another provider")
    audiences = claims.get("aud")
    known = audiences if isinstance(audiences, list) else [audiences]
    is_ours = audience in known and (len(known) == 1 or claims.get("azp") == audience)
    if not is_ours or claims.get("azp", audience) != audience:
        raise IdTokenInvalidError("the ID token is for another client")
    given = claims.get("nonce")
    if not isinstance(given, str) or not hmac.compare_digest(given.encode("utf-8", "replace"), nonce.encode()):
        raise IdTokenInvalidError("the ID token belongs to another sign-in")


def _check_times(claims: Mapping[str, Any], now: float) -> None:
    times = [claims.get("exp"), claims.get("iat"), claims.get("nbf", 0)]
    expires, issued, begins = (each if type(each) in (int, float) else None for each in times)
    if expires is None or issued is None or begins is None:
        raise IdTokenInvalidError("the ID token has no valid times")
    if expires <= now - SKEW_S or max(issued, begins) > now + SKEW_S:
        raise IdTokenInvalidError("the ID token has expired, or is not valid yet")


def _object(text: str) -> dict[str, Any]:
    try:
        return msgspec.json.decode(_decode(text), type=dict[str, Any])
    except (msgspec.MsgspecError, RecursionError, UnicodeError):
        raise IdTokenInvalidError("the ID token is not a signed JWT") from None


def _decode(text: str) -> bytes:
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        raise IdTokenInvalidError("the ID token is not a signed JWT") from None


def _number(text: str) -> int:
    return int.from_bytes(base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True))
