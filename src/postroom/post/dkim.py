"""DKIM signatures (RFC 6376), relaxed/relaxed, by RSA (RFC 8301) and Ed25519 (RFC 8463).

A `Signer` holds one key of one domain, loaded once. `sign_all` puts several signatures on one message, so
that receivers which do not know Ed25519 yet find an RSA one beside it; the message is canonicalised once for
all. Fields for author, recipients, displayed content and links are over-signed: a second field
of that name, added on the way, breaks the signature.
"""

import binascii
import hashlib
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import lru_cache, partial
from typing import NamedTuple

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ed25519, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import Prehashed

SIGNED_HEADERS = (
    b"from",
    b"to",
    b"cc",
    b"subject",
    b"date",
    b"message-id",
    b"mime-version",
    b"content-type",
    b"content-transfer-encoding",
    b"reply-to",
    b"list-unsubscribe",
    b"list-unsubscribe-post",
    b"list-id",
    b"feedback-id",
    b"auto-submitted",
)
"""Fields that a signature covers if present, in the order of the h= tag."""

OVERSIGNED_HEADERS = frozenset(
    {
        b"from",
        b"to",
        b"cc",
        b"subject",
        b"date",
        b"mime-version",
        b"content-type",
        b"content-transfer-encoding",
        b"reply-to",
        b"list-unsubscribe",
        b"list-unsubscribe-post",
    }
)

SMALLEST_RSA_KEY_BITS = 1024  # RFC 8301: verifiers reject shorter keys

_SIGNED = frozenset(SIGNED_HEADERS)
_SIGNATURE_COLUMNS = 72  # folded below the 78 columns that RFC 5322 recommends
_H_NAMES_PER_LINE = 3  # three of our names stay within 78 columns, the longest ones included
_DOMAIN_NAME = re.compile(r"[a-z0-9_](?:[a-z0-9_.-]*[a-z0-9])?", re.ASCII)


class Algorithm(StrEnum):
    """The a= tag."""

    ED25519_SHA256 = "ed25519-sha256"
    RSA_SHA256 = "rsa-sha256"


@dataclass(frozen=True, slots=True)
class Signer:
    """One key: the location of its public half, and the signing of a SHA-256 digest."""

    domain: str
    selector: str
    algorithm: Algorithm
    sign_digest: Callable[[bytes], bytes] = field(repr=False, compare=False)
    verify_digest: Callable[[bytes, bytes], bool] = field(repr=False, compare=False)  # of a signature and a digest

    @classmethod
    def from_pem(cls, domain: str, selector: str, pem: bytes) -> "Signer":
        """Load a private key; ValueError gives the reason why it cannot sign, without its content."""
        names = [_domain_name(domain), _domain_name(selector)]
        return cls(names[0], names[1], *_load_key(pem))

    def sign(self, headers: Sequence[tuple[bytes, bytes]], body: bytes, *, timestamp: int) -> bytes:
        """The whole DKIM-Signature field with its line end, for fields as emitted and a CRLF body."""
        return sign_all((self,), headers, body, timestamp=timestamp)


class _SignedMessage(NamedTuple):
    """The parts that all signatures of one message share."""

    h_tag: bytes
    canonical_headers: bytes
    body_hash: bytes


def canonical_body(body: bytes) -> bytes:
    """The body by the relaxed rules: single spaces, none at line ends, no empty lines at the end."""
    if b"\t" in body:
        body = body.replace(b"\t", b" ")
    while b"  " in body:  # each round halves the runs, so even long runs take few rounds
        body = body.replace(b"  ", b" ")
    if not body.endswith(b"\r\n"):
        body += b"\r\n"
    if b" \r\n" in body:  # a search takes a third of the time of `replace`
        body = body.replace(b" \r\n", b"\r\n")
    if body.endswith(b"\r\n\r\n") or body == b"\r\n":
        body = body.rstrip(b"\r\n")
        return body + b"\r\n" if body else b""
    return body


def canonical_value(value: bytes) -> bytes:
    """A field's value by the relaxed rules: unfolded, single spaces, none at the ends."""
    return b" ".join(value.split())


def sign_all(
    signers: Iterable[Signer], headers: Sequence[tuple[bytes, bytes]], body: bytes, *, timestamp: int
) -> bytes:
    """One DKIM-Signature field per signer, to be placed before the signed message."""
    message = _digestible(headers, body)
    return b"".join([_signature(signer, message, timestamp) for signer in signers])


def _digestible(headers: Sequence[tuple[bytes, bytes]], body: bytes) -> _SignedMessage:
    present: dict[bytes, list[bytes]] = {}
    for name, value in headers:
        lowered = name.lower()
        if lowered in _SIGNED:
            present.setdefault(lowered, []).append(value)
    names: list[bytes] = []
    lines: list[bytes] = []
    for name in SIGNED_HEADERS:
        for value in reversed(present.get(name, ())):  # verifiers read fields of one name from the bottom up
            names.append(name)
            lines.append(b"%b:%b\r\n" % (name, canonical_value(value)))
        if name in OVERSIGNED_HEADERS:
            names.append(name)
    body_hash = hashlib.sha256(canonical_body(body)).digest()
    return _SignedMessage(_h_tag(tuple(names)), b"".join(lines), binascii.b2a_base64(body_hash, newline=False))


@lru_cache(maxsize=64)  # mails of one kind have the same fields
def _h_tag(names: tuple[bytes, ...]) -> bytes:
    lines = [b":".join(names[i : i + _H_NAMES_PER_LINE]) for i in range(0, len(names), _H_NAMES_PER_LINE)]
    return b":\r\n  ".join(lines)


def _signature(signer: Signer, message: _SignedMessage, timestamp: int) -> bytes:
    """The field, signed with an empty b= tag, which comes last so that the signature is simply appended."""
    value = b"v=1; a=%b; c=relaxed/relaxed;\r\n d=%b;\r\n s=%b; t=%d;\r\n bh=%b;\r\n h=%b;\r\n b=" % (
        signer.algorithm.encode(),
        signer.domain.encode(),
        signer.selector.encode(),
        timestamp,
        message.body_hash,
        message.h_tag,
    )
    digest = hashlib.sha256(message.canonical_headers + b"dkim-signature:" + canonical_value(value)).digest()
    signature = binascii.b2a_base64(signer.sign_digest(digest), newline=False)
    columns = range(0, len(signature), _SIGNATURE_COLUMNS)
    folded = b"\r\n ".join([signature[i : i + _SIGNATURE_COLUMNS] for i in columns])
    return b"DKIM-Signature: %b%b\r\n" % (value, folded)


def _load_key(pem: bytes) -> tuple[Algorithm, Callable[[bytes], bytes], Callable[[bytes, bytes], bool]]:
    try:
        key = serialization.load_pem_private_key(pem, password=None)
    except (TypeError, ValueError, UnsupportedAlgorithm):
        raise ValueError("the DKIM key is not an unencrypted private key in PEM form") from None
    if isinstance(key, ed25519.Ed25519PrivateKey):
        return Algorithm.ED25519_SHA256, key.sign, _verifying(key.public_key().verify)
    if isinstance(key, rsa.RSAPrivateKey):
        verify = partial(_verify_rsa, key.public_key())
        return Algorithm.RSA_SHA256, _rsa_signing(key), _verifying(verify)
    raise ValueError("the DKIM key is neither RSA nor Ed25519")


def _rsa_signing(key: rsa.RSAPrivateKey) -> Callable[[bytes], bytes]:
    if key.key_size < SMALLEST_RSA_KEY_BITS:
        raise ValueError(f"the DKIM key has {key.key_size} bits; receivers ignore fewer than {SMALLEST_RSA_KEY_BITS}")
    scheme = padding.PKCS1v15()
    prehashed = Prehashed(hashes.SHA256())

    def sign_digest(digest: bytes) -> bytes:
        return key.sign(digest, scheme, prehashed)

    return sign_digest


def _verify_rsa(key: rsa.RSAPublicKey, signature: bytes, digest: bytes) -> None:
    key.verify(signature, digest, padding.PKCS1v15(), Prehashed(hashes.SHA256()))


def _verifying(verify: Callable[[bytes, bytes], None]) -> Callable[[bytes, bytes], bool]:
    """The verification of a key as a function that answers instead of raising."""

    def verify_digest(signature: bytes, digest: bytes) -> bool:
        try:
            verify(signature, digest)
        except InvalidSignature:
            return False
        return True

    return verify_digest


def _domain_name(name: str) -> str:
    lowered = name.lower().rstrip(".")
    if _DOMAIN_NAME.fullmatch(lowered) is None:
        raise ValueError(f"{name!r} is not a domain name in its ASCII form")
    return lowered
