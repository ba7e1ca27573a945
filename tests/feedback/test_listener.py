"""The SMTP listener of the bounce address: accepted and rejected mail, without relaying."""

import asyncio
import smtplib
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime
from functools import partial
from smtplib import SMTP
from typing import Any

import pytest
from tests.support.builders import a_mail, accepted, state_of
from tests.support.feedback import DOMAIN, KEY, report, rows, sent, suppressed

from postroom.db.pool import Pool
from postroom.delivery.model import Lane
from postroom.feedback.ingest import KEPT_BYTES
from postroom.feedback.listener import ListenerOptions, bounce_server
from postroom.feedback.reading import ReportReaders
from postroom.feedback.report_rooms import ReportRoom
from postroom.post.message_id import make_message_id
from postroom.post.report import LARGEST, Report, read_report
from postroom.post.return_path import make_return_path
from postroom.runtime.smtp_server import SmtpServer

OPTIONS = ListenerOptions(domain=DOMAIN, port=0, size_limit=1024 * 1024)


@pytest.fixture
async def bounces(pool: Pool) -> AsyncIterator[SmtpServer]:
    async with bounce_server(lambda: [ReportRoom(pool, (KEY,))], OPTIONS) as listening:
        yield listening


async def talk(bounces: SmtpServer, say: Callable[[smtplib.SMTP], Any]) -> Any:
    """An SMTP session in a thread, with the standard library's client."""

    def conversation() -> Any:
        with smtplib.SMTP("127.0.0.1", bounces.port, timeout=60) as client:
            return say(client)

    return await asyncio.to_thread(conversation)


def path(delivery_id: int) -> str:
    return make_return_path(delivery_id, domain=DOMAIN, key=KEY)


FORGED_DSN = """\
From: Mail Delivery System <MAILER-DAEMON@evil.example>
To: postmaster@{domain}
Subject: Undelivered Mail Returned to Sender
MIME-Version: 1.0
Content-Type: multipart/report; report-type=delivery-status; boundary="cut"

--cut
Content-Type: message/delivery-status

Reporting-MTA: dns; mx.evil.example

Final-Recipient: rfc822; {victim}
Action: failed
Status: 5.1.1
Diagnostic-Code: smtp; 550 5.1.1 no such user

--cut
Content-Type: text/rfc822-headers

Message-ID: {message_id}

--cut--
"""


async def test_recipient_cannot_suppress_others_of_a_batch(pool: Pool, bounces: SmtpServer) -> None:
    """A recipient cannot forge a Message-ID of other mails in the same batch.

    The attacker knows their own mail, the time of acceptance that the batch shares, and that ids are consecutive, and
    sends a bounce for each neighbour with a plain hash of these, and with the digest of their own Message-ID. No login
    is needed: `postmaster@` accepts mail from everyone.
    """
    people = ["mallory@evil.example", *(f"person{n}@example.org" for n in range(5))]
    created = datetime.now(UTC)
    ids = await accepted(pool, *(a_mail(each) for each in people), now=created)
    own = make_message_id(ids[0], created, domain="example.org", key=KEY)
    for delivery_id, victim in zip(ids[1:], people[1:], strict=True):
        hashed = make_message_id(delivery_id, created, domain="example.org", key=None)
        copied = own.replace(f"pr.{ids[0]}.", f"pr.{delivery_id}.")
        for forged in (hashed, copied):
            text = FORGED_DSN.format(domain=DOMAIN, victim=victim, message_id=forged).replace("\n", "\r\n")
            await talk(bounces, partial(SMTP.sendmail, from_addr="", to_addrs=[f"postmaster@{DOMAIN}"], msg=text))
    assert await rows(pool, "SELECT DISTINCT is_verified FROM bounces") == [(False,)]
    assert await rows(pool, "SELECT address FROM suppressions") == []
    [code] = await accepted(pool, a_mail(people[1], lane=Lane.AUTH))
    assert await state_of(pool, code) == "queued"


async def test_report_is_accepted_and_recorded(pool: Pool, bounces: SmtpServer) -> None:
    """A report from the null sender to our return path gets 250 after the commit."""
    delivery_id = await sent(pool)
    raw = report("french-unknown").replace(b"\n", b"\r\n")  # the report names no delivery; the envelope does
    await talk(bounces, lambda client: client.sendmail("", [path(delivery_id)], raw))
    assert await suppressed(pool) == [("hard_bounce", "all", None)]
    assert await rows(pool, "SELECT delivery_id, origin FROM bounces") == [(delivery_id, "smtp")]


@pytest.mark.parametrize(
    "address, code",
    [
        (f"bounce+1.aaaaaaaaaaaaaaaa@{DOMAIN}", 550),
        (f"bounce@{DOMAIN}", 550),
        (f"ada@{DOMAIN}", 550),
        ("ada@example.org", 550),
        (path(1).replace(DOMAIN, "example.org"), 550),
        (f"postmaster@{DOMAIN}", 250),
        (f"Abuse@{DOMAIN.upper()}", 250),
        (f"fbl@{DOMAIN}", 250),
        (path(1), 250),
        (path(1).upper(), 250),
    ],
)
async def test_accepted_recipients(bounces: SmtpServer, address: str, code: int) -> None:
    """Return paths with our tag and the role addresses are accepted; other domains never."""

    def say(client: smtplib.SMTP) -> int:
        client.helo("mx.example.org")
        client.mail("")
        return client.rcpt(address)[0]

    assert await talk(bounces, say) == code


async def test_complaint_to_the_feedback_address(pool: Pool, bounces: SmtpServer) -> None:
    """An ARF report has a sender; its proof is inside."""
    delivery_id = await sent(pool)
    raw = report("arf-abuse", delivery_id=delivery_id).replace(b"\n", b"\r\n")
    await talk(bounces, lambda client: client.sendmail("fbl@provider.example", [f"fbl@{DOMAIN}"], raw))
    assert await suppressed(pool) == [("complaint", "all", None)]


async def test_oversized_message_is_rejected(pool: Pool, bounces: SmtpServer) -> None:
    """The reply is 552, and nothing is stored."""
    with pytest.raises(smtplib.SMTPException):
        await talk(bounces, lambda client: client.sendmail("", [path(1)], b"x\r\n" * 600_000))
    assert await rows(pool, "SELECT FROM unread_feedback") == []


async def test_many_lines_are_read_in_large_chunks(
    pool: Pool, bounces: SmtpServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Line by line, 60,000 empty lines blocked the event loop for 99 ms."""
    read, calls = asyncio.StreamReader.readuntil, 0

    async def counted(self: asyncio.StreamReader, separator: bytes = b"\n") -> bytes:
        nonlocal calls
        calls += 1
        return await read(self, separator)

    monkeypatch.setattr(asyncio.StreamReader, "readuntil", counted)
    raw = b"Subject: many\r\n\r\n.first\r\n" + b"\r\n" * 60_000
    await talk(bounces, lambda client: client.sendmail("", [f"postmaster@{DOMAIN}"], raw))
    assert calls < 1000
    assert await rows(pool, "SELECT reason, raw FROM unread_feedback") == [("no_report", raw[:KEPT_BYTES])]


async def test_long_lines_are_accepted(pool: Pool, bounces: SmtpServer) -> None:
    """Reports quote lines beyond the limit of SMTP."""
    raw = b"Subject: hello\r\n\r\n" + b"x" * 20_000 + b"\r\n"
    await talk(bounces, lambda client: client.sendmail("", [f"postmaster@{DOMAIN}"], raw))
    assert len(await rows(pool, "SELECT FROM unread_feedback")) == 1


async def test_unavailable_database_returns_451(pool: Pool, bounces: SmtpServer) -> None:
    """A report is not lost while the database is unavailable, because servers retry after 451."""
    await pool.close()
    with pytest.raises(smtplib.SMTPDataError) as caught:
        await talk(bounces, lambda client: client.sendmail("", [path(1)], report("french-unknown")))
    assert caught.value.smtp_code == 451


async def test_connections_over_the_limit_are_rejected(pool: Pool) -> None:
    """A connection over the limit gets 421, and the others continue."""
    options = ListenerOptions(domain=DOMAIN, port=0, most_connections=1)
    async with bounce_server(lambda: [ReportRoom(pool, (KEY,))], options) as server:

        def say() -> tuple[int, int]:
            with smtplib.SMTP("127.0.0.1", server.port, timeout=60) as first:
                with pytest.raises(smtplib.SMTPException) as caught:
                    smtplib.SMTP("127.0.0.1", server.port, timeout=60)
                return first.noop()[0], caught.value.smtp_code  # type: ignore[attr-defined]

        assert await asyncio.to_thread(say) == (250, 421)


async def test_a_message_for_a_public_address_is_kept_up_to_64_kb(pool: Pool, bounces: SmtpServer) -> None:
    """Anyone may write to the mailboxes; a message to a return path, which proves our mail, is kept up to 256 kB."""
    kept: list[int] = []

    class Counting(ReportReaders):
        async def read(self, raw: bytes) -> Report:
            kept.append(len(raw))
            return read_report(raw)

    raw = b"Subject: long\r\n\r\n" + (b"x" * 70 + b"\r\n") * 5_000
    async with bounce_server(lambda: [ReportRoom(pool, (KEY,))], OPTIONS, readers=Counting()) as listening:
        for address in (f"postmaster@{DOMAIN}", path(1), f"abuse@{DOMAIN}"):
            await talk(listening, partial(SMTP.sendmail, from_addr="", to_addrs=[address], msg=raw))
    assert kept == [64 * 1024, LARGEST, 64 * 1024]
