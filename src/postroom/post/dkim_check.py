"""Verification of DKIM signatures (RFC 6376) with keys that are known here, instead of keys from DNS."""

import base64
import binascii
import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from postroom.post.dkim import Algorithm, canonical_body, canonical_value

_END = re.compile(rb"\r?\n\r?\n")
_FIELD_END = re.compile(rb"\r?\n(?![ \t])")
_B_TAG = re.compile(rb"((?:\A|;)\s*b\s*=)[^;]*")
_SPACE = re.compile(r"\s+")


class SignatureResult(StrEnum):
    """The result of a signature, in the words of RFC 8601."""

    PASS = "pass"  # noqa: S105 - the word of the RFC
    FAIL = "fail"
    NEUTRAL = "neutral"  # the signature cannot be read
    UNKNOWN_KEY = "unknown_key"  # the room has no key of this domain and selector


@dataclass(frozen=True, slots=True)
class SignatureCheck:
    """One DKIM-Signature field and its result."""

    domain: str
    selector: str
    algorithm: str
    result: SignatureResult
    reason: str = ""


Verify = Callable[[bytes, bytes], bool]
"""A function from a signature and a SHA-256 digest to whether the key made it."""


def check_signatures(raw: bytes, keys: Mapping[tuple[str, str], Verify]) -> list[SignatureCheck]:
    """The result of each signature of a message. `keys` has the room's keys by domain and selector."""
    end = _END.search(raw)
    head, body = (raw[: end.start()], raw[end.end() :]) if end else (raw, b"")
    fields = [_field(line) for line in _FIELD_END.split(head) if line.strip()]
    body = body.replace(b"\r\n", b"\n").replace(b"\n", b"\r\n")
    return [_check(value, fields, body, keys) for name, value in fields if name.strip().lower() == b"dkim-signature"]


def _field(line: bytes) -> tuple[bytes, bytes]:
    name, _colon, value = line.partition(b":")
    return name, value


def _check(
    value: bytes, fields: Sequence[tuple[bytes, bytes]], body: bytes, keys: Mapping[tuple[str, str], Verify]
) -> SignatureCheck:
    tags = _tags(value)
    domain, selector = tags.get("d", "").lower(), tags.get("s", "").lower()

    def answer(result: SignatureResult, reason: str = "") -> SignatureCheck:
        return SignatureCheck(domain, selector, tags.get("a", ""), result, reason)

    missing = [name for name in ("a", "b", "bh", "d", "h", "s") if not tags.get(name)]
    if missing:
        return answer(SignatureResult.NEUTRAL, f"the tag {missing[0]}= is missing")
    if tags["a"] not in tuple(Algorithm):
        return answer(SignatureResult.NEUTRAL, f"the algorithm {tags['a'][:40]} is not known")
    if _body_hash(tags, body) != tags["bh"]:
        return answer(SignatureResult.FAIL, "the body was changed after it was signed")
    verify = keys.get((domain, selector))
    if verify is None:
        return answer(SignatureResult.UNKNOWN_KEY, "this room has no key of this domain and selector")
    is_valid = verify(_decoded(tags["b"]), _header_digest(tags, value, fields))
    reason = "" if is_valid else "a signed header was changed, or another key made the signature"
    return answer(SignatureResult.PASS if is_valid else SignatureResult.FAIL, reason)


def _tags(value: bytes) -> dict[str, str]:
    pairs = (pair.partition("=") for pair in value.decode("latin-1").split(";"))
    return {name.strip(): _SPACE.sub("", text) for name, _sign, text in pairs if name.strip()}


def _canonical(tags: Mapping[str, str]) -> tuple[str, str]:
    header, _slash, body = tags.get("c", "simple/simple").partition("/")
    return header, body or "simple"


def _body_hash(tags: Mapping[str, str], body: bytes) -> str:
    relaxed = _canonical(tags)[1] == "relaxed"
    canonical = canonical_body(body) if relaxed else body.rstrip(b"\r\n") + b"\r\n"
    if tags.get("l", "").isdigit():
        canonical = canonical[: int(tags["l"])]
    return base64.b64encode(hashlib.sha256(canonical).digest()).decode()


def _header_digest(tags: Mapping[str, str], value: bytes, fields: Sequence[tuple[bytes, bytes]]) -> bytes:
    """The digest of the signed fields, each name from the bottom up, and of the signature without its b= tag."""
    relaxed = _canonical(tags)[0] == "relaxed"
    left = list(reversed(fields))
    lines: list[bytes] = []
    for name in tags["h"].lower().split(":"):
        position = next((n for n, field in enumerate(left) if field[0].strip().lower() == name.encode("latin-1")), None)
        if position is not None:
            lines.append(_line(*left.pop(position), relaxed=relaxed) + b"\r\n")
    own_name = next(name for name, found in fields if found is value)
    lines.append(_line(own_name, _B_TAG.sub(rb"\1", value, count=1), relaxed=relaxed))
    return hashlib.sha256(b"".join(lines)).digest()


def _line(name: bytes, value: bytes, *, relaxed: bool) -> bytes:
    if relaxed:
        return name.strip().lower() + b":" + canonical_value(value)
    return name + b":" + value


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return b""
