"""Several messages over one connection: the envelope of the next one travels behind the content."""

import asyncio

import pytest
from tests.support.mail_feed import Feed
from tests.support.silence import let_pass, settle
from tests.support.smtp_server import (
    DROP,
    SILENT,
    WITHOUT_PIPELINING,
    Hold,
    Letter,
    Said,
    Script,
    ThenDrop,
    envelope,
    smtp_server,
    transport_to,
)

from postroom.post.reply import Stage
from postroom.transports.base import FeedMail, SendProgress
from postroom.transports.smtp.session import LARGEST_AHEAD, LONGEST_BEHIND_S

ONE, TWO, THREE = "one@example.org", "two@example.org", "three@example.org"


ACCEPTED = (Stage.FINAL, 250)


def verbs(commands: list[str]) -> list[str]:
    return [command.split(" ")[0].split(":")[0] for command in commands]


async def test_next_envelope_travels_with_the_content_before_it() -> None:
    """Three messages need four writes after EHLO: envelope, twice content with an envelope, content."""
    async with smtp_server() as server, transport_to(server, is_quick=True) as transport:
        feed = Feed(ONE, TWO, THREE)
        await transport.send_all(feed)
        chunks = server.visits[0].chunks[1:]
    assert feed.results == dict.fromkeys((ONE, TWO, THREE), ACCEPTED)
    assert [message.recipients[0] for message in server.messages] == [ONE, TWO, THREE]
    assert all(message.content == Letter().plain for message in server.messages)
    assert len(chunks) == 4
    assert b"\r\n.\r\nMAIL FROM:" in chunks[1]
    assert chunks[2].endswith(b"DATA\r\n")


async def test_without_pipelining_each_envelope_waits_for_the_answer() -> None:
    """A server that does not announce PIPELINING gets one command at a time."""
    async with (
        smtp_server(Script(extensions=WITHOUT_PIPELINING)) as server,
        transport_to(server, is_quick=True) as transport,
    ):
        feed = Feed(ONE, TWO)
        await transport.send_all(feed)
    assert feed.results == dict.fromkeys((ONE, TWO), ACCEPTED)
    assert not any(b"\r\n.\r\nMAIL" in chunk for chunk in server.visits[0].chunks)


async def test_large_content_is_not_followed_at_once() -> None:
    """Content that takes long to leave would delay the next message, which another connection could send."""
    async with smtp_server() as server, transport_to(server, is_quick=True) as transport:
        feed = Feed(ONE, TWO, content=Letter(b"Subject: x\r\n\r\n" + b"0123456789\r\n" * (LARGEST_AHEAD // 10)))
        await transport.send_all(feed)
    assert feed.results == dict.fromkeys((ONE, TWO), ACCEPTED)
    assert not any(b"\r\n.\r\nMAIL" in chunk for chunk in server.visits[0].chunks)


async def test_connection_takes_no_more_messages_than_its_limit() -> None:
    """The limit of messages per connection also holds for envelopes behind content."""
    async with smtp_server() as server, transport_to(server, is_quick=True, messages_per_connection=2) as transport:
        feed = Feed(ONE, TWO, THREE)
        await transport.send_all(feed)
    assert feed.results == dict.fromkeys((ONE, TWO, THREE), ACCEPTED)
    assert [verbs(visit.commands).count("DATA") for visit in server.visits] == [2, 1]


@pytest.mark.parametrize(
    "step, stage", [("MAIL", Stage.SENDER), (f"RCPT {TWO}", Stage.RECIPIENT), ("DATA", Stage.CONTENT)]
)
@pytest.mark.parametrize("line", ["550 5.1.1 no", "451 4.3.0 later"])
async def test_refused_envelope_behind_content_is_the_reply_of_its_message(step: str, stage: Stage, line: str) -> None:
    """The content before it is accepted, and the message after it is sent over the same connection."""
    says: dict[str, Said | list[Said]] = {step: line}
    if step in ("MAIL", "DATA"):
        says[step] = ["250 2.1.0 OK" if step == "MAIL" else "354 go on", line]
    async with smtp_server(Script(says=says)) as server, transport_to(server, is_quick=True) as transport:
        feed = Feed(ONE, TWO, THREE)
        await transport.send_all(feed)
    assert feed.results == {ONE: ACCEPTED, TWO: (stage, int(line[:3])), THREE: ACCEPTED}
    assert [message.recipients[0] for message in server.messages] == [ONE, THREE]
    assert len(server.visits) == 1


async def test_data_accepted_without_a_recipient_behind_content_is_emptied() -> None:
    """After 354 for a message without recipients the server gets the empty message, and the connection is in step."""
    says: dict[str, Said | list[Said]] = {
        f"RCPT {TWO}": "550 5.1.1 unknown",
        "DATA": ["354 go on", "354 go on", "354 go on"],
        ".": ["250 2.0.0 queued", "554 5.5.1 no valid recipients"],
    }
    async with smtp_server(Script(says=says)) as server, transport_to(server, is_quick=True) as transport:
        feed = Feed(ONE, TWO, THREE)
        await transport.send_all(feed)
    assert feed.results == {ONE: ACCEPTED, TWO: (Stage.RECIPIENT, 550), THREE: ACCEPTED}
    assert len(server.visits) == 1


@pytest.mark.parametrize("line", ["550 5.7.1 spam", "452 4.3.1 full"])
async def test_refused_content_does_not_touch_the_message_behind_it(line: str) -> None:
    """A rejection of the content is the reply of that message only."""
    async with smtp_server(Script(says={".": [line]})) as server, transport_to(server, is_quick=True) as transport:
        feed = Feed(ONE, TWO)
        await transport.send_all(feed)
    assert feed.results == {ONE: (Stage.FINAL, int(line[:3])), TWO: ACCEPTED}
    assert len(server.visits) == 1


async def test_server_out_of_step_after_refused_content_gets_the_next_message_again() -> None:
    """A 503 to MAIL behind rejected content says nothing about the message: it uses a new connection."""
    says: dict[str, Said | list[Said]] = {
        ".": ["554 5.6.0 rejected"],
        "MAIL": ["250 2.1.0 OK", "503 5.5.1 nested MAIL command"],
    }
    async with smtp_server(Script(says=says)) as server, transport_to(server, is_quick=True) as transport:
        feed = Feed(ONE, TWO)
        await transport.send_all(feed)
    assert feed.results == {ONE: (Stage.FINAL, 554), TWO: ACCEPTED}
    assert len(server.visits) == 2


@pytest.mark.parametrize("said", [DROP, SILENT], ids=["drop", "silence"])
async def test_lost_connection_is_ambiguous_only_for_the_message_whose_content_left(said: Said) -> None:
    """The message whose envelope was behind the content is sent once, over a new connection."""
    async with smtp_server(Script(says={".": [said]})) as server, transport_to(server, is_quick=True) as transport:
        feed = Feed(ONE, TWO, THREE)
        await transport.send_all(feed)
        if feed.given_back:  # a silent server: another connection may send it
            more = Feed(*feed.given_back)
            await transport.send_all(more)
            feed.replies |= more.replies
    assert feed.results == {ONE: (Stage.FINAL, None), TWO: ACCEPTED, THREE: ACCEPTED}
    assert sorted(message.recipients[0] for message in server.messages) == [THREE, TWO]


async def test_after_a_loss_behind_content_envelopes_wait_for_the_answer() -> None:
    """A server that fails at an envelope behind content makes one message ambiguous, not every other one."""
    async with smtp_server(Script(says={".": [DROP]})) as server, transport_to(server, is_quick=True) as transport:
        feed = Feed(ONE, TWO, THREE)
        await transport.send_all(feed)
    assert feed.results == {ONE: (Stage.FINAL, None), TWO: ACCEPTED, THREE: ACCEPTED}
    assert not any(b"\r\n.\r\nMAIL" in chunk for chunk in server.visits[1].chunks)


async def test_421_after_the_content_moves_the_next_message_to_a_new_connection() -> None:
    """The server accepts one message and closes: the next one goes over a new connection."""
    says: dict[str, Said | list[Said]] = {"MAIL": ["250 2.1.0 OK", ThenDrop("421 4.4.2 closing")]}
    async with smtp_server(Script(says=says)) as server, transport_to(server, is_quick=True) as transport:
        feed = Feed(ONE, TWO)
        await transport.send_all(feed)
    assert feed.results == dict.fromkeys((ONE, TWO), ACCEPTED)
    assert len(server.visits) == 2


async def test_421_to_the_content_is_the_reply_of_its_message() -> None:
    """421 after the content defers that message; the one behind it uses a new connection."""
    async with (
        smtp_server(Script(says={".": [ThenDrop("421 4.3.2 busy")]})) as server,
        transport_to(server, is_quick=True) as transport,
    ):
        feed = Feed(ONE, TWO)
        await transport.send_all(feed)
    assert feed.results == {ONE: (Stage.FINAL, 421), TWO: ACCEPTED}
    assert len(server.visits) == 2


async def test_slow_answer_returns_the_message_behind_the_content() -> None:
    """A message does not wait for a server that takes long with another; after the answer the connection is closed."""
    hold = Hold("250 2.0.0 queued")
    async with smtp_server(Script(says={".": [hold]})) as server, transport_to(server, is_quick=True) as transport:
        feed = Feed(ONE, TWO)
        sending = asyncio.create_task(transport.send_all(feed))
        await hold.reached.wait()
        await settle()
        let_pass(LONGEST_BEHIND_S)
        while not feed.given_back:  # noqa: ASYNC110 - a timer of the loop whose clock has just moved
            await asyncio.sleep(0)
        assert feed.results == {}
        hold.go.set()
        await sending
        await server.visits[0].closed.wait()
    assert feed.given_back == [TWO]
    assert feed.results == {ONE: ACCEPTED}
    assert [message.recipients[0] for message in server.messages] == [ONE]


async def test_message_that_may_no_longer_be_sent_is_not_sent_behind_content() -> None:
    """After DATA only closing the connection withdraws a message; nothing of its content leaves."""
    async with smtp_server() as server, transport_to(server, is_quick=True) as transport:
        feed = Feed(ONE, TWO, THREE)
        feed.refuses = {TWO}
        await transport.send_all(feed)
    assert feed.results == {ONE: ACCEPTED, THREE: ACCEPTED}
    assert [message.recipients[0] for message in server.messages] == [ONE, THREE]
    assert len(server.visits) == 2


async def test_cancelled_sending_has_one_message_that_may_have_arrived() -> None:
    """The message behind the content has not left, whatever happens to the one before it."""
    hold = Hold()
    async with smtp_server(Script(says={".": [hold]})) as server, transport_to(server, is_quick=True) as transport:
        feed = Feed(ONE, TWO)
        sending = asyncio.create_task(transport.send_all(feed))
        await hold.reached.wait()
        await settle()
        sending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sending
        arrived = {mail.envelope.recipients[0]: mail.progress.may_have_arrived for mail in feed.open}
    assert arrived == {ONE: True, TWO: False}
    assert server.messages == []


async def test_answers_split_over_segments_are_put_together() -> None:
    """The answers to the content and to the envelope behind it may arrive in any pieces."""
    hold = Hold("250 2.1.5 OK")
    async with (
        smtp_server(Script(says={f"RCPT {TWO}": hold})) as server,
        transport_to(server, is_quick=True) as transport,
    ):
        feed = Feed(ONE, TWO)
        sending = asyncio.create_task(transport.send_all(feed))
        await hold.reached.wait()
        await settle()
        assert feed.results == {ONE: ACCEPTED}  # its answer does not wait for those of the next message
        hold.go.set()
        await sending
    assert feed.results == dict.fromkeys((ONE, TWO), ACCEPTED)
    assert len(server.visits) == 1


async def test_one_segment_with_all_answers_and_one_too_many_ends_the_connection() -> None:
    """An unsolicited answer behind the expected ones is not taken for the answer to the next content."""
    extra = b"354 go on\r\n250 2.0.0 surprise\r\n"
    async with (
        smtp_server(Script(says={"DATA": ["354 go on", extra]})) as server,
        transport_to(server, is_quick=True) as transport,
    ):
        feed = Feed(ONE, TWO)
        await transport.send_all(feed)
    assert feed.results[ONE] == ACCEPTED
    assert verbs(server.visits[0].commands).count("DATA") == 2
    received = [message.recipients[0] for visit in server.visits[1:] for message in server.messages[1:]]
    assert (feed.results[TWO] == ACCEPTED) == (received == [TWO])


async def test_messages_of_other_senders_share_the_connection() -> None:
    """Each message keeps its own sender and parameters."""
    async with smtp_server() as server, transport_to(server, is_quick=True) as transport:
        feed = Feed(ONE)
        feed.waiting.append(
            FeedMail(envelope(TWO, sender="other@example.net", delivery_id=8), Letter(), SendProgress())
        )
        await transport.send_all(feed)
    assert [(message.sender, message.recipients) for message in server.messages] == [
        ("from@example.org", (ONE,)),
        ("other@example.net", (TWO,)),
    ]
    assert "ENVID=8" in server.messages[1].parameters


async def test_message_that_this_server_cannot_take_does_not_stop_the_others() -> None:
    """A local rejection needs no connection."""
    async with smtp_server() as server, transport_to(server, is_quick=True) as transport:
        feed = Feed(ONE, "bad\r\n@example.org", THREE)
        await transport.send_all(feed)
    assert feed.results == {ONE: ACCEPTED, "bad\r\n@example.org": (Stage.RECIPIENT, 553), THREE: ACCEPTED}
    assert len(server.visits) == 1
    assert verbs(server.visits[0].commands).count("RSET") == 0


async def test_dots_and_bare_line_ends_are_escaped_before_the_next_envelope() -> None:
    """Content cannot end early and become commands, although commands follow it."""
    smuggled = b"Subject: x\r\n\r\n.\nMAIL FROM:<evil@example.org>\r\n.\r\nRCPT TO:<x@example.org>\n.\n"
    async with smtp_server() as server, transport_to(server, is_quick=True) as transport:
        feed = Feed(ONE, TWO, content=Letter(smuggled))
        await transport.send_all(feed)
    assert [message.sender for message in server.messages] == ["from@example.org"] * 2
    assert server.messages[0].content == smuggled.replace(b"\r\n", b"\n").replace(b"\n", b"\r\n")


async def test_content_that_has_not_left_with_its_envelope_behind_is_not_ambiguous() -> None:
    """The stage of a message that the server does not read is that of its content, until all of it has left."""
    content = Letter(b"Subject: x\r\n\r\n" + b"0123456789\r\n" * 4000)
    script = Script(says={"content": [Hold(DROP)]}, receive_buffer=2048)
    async with smtp_server(script) as server, transport_to(server, is_quick=True) as transport:
        feed = Feed(ONE, TWO, content=content)
        sending = asyncio.create_task(transport.send_all(feed))
        hold = script.says["content"][0]  # type: ignore[index]
        assert isinstance(hold, Hold)
        await hold.reached.wait()
        await settle()
        stages = [mail.progress.may_have_arrived for mail in feed.open]
        hold.go.set()
        await sending
    assert stages in ([False, False], [True, False])  # the kernel may take all of it
    assert feed.results[TWO] == ACCEPTED
    assert server.messages


async def test_first_content_of_a_server_is_answered_before_an_envelope_follows_one() -> None:
    """A server must have answered quickly once: a slow one would lose a connection for each message."""
    async with smtp_server() as server, transport_to(server) as transport:
        feed = Feed(ONE, TWO, THREE)
        await transport.send_all(feed)
        chunks = server.visits[0].chunks[1:]
    assert feed.results == dict.fromkeys((ONE, TWO, THREE), ACCEPTED)
    assert [b"\r\n.\r\nMAIL FROM:" in chunk for chunk in chunks] == [False, False, False, True, False]


async def test_slow_server_gets_no_envelope_ahead() -> None:
    """After one slow answer each envelope waits for the answer before it, and no connection is lost."""
    hold = Hold("250 2.0.0 queued")
    async with smtp_server(Script(says={".": [hold]})) as server, transport_to(server) as transport:
        feed = Feed(ONE, TWO)
        sending = asyncio.create_task(transport.send_all(feed))
        await hold.reached.wait()
        await settle()
        let_pass(LONGEST_BEHIND_S)
        hold.go.set()
        await sending
    assert feed.results == dict.fromkeys((ONE, TWO), ACCEPTED)
    assert (len(server.visits), feed.given_back) == (1, [])


async def test_connection_closed_at_reset_after_refused_content_is_replaced() -> None:
    """The stage of the message before says nothing about the next one: it can safely use a new connection."""
    says: dict[str, Said | list[Said]] = {".": ["554 5.6.0 rejected"], "RSET": DROP}
    async with smtp_server(Script(says=says)) as server, transport_to(server) as transport:
        assert (await transport.send(envelope(ONE), Letter())).code == 554
        assert (await transport.send(envelope(TWO), Letter())).code == 250
    assert len(server.visits) == 2


@pytest.mark.parametrize(
    "answer_s, mails",
    [(float("inf"), 0), (0.051, 0), (0.05, 5), (0.01, 5), (0.005, 10), (0.001, 20), (0.0, 20)],
)
async def test_the_quicker_a_server_the_more_mails_wait_for_a_connection(answer_s: float, mails: int) -> None:
    """A slow server needs its connections; one that answers at once needs few."""
    async with smtp_server() as server, transport_to(server) as transport:
        transport.pace.answer_s = answer_s
        assert transport.queue_depth == mails
