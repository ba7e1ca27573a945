"""Postroom's SMTP client and Debian's Postfix, Exim and OpenSMTPD: every mail arrives once."""

import asyncio
import hashlib
import random
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager

import pytest
from tests.support.patience import PATIENCE_S
from tests.support.smtp_channels import CHANNELS
from tests.support.smtp_server import Letter, Script, Server, envelope, smtp_server
from tests.world.cutting_proxy import Cut, Way, cutting_proxy
from tests.world.mail_servers import MAIL_SERVERS, MailServer, Opening, postfix

from postroom.post.reply import Reply, Stage
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
async def relayed(opening: Opening) -> AsyncIterator[tuple[MailServer, Server]]:
    """A mail server and the server of ours that it hands all mail to."""
    async with smtp_server(SINK) as sink, opening(sink.port) as server:
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
    points, before = [], 0
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
