"""Reading a relay from its URL."""

from pathlib import Path

import pytest

from postroom.transports.smtp import SmtpRelay


@pytest.mark.parametrize(
    "url, expected",
    [
        ("smtp://mail.example.org", SmtpRelay("mail.example.org", 587, tls="starttls")),
        ("smtp://mail.example.org:25?tls=none", SmtpRelay("mail.example.org", 25, tls="none", verify=False)),
        (
            "smtp://mail.example.org?tls=opportunistic",
            SmtpRelay("mail.example.org", 587, tls="opportunistic", verify=False),
        ),
        (
            "smtp://u%40x:p%3A%2F@mail.example.org:2525?tls=starttls",
            SmtpRelay("mail.example.org", 2525, "u@x", "p:/", "starttls"),
        ),
        ("smtps://mail.example.org", SmtpRelay("mail.example.org", 465, tls="implicit")),
        (
            "smtps://mail.example.org:4650?ca_file=/etc/ca.pem",
            SmtpRelay("mail.example.org", 4650, tls="implicit", ca_file=Path("/etc/ca.pem")),
        ),
        ("smtp://mail.example.org?verify=no", SmtpRelay("mail.example.org", 587, verify=False)),
        ("smtp://127.0.0.1:1025", SmtpRelay("127.0.0.1", 1025, tls="opportunistic", verify=False)),
        ("smtp://localhost:1025", SmtpRelay("localhost", 1025, tls="opportunistic", verify=False)),
        ("smtp://[::1]:1025", SmtpRelay("::1", 1025, tls="opportunistic", verify=False)),
        ("smtp://127.0.0.1:1025?tls=starttls", SmtpRelay("127.0.0.1", 1025, tls="starttls", verify=True)),
    ],
)
def test_a_url_names_a_relay(url: str, expected: SmtpRelay) -> None:
    """Strict away from loopback, lenient on it, and a parameter always wins."""
    assert SmtpRelay.parse(url) == expected


@pytest.mark.parametrize(
    "url, reason",
    [
        ("http://user:hunter2@mail.example.org", "scheme"),
        ("smtp://user:hunter2@", "host"),
        ("smtp://user:hunter2@:25", "host"),
        ("smtp://user:hunter2@mail.example.org:99999", "URL"),
        ("smtp://user:hunter2@mail.example.org:0", "port"),
        ("smtp://user:hunter2/x@mail.example.org", "URL"),
        ("smtp://user:12/hunter2@mail.example.org", "follow the host"),
        ("smtp://user:1#hunter2@mail.example.org", "follow the host"),
        ("smtp://user:hunter2@[::1", "URL"),
        ("smtp://user:hunter2\u2100@mail.example.org", "URL"),
        ("smtp://user:hunter2@mail.example.org?tls=maybe", "tls must be"),
        ("smtp://user:hunter2@mail.example.org?tls=implicit", "tls must be"),
        ("smtps://user:hunter2@mail.example.org?tls=none", "first byte"),
        ("smtp://user:hunter2@mail.example.org?tsl=none", "unknown parameter"),
        ("smtp://user:hunter2@mail.example.org?tls=none&tls=none", "twice"),
        ("smtp://user:hunter2@mail.example.org?verify=maybe", "verify must be"),
        ("smtp://user:hunter2@mail.example.org?ca_file=", "ca_file"),
        ("smtp://user:hunter2@mail.example.org?tls=none", "never sent without TLS"),
        ("smtp://user@mail.example.org", "give both user name and password"),
    ],
)
def test_a_wrong_url_is_refused_with_a_reason_and_without_its_secret(url: str, reason: str) -> None:
    """The reason names the fault; no part of the URL is repeated, in the message or in its cause."""
    with pytest.raises(ValueError, match=reason) as caught:
        SmtpRelay.parse(url)
    assert "hunter2" not in repr(caught.value)
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__ or caught.value.__context__ is None


def test_a_password_is_not_part_of_the_representation() -> None:
    """A relay in a log line shows everything but the password."""
    shown = repr(SmtpRelay.parse("smtp://user:hunter2@mail.example.org"))
    assert "hunter2" not in shown
    assert "user" in shown


def test_the_address_of_an_ipv6_relay_is_bracketed() -> None:
    """host:port stays readable when the host has colons of its own."""
    assert SmtpRelay("::1", 25).address == "[::1]:25"
    assert SmtpRelay("mail.example.org", 25).address == "mail.example.org:25"
