"""Codes of authenticator apps, against the numbers of RFC 6238."""

from urllib.parse import parse_qs, urlsplit

import pytest

from postroom.http.totp import STEP_S, code_at, find_step, new_secret, otpauth_uri, written_secret

RFC_SECRET = b"12345678901234567890"


@pytest.mark.parametrize(
    "seconds, code",
    [
        (59, "287082"),
        (1111111109, "081804"),
        (1111111111, "050471"),
        (1234567890, "005924"),
        (2000000000, "279037"),
        (20000000000, "353130"),
    ],
)
def test_codes_are_those_of_the_standard(seconds: int, code: str) -> None:
    """Appendix B of RFC 6238 with SHA-1; its codes of eight digits end with the six of apps."""
    assert code_at(RFC_SECRET, seconds // STEP_S) == code
    assert find_step(RFC_SECRET, code, now=seconds) == seconds // STEP_S


def test_a_code_is_accepted_a_step_early_or_late_and_once() -> None:
    """Clocks differ by some seconds; a code that was used, or one before it, is refused."""
    code, step = code_at(RFC_SECRET, 1000), 1000
    for drift, found in ((-2, None), (-1, step), (0, step), (1, step), (2, None)):
        assert find_step(RFC_SECRET, code, now=(step + drift) * STEP_S) == found
    assert find_step(RFC_SECRET, code, now=step * STEP_S, after=step) is None
    for wrong in ("", "12345", "é23456", code + "0"):
        assert find_step(RFC_SECRET, wrong, now=step * STEP_S) is None


def test_the_address_for_apps_holds_the_secret_and_the_account() -> None:
    """The form of Google Authenticator, which other apps read."""
    secret = new_secret()
    parts = urlsplit(otpauth_uri(secret, account="ada@example.org", issuer="Post room"))
    assert (parts.scheme, parts.netloc, parts.path) == ("otpauth", "totp", "/Post%20room%3Aada@example.org")
    assert parse_qs(parts.query) == {"secret": [written_secret(secret)], "issuer": ["Post room"]}
