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

OVERSIGNED_HEADERS = frozenset(SIGNED_HEADERS) - {b"message-id", b"list-id", b"feedback-id", b"auto-submitted"}
"""Fields that a forwarder may not add: a second one would change what a person reads or where a reply goes."""

SMALLEST_RSA_KEY_BITS = 1024  # RFC 8301: verifiers reject shorter keys

_SIGNATURE_COLUMNS = 72  # folded below the 78 columns that RFC 5322 recommends
_H_NAMES_PER_LINE = 3  # three of our names stay within 78 columns, the longest ones included
# For these two a search takes two thirds of the time of `in`.
_TWO_SPACES = re.compile(rb"  ")
_SPACE_AT_END = re.compile(rb" \r\n")
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
    public_key: bytes = field(repr=False, compare=False)  # DER, for `verifier_of`

    @classmethod
    def from_pem(cls, domain: str, selector: str, pem: bytes) -> "Signer":
        """Load a private key; ValueError gives the reason why it cannot sign, without its content."""
        names = [_domain_name(domain), _domain_name(selector)]
        return cls(names[0], names[1], *_load_key(pem))

    def sign(self, headers: Sequence[tuple[bytes, bytes]], body: bytes, *, timestamp: int) -> bytes:
        """The whole DKIM-Signature field with its line end, for fields as emitted and a CRLF body."""
        return sign_all((self,), headers, body, timestamp=timestamp)


class _SignedFields(NamedTuple):
    """The fields that a signature covers, for messages with the same field names."""

    h_tag: bytes
    signed: tuple[tuple[bytes, int], ...]
    """The name in lower case with its colon, and the position of the field, in the order of the h= tag."""


class _SignedMessage(NamedTuple):
    """The parts that all signatures of one message share."""

    h_tag: bytes
    canonical_headers: bytes
    body_hash: bytes


def canonical_body(body: bytes) -> bytes:
    """The body by the relaxed rules: single spaces, none at line ends, no empty lines at the end."""
    if b"\t" in body:
        body = body.replace(b"\t", b" ")
    while _TWO_SPACES.search(body) is not None:  # each round halves the runs, so even long runs take few rounds
        body = body.replace(b"  ", b" ")
    if not body.endswith(b"\r\n"):
        body += b"\r\n"
    if _SPACE_AT_END.search(body) is not None:
        body = body.replace(b" \r\n", b"\r\n")
    return _without_last_lines(body)


def _without_last_lines(body: bytes) -> bytes:
    """The body without empty lines at its end; the last line has its line end."""
    if not body.endswith(b"\r\n"):
        return body + b"\r\n"
    if body.endswith(b"\r\n\r\n") or body == b"\r\n":
        body = body.rstrip(b"\r\n")
        return body + b"\r\n" if body else b""
    return body


def canonical_value(value: bytes) -> bytes:
    """A field's value by the relaxed rules: unfolded, single spaces, none at the ends."""
    return b" ".join(value.split())


def sign_all(
    signers: Iterable[Signer],
    headers: Sequence[tuple[bytes, bytes]],
    body: bytes,
    *,
    timestamp: int,
    has_single_spaces: bool = False,
) -> bytes:
    """One DKIM-Signature field per signer, to be placed before the signed message.

    `has_single_spaces`: the body has no tab, no two spaces in a row and none at a line end.
    """
    canonical = _without_last_lines(body) if has_single_spaces else canonical_body(body)
    message = _digestible(headers, canonical)
    return b"".join([_signature(signer, message, timestamp) for signer in signers])


def _digestible(headers: Sequence[tuple[bytes, bytes]], canonical: bytes) -> _SignedMessage:
    fields = _signed_fields(tuple([name for name, _ in headers]))
    lines = [b"%b%b\r\n" % (name, canonical_value(headers[position][1])) for name, position in fields.signed]
    body_hash = hashlib.sha256(canonical).digest()
    return _SignedMessage(fields.h_tag, b"".join(lines), binascii.b2a_base64(body_hash, newline=False))


@lru_cache(maxsize=64)  # mails of one kind have the same fields
def _signed_fields(given: tuple[bytes, ...]) -> _SignedFields:
    present: dict[bytes, list[int]] = {}
    for position, name in enumerate(given):
        present.setdefault(name.lower(), []).append(position)
    names: list[bytes] = []
    signed: list[tuple[bytes, int]] = []
    for name in SIGNED_HEADERS:
        for position in reversed(present.get(name, ())):  # verifiers read fields of one name from the bottom up
            names.append(name)
            signed.append((name + b":", position))
        if name in OVERSIGNED_HEADERS:
            names.append(name)
    return _SignedFields(_h_tag(names), tuple(signed))


def _h_tag(names: Sequence[bytes]) -> bytes:
    lines = [b":".join(names[i : i + _H_NAMES_PER_LINE]) for i in range(0, len(names), _H_NAMES_PER_LINE)]
    return b":\r\n  ".join(lines)


def _signature(signer: Signer, message: _SignedMessage, timestamp: int) -> bytes:
    """The field, signed with an empty b= tag, which comes last so that the signature is simply appended."""
    emitted, canonical = _tags(signer.algorithm, signer.domain, signer.selector, message.h_tag)
    changing = timestamp, message.body_hash
    digest = hashlib.sha256(message.canonical_headers + canonical % changing).digest()
    signature = binascii.b2a_base64(signer.sign_digest(digest), newline=False)
    columns = range(0, len(signature), _SIGNATURE_COLUMNS)
    folded = b"\r\n ".join([signature[i : i + _SIGNATURE_COLUMNS] for i in columns])
    return b"%b%b\r\n" % (emitted % changing, folded)


@lru_cache(maxsize=64)
def _tags(algorithm: Algorithm, domain: str, selector: str, h_tag: bytes) -> tuple[bytes, bytes]:
    """The field up to its signature, as emitted and in canonical form, without timestamp and hash of the body."""
    value = b"v=1; a=%b; c=relaxed/relaxed;\r\n d=%b;\r\n s=%b; t=%%d;\r\n bh=%%b;\r\n h=%b;\r\n b=" % (
        algorithm.encode(),
        domain.encode(),
        selector.encode(),
        h_tag,
    )
    return b"DKIM-Signature: " + value, b"dkim-signature:" + canonical_value(value)


def verifier_of(public_key: bytes) -> Callable[[bytes, bytes], bool]:
    """A function from a signature and a SHA-256 digest to whether the key made it."""
    key = serialization.load_der_public_key(public_key)
    if isinstance(key, ed25519.Ed25519PublicKey):
        return _verifying(key.verify)
    assert isinstance(key, rsa.RSAPublicKey), "the key of a signer"
    return _verifying(partial(_verify_rsa, key))


def _load_key(pem: bytes) -> tuple[Algorithm, Callable[[bytes], bytes], bytes]:
    try:
        key = serialization.load_pem_private_key(pem, password=None)
    except (TypeError, ValueError, UnsupportedAlgorithm):
        raise ValueError("the DKIM key is not an unencrypted private key in PEM form") from None
    if isinstance(key, ed25519.Ed25519PrivateKey):
        return Algorithm.ED25519_SHA256, key.sign, _der(key.public_key())
    if isinstance(key, rsa.RSAPrivateKey):
        return Algorithm.RSA_SHA256, _rsa_signing(key), _der(key.public_key())
    raise ValueError("the DKIM key is neither RSA nor Ed25519")


def _rsa_signing(key: rsa.RSAPrivateKey) -> Callable[[bytes], bytes]:
    if key.key_size < SMALLEST_RSA_KEY_BITS:
        raise ValueError(f"the DKIM key has {key.key_size} bits; receivers ignore fewer than {SMALLEST_RSA_KEY_BITS}")
    scheme = padding.PKCS1v15()
    prehashed = Prehashed(hashes.SHA256())

    def sign_digest(digest: bytes) -> bytes:
        return key.sign(digest, scheme, prehashed)

    return sign_digest


def _der(key: ed25519.Ed25519PublicKey | rsa.RSAPublicKey) -> bytes:
    return key.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)


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
