"""The SMTP client over plain connections, STARTTLS and implicit TLS, on both event loops."""

import asyncio
import ssl
from collections.abc import Sequence

import pytest
from tests.support.mail_feed import Feed
from tests.support.smtp_channels import CHANNELS, LOOPS, Run, authority, channel_to
from tests.support.smtp_server import DROP, RESET, Drop, Hold, Letter, Said, Script, Server, envelope

from postroom.post.reply import Reply, Stage
from postroom.transports.smtp.relay import TlsMode
from postroom.transports.smtp.session import LARGEST_AHEAD

KB, MB = 1_000, 1_000_000
SIZES = (KB, 16 * KB, 100 * KB, 255 * KB, 262_143, 262_145, 300 * KB, 512 * KB, 600 * KB, 3 * MB)
ACCEPTED = (Stage.FINAL, 250)

on_each_loop = pytest.mark.parametrize("run", LOOPS.values(), ids=LOOPS.keys())
over_each_channel = pytest.mark.parametrize("tls", CHANNELS.values(), ids=CHANNELS.keys())


def letter(size: int, name: str = "x") -> Letter:
    """A mail of about this size, whose lines begin with dots here and there."""
    lines = b"0123456789" * 7 + b"\r\n.dot\r\n"
    return Letter(b"Subject: %s\r\n\r\n" % name.encode() + lines * (size // len(lines)) + b"end\r\n")


def verdicts(replies: Sequence[Reply]) -> list[tuple[Stage, int | None]]:
    return [(reply.stage, reply.code) for reply in replies]


@on_each_loop
@over_each_channel
def test_mails_of_every_size_arrive_once_over_one_connection(tls: TlsMode, run: Run) -> None:
    """1 kB to 25 MB, one after another."""
    letters = [letter(size) for size in (*SIZES, 25 * MB)]

    async def flow() -> tuple[list[Reply], Server]:
        async with channel_to(tls, Script(extensions=("PIPELINING",)), max_connections=1) as (server, transport):
            return [await transport.send(envelope(), each) for each in letters], server

    replies, server = run(flow())
    assert verdicts(replies) == [ACCEPTED] * len(letters)
    assert [message.content for message in server.messages] == [each.plain for each in letters]
    assert len(server.visits) == 1


@on_each_loop
@over_each_channel
def test_mails_of_every_size_arrive_once_over_twenty_connections(tls: TlsMode, run: Run) -> None:
    """Forty mails at once."""
    letters = {f"{n}@example.org": letter(SIZES[n % len(SIZES)] // 2, str(n)) for n in range(40)}

    async def flow() -> tuple[list[Reply], Server]:
        async with channel_to(tls, Script(), max_connections=20) as (server, transport):
            sending = (transport.send(envelope(to), each) for to, each in letters.items())
            return await asyncio.gather(*sending), server

    replies, server = run(flow())
    assert verdicts(replies) == [ACCEPTED] * len(letters)
    assert len(server.messages) == len(letters)
    assert {message.recipients[0]: message.content for message in server.messages} == {
        to: each.plain for to, each in letters.items()
    }


@on_each_loop
@over_each_channel
def test_envelopes_follow_content_over_every_channel(tls: TlsMode, run: Run) -> None:
    """A feed of sixty mails needs one connection."""
    recipients = [f"{n}@example.org" for n in range(60)]

    async def flow() -> tuple[Feed, Server]:
        async with channel_to(tls, is_quick=True) as (server, transport):
            feed = Feed(*recipients, content=letter(20 * KB))
            await transport.send_all(feed)
            return feed, server

    feed, server = run(flow())
    assert feed.results == dict.fromkeys(recipients, ACCEPTED)
    assert [message.recipients[0] for message in server.messages] == recipients
    assert len(server.visits) == 1


STEPS = {
    "connect": Stage.CONNECT,
    "EHLO": Stage.CONNECT,
    "MAIL": Stage.SENDER,
    "RCPT": Stage.RECIPIENT,
    "DATA": Stage.CONTENT,
    "content": Stage.CONTENT,
    ".": Stage.FINAL,
}


@on_each_loop
@over_each_channel
@pytest.mark.parametrize("connections", [1, 20])
@pytest.mark.parametrize("loss", [DROP, RESET], ids=["closed", "reset"])
@pytest.mark.parametrize("size", [KB, 3 * MB], ids=["1 kB", "3 MB"])
def test_mail_taken_by_a_server_that_drops_the_line_is_ambiguous_and_no_other(
    tls: TlsMode, run: Run, connections: int, loss: Drop, size: int
) -> None:
    """At whatever step the line drops: without an answer, only a mail that has left is of stage FINAL."""
    letters = {f"{n}@example.org": letter(size // connections, str(n)) for n in range(connections)}

    async def flow(step: str) -> tuple[list[Reply], Server]:
        script = Script(says={step: loss}, receive_buffer=2048)
        async with channel_to(tls, script, max_connections=connections) as (server, transport):
            sending = (transport.send(envelope(to), each) for to, each in letters.items())
            return await asyncio.gather(*sending), server

    for step, stage in STEPS.items():
        replies, server = run(flow(step))
        taken = {message.recipients[0] for message in server.taken}
        assert taken == (set(letters) if step == "." else set())
        for reply in replies:
            # Before its end has arrived, all of a small content may have left.
            small = step == "content" and size // connections < MB
            assert reply.stage in ({stage, Stage.FINAL} if small else {stage}), (step, reply)
            assert reply.code is None


@on_each_loop
@over_each_channel
@pytest.mark.parametrize("loss", [DROP, RESET], ids=["closed", "reset"])
@pytest.mark.parametrize("before", range(4))
def test_mail_taken_on_a_kept_connection_is_ambiguous(tls: TlsMode, run: Run, before: int, loss: Drop) -> None:
    """After some mails that were accepted, the server takes one and drops the line."""
    says: dict[str, Said | list[Said]] = {".": [*["250 2.0.0 queued"] * before, loss]}

    async def flow() -> tuple[list[Reply], Server]:
        async with channel_to(tls, Script(says=says), max_connections=1) as (server, transport):
            return [await transport.send(envelope(), letter(KB)) for _ in range(before + 1)], server

    replies, server = run(flow())
    assert len(server.taken) == before + 1
    assert verdicts(replies) == [*[ACCEPTED] * before, (Stage.FINAL, None)]


@on_each_loop
@over_each_channel
def test_content_that_has_not_left_is_not_ambiguous(tls: TlsMode, run: Run) -> None:
    """A server that reads nothing of 3 MB and drops the line cannot have the mail."""

    async def flow() -> tuple[Stage, Reply]:
        hold = Hold(DROP)
        async with channel_to(tls, Script(says={"content": hold}, receive_buffer=2048)) as (_, transport):
            sending = asyncio.create_task(transport.send(envelope(), letter(3 * MB)))
            await hold.reached.wait()
            hold.go.set()
            return Stage.CONTENT, await sending

    stage, reply = run(flow())
    assert (reply.stage, reply.code) == (stage, None)


@on_each_loop
@over_each_channel
@pytest.mark.parametrize("loss", [DROP, RESET], ids=["closed", "reset"])
def test_loss_behind_a_content_with_the_next_envelope_is_never_a_silent_repetition(
    tls: TlsMode, run: Run, loss: Drop
) -> None:
    """The mail that was taken is ambiguous, the one behind it is sent over a new connection."""
    one, two = "one@example.org", "two@example.org"

    async def flow() -> tuple[Feed, Server]:
        script = Script(says={".": [loss]}, receive_buffer=2048)
        async with channel_to(tls, script, is_quick=True) as (server, transport):
            feed = Feed(one, two, content=letter(LARGEST_AHEAD - 8 * KB))
            await transport.send_all(feed)
            return feed, server

    feed, server = run(flow())
    assert feed.results == {one: (Stage.FINAL, None), two: ACCEPTED}
    assert [message.recipients[0] for message in server.taken] == [one, two]
    assert [message.recipients[0] for message in server.messages] == [two]


@on_each_loop
@pytest.mark.parametrize("tls", ["starttls", "implicit"])
@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3], ids=["1.2", "1.3"])
def test_both_versions_of_tls_carry_large_mail(tls: TlsMode, version: ssl.TLSVersion, run: Run) -> None:
    """A server of TLS 1.2 alone, and one of TLS 1.3 alone."""
    context = authority().server_context("127.0.0.1")
    context.minimum_version = context.maximum_version = version
    large = letter(3 * MB)

    async def flow() -> tuple[list[Reply], Server]:
        async with channel_to(tls, Script(tls=context)) as (server, transport):
            return [await transport.send(envelope(), large) for _ in range(2)], server

    replies, server = run(flow())
    assert verdicts(replies) == [ACCEPTED] * 2
    assert {reply.tls for reply in replies} == {version.name.replace("_", ".")}
    assert [message.content for message in server.messages] == [large.plain] * 2


@on_each_loop
@over_each_channel
def test_answer_before_the_end_of_the_line_is_kept(tls: TlsMode, run: Run) -> None:
    """A server that accepts the mail and hangs up in the same moment has accepted it."""

    async def flow() -> tuple[list[Reply], Server]:
        said: dict[str, Said | list[Said]] = {"QUIT": DROP}
        async with channel_to(tls, Script(says=said), messages_per_connection=1) as (server, transport):
            return [await transport.send(envelope(), letter(KB)) for _ in range(3)], server

    replies, server = run(flow())
    assert verdicts(replies) == [ACCEPTED] * 3
    assert len(server.visits) == 3
