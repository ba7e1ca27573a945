"""Mutations of bytes and of JSON values."""

from random import Random
from typing import Any

TOKENS: tuple[bytes, ...] = (
    b"\r\n",
    b"\n",
    b"\r",
    b"\0",
    b"\t",
    b" ",
    b"\xff",
    b"\xc3\x28",
    b"\xed\xa0\x80",
    b"\xe2\x80\xae",
    b"\r\n.\r\n",
    b"\n.\n",
    b"--",
    b"=?utf-8?q?=00?=",
    b"=?x?b?!!?=",
    b";",
    b'"',
    b"\\",
    b"<",
    b">",
    b"(((((((",
    b"@",
    b",",
    b"{{",
    b"}}",
    b"{%",
    b"%}",
    b"{#",
    b"'",
    b"%00",
    b"%s",
    b"../",
    b"0",
    b"-1",
    b"9" * 40,
    b"Content-Type: multipart/mixed; boundary=b",
    b"Content-Transfer-Encoding: base64",
    b"From: ",
    b"\xef\xbb\xbf",
    b"null",
    b"[",
    b"{",
    b"}",
    b"]",
    b"1e999",
)
STRINGS: tuple[str, ...] = (
    "",
    " ",
    "\0",
    "a\0b",
    "\r\nBcc: x@example.org",
    "x" * 300,
    "y" * 70_000,
    "é" * 1000,
    "\u202e",
    "🦊" * 50,
    "\ufeff",
    "../../etc/passwd",
    "'; DROP TABLE deliveries; --",
    "{{ 7*7 }}",
    "{% for a in range(9) %}",
    "<script>",
    "ann@example.org",
    "a@b@c",
    "@",
    "ann@" + "x" * 300,
    "0000-00-00",
    "2030-02-30T00:00:00Z",
    "9999-12-31T23:59:59Z",
    "P1D",
    "NaN",
    "-1",
    "1e400",
    "Europe/London",
    "127.0.0.1",
    "true",
    "*",
    "%",
    "_",
    "a" * 64,
    "2" * 400,
)
NUMBERS: tuple[Any, ...] = (0, -1, 1, 2**31, 2**63, 2**64, -(2**63) - 1, 10**40, 0.1, 1e308, -0.0, 5e-324)
LOOPBACK, LOOPBACK_URL = "127.0.0.1", "https://127.0.0.1:9/"
_PLACES = ("host", "url", "uri", "endpoint", "region")


def mutate(random: Random, data: bytes, most: int = 6) -> bytes:
    """A few edits: delete, repeat, overwrite, insert a token, cut."""
    edited = bytearray(data)
    for _ in range(random.randint(1, most)):
        at = random.randint(0, len(edited))
        length = random.choice((1, 2, 8, 64))
        match random.randrange(6):
            case 0:
                del edited[at : at + length]
            case 1:
                edited[at:at] = edited[at : at + length] * random.choice((1, 2, 30, 500))
            case 2:
                edited[at : at + 1] = bytes([random.randrange(256)])
            case 3 | 4:
                edited[at:at] = random.choice(TOKENS) * random.choice((1, 1, 1, 3, 200))
            case _:
                if random.random() < 0.1:
                    del edited[at:]
    return bytes(edited)


def hostile_value(random: Random, depth: int = 0) -> Any:
    """Some JSON value that the author of an endpoint may not have thought of."""
    match random.randrange(8):
        case 0 | 1 | 2:
            return random.choice(STRINGS)[: 1000 if depth else None]
        case 3:
            return random.choice(NUMBERS)
        case 4:
            return random.choice((None, True, False, [], {}))
        case 5 if depth < 3:
            return [hostile_value(random, depth + 1) for _ in range(random.choice((1, 2, 10)))]
        case 6 if depth < 3:
            return {
                random.choice(STRINGS)[:200]: hostile_value(random, depth + 1) for _ in range(random.choice((1, 10)))
            }
        case _:
            return _nested(random.choice((5, 33, 400)))


def _nested(depth: int) -> Any:
    value: Any = "x"
    for _ in range(depth):
        value = [value]
    return value


def mutate_value(random: Random, value: Any, depth: int = 0) -> Any:
    """The value with one node replaced, removed or added."""
    if isinstance(value, dict) and value and random.random() < 0.85:
        name = random.choice(sorted(value))
        changed = dict(value)
        if random.random() < 0.1:
            del changed[name]
        else:
            changed[name] = mutate_value(random, value[name], depth + 1)
        return changed
    if isinstance(value, list) and value and random.random() < 0.7:
        at = random.randrange(len(value))
        changed_item = mutate_value(random, value[at], depth + 1)
        times = random.choice((1, 1, 1, 20)) if depth < 2 else 1  # at every level of a deep list it would be gigabytes
        return [*value[:at], changed_item, *value[at + 1 :]] * times
    if isinstance(value, str) and random.random() < 0.4:
        return mutate(random, value.encode(errors="replace"), 2).decode(errors="replace")
    return hostile_value(random)


def at_home(value: Any) -> Any:
    """The same value with every place that Postroom might connect to on loopback: the fuzzer reaches no other host."""
    if isinstance(value, list):
        return [at_home(item) for item in value]
    if not isinstance(value, dict):
        return value
    return {
        name: _place(name) if any(word in name.lower() for word in _PLACES) else at_home(item)
        for name, item in value.items()
    }


def _place(name: str) -> str:
    return LOOPBACK if "host" in name.lower() else LOOPBACK_URL
