"""Parsing of reports: one row per file of the folder, and hostile input."""

import time

import pytest
from tests.support.feedback import REPORTS, report

from postroom.feedback.model import classify
from postroom.post.report import ReportKind, read_report

READINGS: dict[str, tuple[str, list[tuple[str | None, str | None]]]] = {
    "arf-abuse": ("complaint", [("ada@example.org", None)]),
    "arf-auth-failure": ("other", []),
    "arf-not-spam": ("other", []),
    "arf-opt-out": ("unsubscribe", [("ada@example.org", None)]),
    "arf-redacted": ("complaint", [(None, None)]),
    "broken-headers": ("other", []),
    "exchange-2003": ("bounce", [("ada@example.org", "recipient_hard")]),
    "exchange-blocked-sender": ("bounce", [("ada@example.org", "policy")]),
    "exchange-ndr": ("bounce", [("ada@example.org", "recipient_hard")]),
    "exchange-over-quota": ("bounce", [("ada@example.org", "recipient_soft")]),
    "exim-unrouteable": ("bounce", [("ada@example.org", "recipient_hard")]),
    "exim-warning": ("delay", []),
    "delay-auto-replied": ("delay", []),
    "forged-arf": ("complaint", [("ada@example.org", None)]),
    "forged-dsn": ("bounce", [("ada@example.org", "recipient_hard")]),
    "forwarded-elsewhere": ("bounce", [("countess@elsewhere.example", "recipient_hard")]),
    "french-unknown": ("bounce", [("ada@example.org", "recipient_hard")]),
    "german-full": ("bounce", [("ada@example.org", "recipient_soft")]),
    "gmail-no-account": ("bounce", [("ada@example.org", "recipient_hard")]),
    "gmail-reputation": ("bounce", [("ada@example.org", "policy")]),
    "html-only": ("bounce", [("ada@example.org", "recipient_hard")]),
    "internationalised": ("bounce", [("jörg@example.org", "recipient_hard")]),
    "original-recipient": (
        "bounce",
        [("benjamin@inside.example", "recipient_hard"), ("c@inside.example", "recipient_hard")],
    ),
    "out-of-office": ("auto_reply", []),
    "outlook-junk-report": ("complaint", [("ada@example.org", None)]),
    "person-writes": ("other", []),
    "postfix-delayed": ("delay", []),
    "postfix-expired": ("bounce", [("ada@example.org", "infrastructure")]),
    "postfix-no-such-domain": ("bounce", [("ada@example.org", "recipient_hard")]),
    "postfix-relayed": ("success", []),
    "postfix-several": ("bounce", [("ada@example.org", "recipient_hard"), ("ben@example.org", "recipient_soft")]),
    "postfix-unknown-user": ("bounce", [("ada@example.org", "recipient_hard")]),
    "qmail-no-mailbox": ("bounce", [("ada@example.org", "recipient_hard")]),
    "qmail-remote-host-said": ("bounce", [("ada@example.org", "unknown"), ("ben@example.org", "policy")]),
    "sendmail-old-style": ("bounce", [("ada@example.org", "recipient_hard")]),
    "sendmail-user-unknown": ("bounce", [("ada@example.org", "recipient_hard")]),
    "spanish-unknown": ("bounce", [("ada@example.org", "recipient_hard")]),
    "vacation-german": ("auto_reply", []),
    "without-blank-lines": ("bounce", [("ada@example.org", "recipient_hard"), ("ben@example.org", "recipient_hard")]),
    "yahoo-disabled": ("bounce", [("ada@example.org", "recipient_hard")]),
    "google-groups-no-group": ("bounce", [("ada@example.org", "policy")]),
    "google-rejected": ("bounce", [("ada@example.org", "policy")]),
    "mdaemon-undelivered": ("bounce", [("ada@example.org", "recipient_hard")]),
    "interscan-undelivered": ("bounce", [("ada@example.org", "recipient_hard")]),
    "notes-not-listed": ("bounce", [("ada@example.org", "recipient_hard")]),
    "imail-unknown-user": ("bounce", [("ada@example.org", "recipient_hard")]),
    "groupwise-name-only": ("bounce", [("ada@example.org", "recipient_hard")]),
    "aol-screen-name": ("bounce", [("ada@example.org", "policy")]),
    "name-without-domain": ("bounce", [("ada@example.org", "unknown")]),
    "dsn-name-only": ("bounce", [("ada@example.org", "recipient_soft")]),
    "reason-in-second-part": ("bounce", [("ada@example.org", "recipient_hard")]),
    "html-beside-the-copy": ("bounce", [("ada@example.org", "recipient_hard")]),
    "spf-rejected": ("bounce", [("ada@example.org", "policy")]),
    "exim-overquota": ("bounce", [("ada@example.org", "recipient_soft")]),
    "postfix-try-again": ("bounce", [("ada@example.org", "infrastructure")]),
    "procmail-died": ("bounce", [("ada@example.org", "infrastructure")]),
    "exim-generated-from": ("bounce", [("ada@example.org", "unknown")]),
    "away-from-postmaster": ("auto_reply", []),
    "person-quotes-a-bounce": ("other", []),
}


def test_every_report_of_the_folder_is_read_here() -> None:
    """No file without its row."""
    assert {path.stem for path in REPORTS.glob("*.eml")} == set(READINGS)


@pytest.mark.parametrize("name", READINGS)
def test_reading(name: str) -> None:
    """Each report has its kind, recipients and scope, with either line end."""
    kind, failures = READINGS[name]
    for raw in (report(name), report(name).replace(b"\n", b"\r\n")):
        read = read_report(raw)
        assert read.kind.value == kind
        told = [
            (each.address, classify(each.code, each.enhanced, each.text).value if kind == "bounce" else None)
            for each in read.failures
        ]
        assert told == failures


@pytest.mark.parametrize("name", ["postfix-unknown-user", "qmail-no-mailbox", "arf-redacted", "german-full"])
def test_traces_of_our_mail_are_in_the_evidence(name: str) -> None:
    """The Message-ID of the mail it is about is found, wherever the server put it."""
    message = "<pr.7.0123456789abcdef@example.org>"
    assert message in read_report(report(name, message=message)).evidence


def test_a_base64_copy_of_our_mail_is_evidence() -> None:
    """Some servers enclose the returned mail encoded."""
    import base64

    copy = base64.encodebytes(b"Message-ID: <pr.7.0123456789abcdef@example.org>\n" * 3).decode()
    raw = (
        "From: mailer-daemon@x.example\nSubject: Undeliverable\nContent-Type: multipart/mixed; boundary=b\n\n"
        f"--b\n\n<ada@example.org>: 550 unknown user\n--b\nContent-Transfer-Encoding: base64\n\n{copy}\n--b--\n"
    )
    assert "<pr.7.0123456789abcdef@example.org>" in read_report(raw.encode()).evidence


def test_the_same_message_has_the_same_identity() -> None:
    """By its Message-ID, or by its bytes where it has none."""
    raw = report("qmail-no-mailbox")
    moved = b"Received: from somewhere\n" + raw
    assert read_report(raw).identity == read_report(moved).identity
    nameless = raw.replace(b"Message-ID: <qmail", b"X-Was: <qmail")
    assert read_report(nameless).identity == read_report(nameless).identity != read_report(raw).identity


def nested(depth: int) -> bytes:
    head = b"Subject: Undeliverable\nFrom: mailer-daemon@x.example\n"
    for number in range(depth):
        head += b'Content-Type: multipart/mixed; boundary="b%d"\n\n--b%d\n' % (number, number)
    return head + b"Content-Type: text/plain\n\n<ada@example.org>: 550 5.1.1 unknown user\n"


HOSTILE = {
    "nothing": b"",
    "only a newline": b"\n",
    "zeros": bytes(10_000),
    "every byte": bytes(range(256)) * 50,
    "deep": nested(3000),
    "many parts": b"Content-Type: multipart/mixed; boundary=b\n\n" + b"--b\n\nx\n" * 20_000,
    "long line": b"From: mailer-daemon@x.example\nSubject: Undeliverable\n\n" + b"a@" * 500_000,
    "addresses": b"From: mailer-daemon@x.example\nSubject: Undeliverable\n\n" + b"<a@b.example>: 550 no\n" * 50_000,
    "header bomb": b"From: mailer-daemon@x.example\n" + b"X: y\n" * 100_000 + b"\n550",
    "encoded words": b"Subject: " + b"=?utf-8?b?4oKs?= " * 20_000 + b"\n\nx",
    "bad charset": b"Content-Type: text/plain; charset=\xff\xfe\nContent-Transfer-Encoding: base64\n\n!!!!",
    "status of lists": b"Content-Type: message/delivery-status\n\n"
    + b"Final-Recipient: rfc822; a@b.example\n\n" * 30_000,
    "20 megabytes": b"From: mailer-daemon@x.example\nSubject: Undeliverable\n\n" + b"lorem ipsum dolor\n" * 1_200_000,
    "spaces": b"From: mailer-daemon@x.example\nSubject: Undeliverable\n\n" + b" " * 1_000_000,
    "tags": b"From: mailer-daemon@x.example\nContent-Type: text/html\n\n" + b"<" * 300_000,
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_mail_is_read_quickly_and_never_raises(name: str) -> None:
    """Hostile mail is parsed in bounded time without an exception."""
    started = time.process_time()
    assert read_report(HOSTILE[name]).kind in ReportKind
    assert time.process_time() - started < 60  # of work, however slow the machine is and however long it stalls


def test_a_report_before_20_megabytes_is_still_read() -> None:
    """The reasons come first; what follows them may be as long as it likes."""
    raw = report("qmail-no-mailbox") + b"lorem ipsum\n" * 1_700_000
    assert read_report(raw).kind is ReportKind.BOUNCE


def test_deep_nesting_is_flattened_and_read_as_text() -> None:
    """A report hidden beyond reason is still seen as what its words say."""
    assert [each.address for each in read_report(nested(100)).failures] == ["ada@example.org"]
