"""Postroom's SMTP client and Debian's Postfix, Exim and OpenSMTPD: every mail arrives once."""

import asyncio
import hashlib
import random
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest
from tests.support.patience import PATIENCE_S
from tests.support.smtp_channels import CHANNELS
from tests.support.smtp_server import Letter, Script, Server, envelope, smtp_server
from tests.world.cutting_proxy import Cut, Way, cutting_proxy
from tests.world.mail_servers import MAIL_SERVERS, MailServer, Opening, exim, opensmtpd, postfix

from postroom.post.reply import Reply, Stage
from postroom.post.report import ReportKind, read_report
from postroom.transports.smtp import SmtpTransport, Timeouts
from postroom.transports.smtp.relay import TlsMode

KB, MB = 1_000, 1_000_000
LARGE = [2 * MB, 3 * MB, 5 * MB, 10 * MB, 20 * MB, 25 * MB]
SIZES = [round(KB * 1_000 ** (n / 93)) for n in range(94)] + LARGE
"""A hundred mails: 94 from 1 kB to 1 MB, evenly by magnitude, and six large ones."""
SINK = Script(extensions=("PIPELINING", "SIZE 60000000", "8BITMIME", "SMTPUTF8", "DSN"))

over_tls = pytest.mark.parametrize("tls", ["starttls", "implicit"])
over_each_channel = pytest.mark.parametrize("tls", CHANNELS.values(), ids=CHANNELS.keys())
each_server = pytest.mark.parametrize("opening", MAIL_SERVERS.values(), ids=MAIL_SERVERS.keys())


def letter(name: str, size: int) -> Letter:
    """A mail of this size with content of its own."""
    noise = random.Random(name)
    line = noise.randbytes(36).hex().encode() + b"\r\n"
    return Letter(b"Subject: %s\r\n\r\n" % name.encode() + line * max(size // len(line), 1))


def digest(content: bytes) -> str:
    """A hash of the body: servers add header fields."""
    return hashlib.sha256(content.partition(b"\r\n\r\n")[2]).hexdigest()


@asynccontextmanager
async def relayed(
    opening: Opening, sink_script: Script = SINK, **options: Any
) -> AsyncIterator[tuple[MailServer, Server]]:
    """A mail server and the server of ours that it hands all mail to."""
    async with smtp_server(sink_script) as sink, opening(sink.port, **options) as server:
        yield server, sink


async def arrived(sink: Server, recipients: Iterable[str]) -> None:
    """Wait until mail to these recipients has arrived."""
    wanted = set(recipients)
    async with asyncio.timeout(PATIENCE_S * 5):
        while not wanted <= {message.recipients[0] for message in sink.messages}:  # noqa: ASYNC110 - another program
            await asyncio.sleep(0.02)


async def send_all(transport: SmtpTransport, letters: dict[str, Letter]) -> dict[str, Reply]:
    """Send each letter to its recipient, as many at once as the transport has connections."""
    places = asyncio.Semaphore(transport.max_connections)

    async def send(recipient: str) -> Reply:
        async with places:
            return await transport.send(envelope(recipient), letters[recipient])

    replies = await asyncio.gather(*map(send, letters))
    return dict(zip(letters, replies, strict=True))


async def check_all_arrive_once(opening: Opening, tls: TlsMode, sizes: Sequence[int], connections: int) -> None:
    letters = {f"m{n}@example.org": letter(f"m{n}", size) for n, size in enumerate(sizes)}
    async with relayed(opening) as (server, sink):
        transport = SmtpTransport(server.relay(tls), max_connections=connections)
        replies = await send_all(transport, letters)
        await transport.close()
        assert {(reply.stage, reply.code) for reply in replies.values()} == {(Stage.FINAL, 250)}, server.log()
        assert {reply.tls is None for reply in replies.values()} == {tls == "none"}
        await arrived(sink, letters)
    received = Counter(message.recipients[0] for message in sink.messages)
    assert received == dict.fromkeys(letters, 1)
    assert {message.recipients[0]: digest(message.content) for message in sink.messages} == {
        recipient: digest(each.plain) for recipient, each in letters.items()
    }


async def cut_points(server: MailServer, tls: TlsMode, content: Letter) -> list[tuple[Way, int]]:
    """The moments of a session with one mail: within and after each chunk to the server, before each answer's end."""
    async with cutting_proxy(server.relay(tls).port) as proxy:
        transport = SmtpTransport(server.relay(tls, proxy.port))
        reply = await transport.send(envelope("whole@example.org"), content)
        assert reply.code == 250, server.log()
        await transport.close()
    points: list[tuple[Way, int]] = []
    before = 0
    for way, total in proxy.passed:
        if way is Way.UP:
            points += [(way, (before + total) // 2), (way, total)]
            before = total
        else:
            points.append((way, total - 1))
    return points


def chosen(points: list[tuple[Way, int]], at_most: int) -> dict[str, Cut]:
    """Some of the moments, always the last ones: they lie around the answer to the content."""
    early, late = points[:-8], points[-8:]
    some = random.Random(7).sample(early, min(at_most - 8, len(early)))
    cuts = [Cut(way, after, resets) for way, after in (*some, *late) for resets in (False, True)]
    return {f"c{n}@example.org": cut for n, cut in enumerate(cuts)}


async def send_with_cut(server: MailServer, tls: TlsMode, recipient: str, content: Letter, cut: Cut) -> Reply:
    async with cutting_proxy(server.relay(tls).port, cut) as proxy:
        transport = SmtpTransport(server.relay(tls, proxy.port), timeouts=Timeouts(final=PATIENCE_S))
        reply = await transport.send(envelope(recipient), content)
        await transport.close()
    return reply


async def check_cuts(opening: Opening, tls: TlsMode, size: int, at_most: int) -> None:
    """Cut the line at every moment: mail that the server took is sent or ambiguous."""
    content = letter("cut", size)
    async with relayed(opening) as (server, sink):
        cuts = chosen(await cut_points(server, tls, content), at_most)
        results = {to: await send_with_cut(server, tls, to, content, cut) for to, cut in cuts.items()}
        sent = {recipient for recipient, reply in results.items() if reply.code == 250}
        ambiguous = {to for to, reply in results.items() if reply.code is None and reply.stage is Stage.FINAL}
        transport = SmtpTransport(server.relay(tls))
        for n in range(3):  # behind all that it took
            assert (await transport.send(envelope(f"end{n}@example.org"), content)).code == 250
            await arrived(sink, [f"end{n}@example.org"])
        await transport.close()
        await arrived(sink, sent)
    received = Counter(message.recipients[0] for message in sink.messages if message.recipients[0] in results)
    assert set(received.values()) <= {1}
    deferred = set(results) - sent - ambiguous
    assert not deferred & set(received), {to: (results[to], cuts[to]) for to in deferred & set(received)}
    assert ambiguous & set(received), "no answer was lost: the test proves nothing"
    assert deferred, "no line was cut early: the test proves nothing"


@over_tls
async def test_mail_of_every_size_arrives_once_through_postfix(tls: TlsMode) -> None:
    """The short form: mails of 1 kB to 25 MB over TLS, five at once."""
    await check_all_arrive_once(postfix, tls, [*SIZES[::10], *LARGE[::5]], 5)


@over_tls
async def test_mail_that_postfix_took_before_the_line_was_cut_is_never_deferred(tls: TlsMode) -> None:
    """The short form: a mail of 300 kB and the line cut at sixteen moments."""
    await check_cuts(postfix, tls, 300 * KB, 16)


@pytest.mark.world
@each_server
@over_each_channel
async def test_hundred_mails_arrive_once(opening: Opening, tls: TlsMode) -> None:
    """A hundred mails of 1 kB to 25 MB, ten at once."""
    await check_all_arrive_once(opening, tls, SIZES, 10)


@pytest.mark.world
@each_server
@over_each_channel
@pytest.mark.parametrize("size", [KB, 3 * MB], ids=["1 kB", "3 MB"])
async def test_mail_that_a_server_took_before_the_line_was_cut_is_never_deferred(
    opening: Opening, tls: TlsMode, size: int
) -> None:
    """The line is cut at every moment of a session, by its end and by a reset."""
    await check_cuts(opening, tls, size, 60)


# ── behaviour ─────────────────────────────────────────────────────────────────────────────────────────────────────────

BODY = "Grüße aus Köln"
EIGHT_BIT = Letter(
    b"Subject: 7\r\n\r\nGr=C3=BC=C3=9Fe\r\n",
    f"Subject: 8\r\nContent-Type: text/plain; charset=utf-8\r\n\r\n{BODY}\r\n".encode(),
)
REFUSED = {
    "grey@example.org": "451 4.7.1 Greylisted, try again in 60 seconds",
    "busy@example.org": "421 4.3.2 closing, too busy",
    "gone@example.org": "550 5.1.1 no such user",
}


@pytest.mark.world
@each_server
@over_tls
async def test_servers_take_every_byte(opening: Opening, tls: TlsMode) -> None:
    """All three announce 8BITMIME, so mail is sent as it is and arrives as it was."""
    async with relayed(opening) as (server, sink):
        transport = SmtpTransport(server.relay(tls))
        reply = await transport.send(envelope("a@example.org"), EIGHT_BIT)
        await transport.close()
        assert reply.code == 250, server.log()
        await arrived(sink, ["a@example.org"])
    assert BODY.encode() in sink.messages[0].content


@pytest.mark.world
@each_server
@over_tls
async def test_internationalised_addresses_arrive_or_are_refused_here(opening: Opening, tls: TlsMode) -> None:
    """Postfix and Exim announce SMTPUTF8. OpenSMTPD does not, so the mail is refused before it is offered."""
    recipient = "grüße@example.org"
    async with relayed(opening) as (server, sink):
        transport = SmtpTransport(server.relay(tls))
        reply = await transport.send(envelope(recipient), EIGHT_BIT)
        await transport.close()
        if server.name == "opensmtpd":
            assert (reply.stage, reply.code, reply.enhanced) == (Stage.SENDER, 553, "5.6.7")
            return
        assert reply.code == 250, server.log()
        await arrived(sink, [recipient])


@pytest.mark.world
@each_server
@over_tls
async def test_mail_over_the_size_limit_is_refused_before_it_is_offered(opening: Opening, tls: TlsMode) -> None:
    """The server announces its limit; a mail below it arrives over the same connection."""
    async with relayed(opening, size=100 * KB) as (server, sink):
        transport = SmtpTransport(server.relay(tls), max_connections=1)
        large = await transport.send(envelope("large@example.org"), letter("large", 300 * KB))
        small = await transport.send(envelope("small@example.org"), letter("small", 50 * KB))
        await transport.close()
        assert (large.stage, large.code, large.enhanced) == (Stage.SENDER, 552, "5.3.4")
        assert small.code == 250, server.log()
        await arrived(sink, ["small@example.org"])
    assert len(sink.messages) == 1


@pytest.mark.world
@each_server
@over_tls
async def test_greylisting_and_unknown_recipients_have_the_code_of_the_server(opening: Opening, tls: TlsMode) -> None:
    """A greylisted mail is deferred for the time that the server names; its neighbours on the connection arrive."""
    refused = {recipient: REFUSED[recipient] for recipient in ("grey@example.org", "gone@example.org")}
    recipients = ["one@example.org", "grey@example.org", "two@example.org", "gone@example.org", "three@example.org"]
    async with relayed(opening, refused=refused) as (server, sink):
        transport = SmtpTransport(server.relay(tls), max_connections=1)
        replies = {to: await transport.send(envelope(to), letter(to, KB)) for to in recipients}
        await transport.close()
        fine = [to for to in recipients if to not in refused]
        assert [replies[to].code for to in fine] == [250] * 3, server.log()
        await arrived(sink, fine)
    grey, gone = replies["grey@example.org"], replies["gone@example.org"]
    assert (grey.stage, grey.code, grey.enhanced, grey.retry_after_s) == (Stage.RECIPIENT, 451, "4.7.1", 60.0)
    assert (gone.stage, gone.code, gone.enhanced) == (Stage.RECIPIENT, 550, "5.1.1")
    assert len(sink.messages) == 3


@pytest.mark.world
@pytest.mark.parametrize("opening", [postfix, opensmtpd], ids=["postfix", "opensmtpd"])
@over_tls
async def test_421_in_mid_session_defers_its_mail_alone(opening: Opening, tls: TlsMode) -> None:
    """The server closes at one recipient; the mail behind it goes over a new connection."""
    refused = {"busy@example.org": REFUSED["busy@example.org"]}
    async with relayed(opening, refused=refused) as (server, sink):
        transport = SmtpTransport(server.relay(tls), max_connections=1)
        recipients = ["one@example.org", "busy@example.org", "two@example.org"]
        replies = {to: await transport.send(envelope(to), letter(to, KB)) for to in recipients}
        await transport.close()
        assert [reply.code for reply in replies.values()] == [250, 421, 250], server.log()
        await arrived(sink, ["one@example.org", "two@example.org"])


@pytest.mark.world
@over_tls
async def test_421_of_exim_after_two_mails_moves_the_next_to_a_new_connection(tls: TlsMode) -> None:
    """Exim closes a session after so many mails; none of five is lost or sent twice."""
    async with relayed(exim, more="smtp_accept_max_per_connection = 2") as (server, sink):
        transport = SmtpTransport(server.relay(tls), max_connections=1)
        recipients = [f"{n}@example.org" for n in range(5)]
        replies = [await transport.send(envelope(to), letter(to, KB)) for to in recipients]
        await transport.close()
        assert [reply.code for reply in replies] == [250] * 5, server.log()
        await arrived(sink, recipients)
    assert len(sink.messages) == 5


@pytest.mark.world
@each_server
@over_tls
async def test_bounce_quotes_only_the_headers_of_the_mail(opening: Opening, tls: TlsMode) -> None:
    """The report of each server quotes no content; Postfix also names the mail by the number of its delivery."""
    script = replace(SINK, says={"RCPT gone@example.org": "550 5.1.1 no such user"})
    async with relayed(opening, script) as (server, sink):
        transport = SmtpTransport(server.relay(tls))
        mail = Letter(b"Subject: x\r\n\r\nthe content of the mail\r\n")
        assert (await transport.send(envelope("gone@example.org"), mail)).code == 250
        await transport.close()
        await arrived(sink, ["from@example.org"])
    [bounce] = sink.messages
    report = read_report(bounce.content)
    assert (bounce.sender, report.kind) == ("", ReportKind.BOUNCE)
    assert [failure.address for failure in report.failures] == ["gone@example.org"]
    if server.name == "postfix":
        assert b"\r\nOriginal-Envelope-Id: 7\r\n" in bounce.content
    assert b"the content of the mail" not in bounce.content
