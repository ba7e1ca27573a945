"""Mail to mutate: reports of the test suite, and messages built to hurt a parser."""

from functools import cache
from pathlib import Path
from random import Random

from fuzz.mutate import TOKENS, mutate

_REPORTS = Path(__file__).parents[2] / "tests" / "post" / "reports"
_PLAIN = b"From: Ann <ann@example.org>\r\nTo: bob@example.org\r\nSubject: Hi\r\n\r\nHello.\r\n"


@cache
def reports() -> tuple[bytes, ...]:
    return tuple(file.read_bytes() for file in sorted(_REPORTS.glob("*.eml")))


def a_mail(random: Random) -> bytes:
    """One message, mutated more or less."""
    match random.randrange(6):
        case 0:
            return mutate(random, _PLAIN)
        case 1:
            return _nested(random)
        case 2:
            return _long_headers(random)
        case 3:
            return _encoded(random)
        case _:
            return mutate(random, random.choice(reports()).replace(b"\r\n", b"\n").replace(b"\n", b"\r\n"))


def _nested(random: Random) -> bytes:
    depth = random.choice((2, 11, 60, 600))
    parts = b"".join(b'Content-Type: multipart/mixed; boundary="b%d"\r\n\r\n--b%d\r\n' % (n, n) for n in range(depth))
    return _PLAIN.partition(b"\r\n\r\n")[0] + b"\r\n" + parts + b"\r\n" * random.choice((1, 1000, 60_000))


def _long_headers(random: Random) -> bytes:
    name = random.choice(
        (b"To", b"Subject", b"References", b"Received", b"Content-Type", b"Content-Disposition", b"X-Tag")
    )
    piece = random.choice((*TOKENS, b"a@example.org, ", b"=?utf-8?q?x?= ", b"(", b"<a@b> ", b"; a*0*=x"))
    value = piece.replace(b"\r\n", b"\r\n ") * random.choice((10, 1000, 8000))
    return name + b": " + value + b"\r\n" + _PLAIN


def _encoded(random: Random) -> bytes:
    encoding = random.choice((b"base64", b"quoted-printable", b"x-uuencode", b"8bit", b"\xff"))
    charset = random.choice(
        (b"utf-8", b"utf-7", b"unicode_escape", b"rot13", b"idna", b"hex", b"utf-16", b"x" * 500, b"undefined")
    )
    head = b"Content-Type: text/plain; charset=" + charset + b"\r\nContent-Transfer-Encoding: " + encoding + b"\r\n"
    body = random.choice((b"=\r\n" * 500, b"AAAA" * 5000, b"begin 644 x\r\n" * 50, b"+AGEAYg-", b"\xff\xfe" * 200))
    return head + _PLAIN.replace(b"Hello.", body)
