"""One message over one connection: the reply for each behaviour of a server."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.silence import LONG_S, let_pass, settle, wait_out
from tests.support.smtp_server import (
    ALL_EXTENSIONS,
    DROP,
    SILENT,
    WITHOUT_PIPELINING,
    Hold,
    Letter,
    Said,
    Script,
    Server,
    ThenDrop,
    ThenSay,
    envelope,
    smtp_server,
    transport_to,
)

from postroom.post.reply import RecipientReply, Reply, Stage
from postroom.transports.smtp import Timeouts
from postroom.transports.smtp.session import stuffed

A_MINUTE = Timeouts(connect=60, greeting=60, command=60, data=60, final=60)
SIX_HOURS = Timeouts(command=6 * LONG_S, data=6 * LONG_S, final=6 * LONG_S)
PIPELINING = pytest.mark.parametrize("extensions", [ALL_EXTENSIONS, WITHOUT_PIPELINING], ids=["pipelined", "lock-step"])


async def attempt(script: Script, *recipients: str) -> tuple[Reply, Server]:
    """Send one message to a server with this script."""
    async with smtp_server(script) as server, transport_to(server, timeouts=A_MINUTE) as transport:
        return await transport.send(envelope(*recipients), Letter()), server


@PIPELINING
async def test_an_accepted_message_arrives_whole(extensions: tuple[str, ...]) -> None:
    """A final 250 is reported with its words, and the server has exactly what was sent."""
    script = Script(extensions=extensions, says={".": "250 2.6.0 queued as 4711"})
    reply, server = await attempt(script, "a@example.org", "b@example.org")
    assert reply == Reply(Stage.FINAL, 250, "2.6.0", "queued as 4711", remote_host=f"127.0.0.1:{server.port}")
    [message] = server.messages
    assert message.sender == "from@example.org"
    assert message.recipients == ("a@example.org", "b@example.org")
    assert message.content == Letter().plain


async def test_the_envelope_travels_in_one_write() -> None:
    """With PIPELINING the server finds MAIL, RCPT and DATA together."""
    _, server = await attempt(Script(), "a@example.org", "b@example.org")
    [envelope_chunk] = [chunk for chunk in server.visits[0].chunks if b"MAIL" in chunk]
    assert envelope_chunk.count(b"RCPT") == 2
    assert envelope_chunk.endswith(b"DATA\r\n")


async def test_without_pipelining_every_command_waits() -> None:
    """A server that did not offer PIPELINING never finds two commands together."""
    _, server = await attempt(Script(extensions=WITHOUT_PIPELINING), "a@example.org", "b@example.org")
    assert all(chunk.count(b"\r\n") == 1 for chunk in server.visits[0].chunks if b"Subject" not in chunk)


@PIPELINING
@pytest.mark.parametrize(
    "step, said, expected",
    [
        ("connect", "554 5.7.1 go away", (Stage.CONNECT, 554, "5.7.1", "go away")),
        ("connect", "421 4.3.2 busy", (Stage.CONNECT, 421, "4.3.2", "busy")),
        ("connect", DROP, (Stage.CONNECT, None, None, "the other side closed the connection")),
        ("connect", SILENT, (Stage.CONNECT, None, None, "no answer within 60 s")),
        ("connect", b"SSH-2.0-OpenSSH\r\n", (Stage.CONNECT, None, None, "unexpected answer: SSH-2.0-OpenSSH")),
        ("EHLO", "421 4.3.2 busy", (Stage.CONNECT, 421, "4.3.2", "busy")),
        ("EHLO", "451 4.3.0 not now", (Stage.CONNECT, 451, "4.3.0", "not now")),
        ("EHLO", DROP, (Stage.CONNECT, None, None, "the other side closed the connection")),
        ("MAIL", "550 5.7.1 not you", (Stage.SENDER, 550, "5.7.1", "not you")),
        ("MAIL", "451 4.3.0 later", (Stage.SENDER, 451, "4.3.0", "later")),
        ("MAIL", "421 4.3.2 closing", (Stage.SENDER, 421, "4.3.2", "closing")),
        ("MAIL", DROP, (Stage.SENDER, None, None, "the other side closed the connection")),
        ("MAIL", SILENT, (Stage.SENDER, None, None, "no answer within 60 s")),
        ("MAIL", "354 what?", (Stage.SENDER, None, None, "unexpected answer: 354 what?")),
        ("MAIL", b"garbage\r\n", (Stage.SENDER, None, None, "unexpected answer: garbage")),
        ("RCPT", "550 5.1.1 unknown", (Stage.RECIPIENT, 550, "5.1.1", "unknown")),
        ("RCPT", "451 4.7.1 later", (Stage.RECIPIENT, 451, "4.7.1", "later")),
        ("RCPT", ThenDrop("421 4.3.2 closing"), (Stage.RECIPIENT, 421, "4.3.2", "closing")),
        ("RCPT", DROP, (Stage.RECIPIENT, None, None, "the other side closed the connection")),
        ("RCPT", SILENT, (Stage.RECIPIENT, None, None, "no answer within 60 s")),
        ("RCPT", "334 what?", (Stage.RECIPIENT, None, None, "unexpected answer: 334 what?")),
        ("DATA", "554 5.5.0 no", (Stage.CONTENT, 554, "5.5.0", "no")),
        ("DATA", "421 4.3.2 closing", (Stage.CONTENT, 421, "4.3.2", "closing")),
        ("DATA", "250 2.0.0 fine", (Stage.CONTENT, None, None, "unexpected answer: 250 fine")),
        ("DATA", DROP, (Stage.CONTENT, None, None, "the other side closed the connection")),
        ("DATA", SILENT, (Stage.CONTENT, None, None, "no answer within 60 s")),
        (".", "550 5.7.1 spam", (Stage.FINAL, 550, "5.7.1", "spam")),
        (".", "452 4.3.1 disk full", (Stage.FINAL, 452, "4.3.1", "disk full")),
        (".", ThenDrop("421 4.3.2 closing"), (Stage.FINAL, 421, "4.3.2", "closing")),
        (".", DROP, (Stage.FINAL, None, None, "the other side closed the connection")),
        (".", SILENT, (Stage.FINAL, None, None, "no answer within 60 s")),
        (".", "354 what?", (Stage.FINAL, None, None, "unexpected answer: 354 what?")),
        (".", b"\x00\x01\r\n", (Stage.FINAL, None, None, "unexpected answer:")),
    ],
)
async def test_whatever_a_server_does_is_reported_where_it_did_it(
    extensions: tuple[str, ...],
    step: str,
    said: Said,
    expected: tuple[Stage, int | None, str | None, str],
) -> None:
    """Each rejection, drop, timeout and invalid answer has its stage; only an answer has a code."""
    script = Script(extensions=extensions, says={step: said})
    reply, server = await attempt(script)
    assert (reply.stage, reply.code, reply.enhanced, reply.text) == expected
    assert reply.remote_host == f"127.0.0.1:{server.port}"
    assert reply.recipients == ()
    assert server.messages == []


@PIPELINING
async def test_one_refused_recipient_does_not_fail_the_others(extensions: tuple[str, ...]) -> None:
    """The whole is delivered; the refused one keeps its own words."""
    script = Script(extensions=extensions, says={"RCPT b@example.org": "550 5.1.1 unknown"})
    reply, server = await attempt(script, "a@example.org", "b@example.org", "c@example.org")
    assert (reply.stage, reply.code) == (Stage.FINAL, 250)
    assert reply.recipients == (RecipientReply("b@example.org", 550, "5.1.1", "unknown"),)
    assert server.messages[0].recipients == ("a@example.org", "c@example.org")


@PIPELINING
async def test_when_all_are_refused_one_that_may_be_tried_again_decides(extensions: tuple[str, ...]) -> None:
    """The whole is as hopeful as its most hopeful recipient; the others have entries."""
    says: dict[str, Said | list[Said]] = {
        "RCPT a@example.org": "550 5.1.1 unknown",
        "RCPT b@example.org": "450 4.2.1 try again in 300 seconds",
    }
    reply, server = await attempt(Script(extensions=extensions, says=says), "a@example.org", "b@example.org")
    assert (reply.stage, reply.code, reply.enhanced) == (Stage.RECIPIENT, 450, "4.2.1")
    assert reply.retry_after_s == 300
    assert reply.recipients == (RecipientReply("a@example.org", 550, "5.1.1", "unknown"),)
    assert server.messages == []


@PIPELINING
async def test_refusals_are_kept_when_the_content_fails(extensions: tuple[str, ...]) -> None:
    """Recipient replies are kept if the content is rejected afterwards."""
    says: dict[str, Said | list[Said]] = {"RCPT b@example.org": "550 5.1.1 unknown", ".": "451 4.3.0 later"}
    reply, _ = await attempt(Script(extensions=extensions, says=says), "a@example.org", "b@example.org")
    assert (reply.stage, reply.code) == (Stage.FINAL, 451)
    assert [entry.address for entry in reply.recipients] == ["b@example.org"]


@PIPELINING
async def test_refusals_are_kept_when_the_line_drops(extensions: tuple[str, ...]) -> None:
    """A recipient refused before the connection was lost stays refused."""
    says: dict[str, Said | list[Said]] = {
        "RCPT a@example.org": "550 5.1.1 unknown",
        "RCPT b@example.org": DROP,
    }
    reply, _ = await attempt(Script(extensions=extensions, says=says), "a@example.org", "b@example.org")
    assert (reply.stage, reply.code) == (Stage.RECIPIENT, None)
    assert reply.recipients == (RecipientReply("a@example.org", 550, "5.1.1", "unknown"),)


@pytest.mark.parametrize("final", ["250 2.0.0 took nothing", "554 5.5.1 no valid recipients"])
async def test_a_go_ahead_without_recipients_gets_the_empty_message(final: str) -> None:
    """DATA let through after every RCPT was refused is ended with a lone dot; the refusal decides."""
    script = Script(says={"RCPT": ["550 5.1.1 unknown"], "DATA": ["354 go on"], ".": [final]})
    async with smtp_server(script) as server, transport_to(server) as transport:
        reply = await transport.send(envelope(), Letter())
        assert (reply.stage, reply.code, reply.text) == (Stage.RECIPIENT, 550, "unknown")
        assert server.visits[0].chunks[-1] == b".\r\n"
        again = await transport.send(envelope(), Letter())
    assert (again.stage, again.code) == (Stage.FINAL, 250)
    assert server.messages[-1].content == Letter().plain
    assert len(server.visits) == 1


async def test_nothing_of_the_content_is_sent_when_data_is_refused() -> None:
    """A refused DATA is the last the server hears of the message."""
    _, server = await attempt(Script(says={"DATA": "554 5.5.0 no"}))
    assert b"Subject" not in b"".join(server.visits[0].chunks)


@pytest.mark.parametrize(
    "step, said",
    [("MAIL", "550 no"), ("RCPT", "550 no"), ("DATA", "451 no"), (".", "550 no")],
)
@PIPELINING
async def test_after_a_refusal_the_connection_is_reset_and_used_again(
    extensions: tuple[str, ...], step: str, said: str
) -> None:
    """A refused message costs the next one a RSET, not a connection."""
    async with (
        smtp_server(Script(extensions=extensions, says={step: [said]})) as server,
        transport_to(server) as transport,
    ):
        await transport.send(envelope(), Letter())
        reply = await transport.send(envelope(), Letter())
    assert (reply.stage, reply.code) == (Stage.FINAL, 250)
    assert len(server.visits) == 1
    assert server.commands.count("RSET") == 1


@pytest.mark.parametrize("said", ["500 5.5.1 what?", DROP])
async def test_a_connection_that_cannot_be_reset_is_replaced(said: Said) -> None:
    """A server that takes no RSET gets a fresh connection instead, and the message arrives."""
    script = Script(says={"MAIL": ["550 no"], "RSET": said})
    async with smtp_server(script) as server, transport_to(server) as transport:
        await transport.send(envelope(), Letter())
        reply = await transport.send(envelope(), Letter())
    assert (reply.stage, reply.code) == (Stage.FINAL, 250)
    assert len(server.visits) == 2


async def test_a_slow_server_is_given_time_for_each_answer() -> None:
    """Answers to a pipelined group may come one by one; the deadline counts from the last."""
    first, second = Hold("250 2.1.5 OK"), Hold("250 2.1.5 OK")
    script = Script(says={"RCPT a@example.org": first, "RCPT b@example.org": second})
    async with smtp_server(script) as server, transport_to(server, timeouts=SIX_HOURS) as transport:
        sending = asyncio.create_task(transport.send(envelope("a@example.org", "b@example.org"), Letter()))
        for hold in (first, second):
            await hold.reached.wait()
            await settle()
            let_pass(4 * LONG_S)
            hold.go.set()
        reply = await sending
    assert reply.code == 250


async def test_after_success_nothing_is_reset() -> None:
    """The end of a delivered message is a clean start for the next."""
    async with smtp_server() as server, transport_to(server) as transport:
        for _ in range(3):
            await transport.send(envelope(), Letter())
    assert "RSET" not in server.commands
    assert len(server.messages) == 3


async def test_a_yes_followed_by_chatter_is_still_a_yes() -> None:
    """A final 250 counts even if the server goes on talking; the connection is not used again."""
    script = Script(says={".": [ThenSay("250 2.0.0 queued", b"250 and another thing\r\n")]})
    async with smtp_server(script) as server, transport_to(server) as transport:
        first = await transport.send(envelope(), Letter())
        second = await transport.send(envelope(), Letter())
    assert [first.code, second.code] == [250, 250]
    assert len(server.visits) == 2


async def test_connection_lost_before_final_dot_is_not_ambiguous() -> None:
    """A connection lost before the last byte left is stage CONTENT and not ambiguous."""
    script = Script(says={"content": DROP}, receive_buffer=4_096)
    big = Letter(b"Subject: big\r\n\r\n" + b"x" * 70 * 100_000 + b"\r\n")
    async with smtp_server(script) as server, transport_to(server) as transport:
        reply = await transport.send(envelope(), big)
    assert (reply.stage, reply.code) == (Stage.CONTENT, None)
    assert server.messages == []


async def test_a_server_that_stops_reading_is_given_up() -> None:
    """Content that does not leave within its time ends at stage CONTENT."""
    hold = Hold()
    script = Script(says={"content": hold}, receive_buffer=4_096)
    big = Letter(b"Subject: big\r\n\r\n" + b"x" * 70 * 100_000 + b"\r\n")
    async with smtp_server(script) as server, transport_to(server) as transport:
        sending = asyncio.create_task(transport.send(envelope(), big))
        await hold.reached.wait()
        await wait_out()
        reply = await sending
    assert (reply.stage, reply.code, reply.text) == (Stage.CONTENT, None, "no answer within 120 s")


async def test_large_content_arrives_whole() -> None:
    """Content of many blocks is the same on the other side."""
    big = Letter(b"Subject: big\r\n\r\n" + b"..dots and more\r\n" * 100_000)
    async with smtp_server() as server, transport_to(server) as transport:
        reply = await transport.send(envelope(), big)
    assert reply.code == 250
    assert server.messages[0].content == big.plain


@pytest.mark.parametrize(
    "address",
    ["a@example.org>\r\nRCPT TO:<evil@example.org", "a\n@example.org", "a>@example.org", "\udc80@x", ""],
)
async def test_an_address_cannot_smuggle_a_command(address: str) -> None:
    """An address that would leave its brackets is rejected for that recipient only."""
    async with smtp_server() as server, transport_to(server) as transport:
        reply = await transport.send(envelope(address, "b@example.org"), Letter())
        alone = await transport.send(envelope(address), Letter())
    assert (reply.stage, reply.code) == (Stage.FINAL, 250)
    assert [(entry.address, entry.code) for entry in reply.recipients] == [(address, 553)]
    assert server.messages[0].recipients == ("b@example.org",)
    assert (alone.stage, alone.code, alone.enhanced) == (Stage.RECIPIENT, 553, "5.1.3")
    assert len(server.messages) == 1


async def test_a_sender_cannot_smuggle_a_command() -> None:
    """A return path with a line end in it is refused before anything is said."""
    async with smtp_server() as server, transport_to(server) as transport:
        reply = await transport.send(envelope(sender="a@x>\r\nDATA"), Letter())
    assert (reply.stage, reply.code, reply.enhanced) == (Stage.SENDER, 553, "5.1.7")
    assert not any(command.startswith("MAIL") for command in server.commands)


async def test_the_null_sender_is_spoken() -> None:
    """A bounce has an empty return path."""
    async with smtp_server(Script(extensions=("PIPELINING",))) as server, transport_to(server) as transport:
        await transport.send(envelope(sender=""), Letter())
    assert "MAIL FROM:<>" in server.commands


async def test_message_without_recipients_is_rejected() -> None:
    """A message without recipients opens no session."""
    async with smtp_server() as server, transport_to(server) as transport:
        nobody = envelope()
        reply = await transport.send(type(nobody)(7, "<7@x>", "from@example.org", ()), Letter())
    assert (reply.stage, reply.code) == (Stage.RECIPIENT, 554)


def unstuffed(travelling: bytes) -> bytes:
    """The content as a server reads it (RFC 5321 4.5.2)."""
    *lines, dot, nothing = travelling.split(b"\r\n")
    assert (dot, nothing) == (b".", b"")
    assert b"." not in lines
    return b"".join(line.removeprefix(b".") + b"\r\n" for line in lines)


@given(st.lists(st.sampled_from([b".", b"..", b"x", b".x", b"", b"\xc3\xa9.", b". ."])))
def test_content_comes_back_as_it_was(lines: list[bytes]) -> None:
    """Lines with leading dots are read back unchanged, and only the last dot ends them."""
    content = b"".join(line + b"\r\n" for line in lines)
    assert unstuffed(stuffed(content)) == content


@given(st.text(alphabet=".\r\nx", max_size=40))
def test_no_content_can_end_itself(text: str) -> None:
    """Stray line ends become whole ones: a lenient server finds no end but ours."""
    travelling = stuffed(text.encode())
    body = travelling.removesuffix(b".\r\n")
    assert travelling.endswith(b".\r\n")
    assert all(line != b"." for line in body.replace(b"\r", b"\n").split(b"\n"))
    assert body.count(b"\r") == body.count(b"\n") == body.count(b"\r\n")
