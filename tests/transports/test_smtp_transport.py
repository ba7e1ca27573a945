"""Connections are kept, reused, limited, replaced and released."""

import asyncio
import socket
from collections import Counter

import pytest
import uvloop
from tests.support.silence import LONG_S as HOUR
from tests.support.silence import let_pass, settle
from tests.support.smtp_server import (
    DROP,
    WITHOUT_PIPELINING,
    Hold,
    Letter,
    Said,
    Script,
    ThenDrop,
    ThenSay,
    envelope,
    smtp_server,
    transport_to,
)

from postroom.post.reply import Stage
from postroom.transports.smtp import SmtpRelay, SmtpTransport, Timeouts
from postroom.transports.smtp.transport import ConnectionPool


async def test_many_senders_share_few_connections() -> None:
    """200 sends at once over 5 connections deliver exactly 200 messages."""
    async with smtp_server() as server, transport_to(server, max_connections=5) as transport:
        sends = [transport.send(envelope(f"{n}@example.org"), Letter()) for n in range(200)]
        replies = await asyncio.gather(*sends)
    assert Counter(reply.code for reply in replies) == {250: 200}
    assert Counter(message.recipients[0] for message in server.messages) == {f"{n}@example.org": 1 for n in range(200)}
    assert len(server.visits) == 5
    assert server.open_at_most == 5


async def test_one_sender_needs_one_connection() -> None:
    """Messages after one another travel over the same connection."""
    async with smtp_server() as server, transport_to(server) as transport:
        for _ in range(10):
            await transport.send(envelope(), Letter())
    assert len(server.visits) == 1


async def test_those_who_wait_are_served_in_order() -> None:
    """First come, first served."""
    hold = Hold("250 2.0.0 queued")
    async with (
        smtp_server(Script(says={".": [hold]})) as server,
        transport_to(server, max_connections=1) as transport,
    ):
        sends = [asyncio.create_task(transport.send(envelope(f"{n}@example.org"), Letter())) for n in range(10)]
        await hold.reached.wait()
        hold.go.set()
        await asyncio.gather(*sends)
    assert [message.recipients[0] for message in server.messages] == [f"{n}@example.org" for n in range(10)]


async def test_a_connection_carries_so_many_messages_and_no_more() -> None:
    """After its share a connection says goodbye, and the limit of connections still holds."""
    async with (
        smtp_server() as server,
        transport_to(server, max_connections=2, messages_per_connection=3) as transport,
    ):
        await asyncio.gather(*(transport.send(envelope(), Letter()) for _ in range(12)))
    assert len(server.messages) == 12
    assert [visit.commands.count("DATA") for visit in server.visits] == [3, 3, 3, 3]
    assert all(visit.commands[-1] == "QUIT" for visit in server.visits)
    assert server.open_at_most == 2


async def test_an_idle_connection_is_given_up_after_a_while() -> None:
    """An idle connection is closed after its timeout."""
    async with smtp_server() as server, transport_to(server) as transport:
        await transport.send(envelope(), Letter())
        let_pass(HOUR)
        await server.visits[0].closed.wait()
        assert server.commands[-1] == "QUIT"
        reply = await transport.send(envelope(), Letter())
    assert reply.code == 250
    assert len(server.visits) == 2


STALE: list[Said] = [DROP, "421 4.4.2 idle too long", ThenDrop("421 4.4.2 idle too long")]


@pytest.mark.parametrize("extensions", [None, WITHOUT_PIPELINING], ids=["pipelined", "lock-step"])
@pytest.mark.parametrize("step", ["MAIL", "RCPT", "DATA"])
@pytest.mark.parametrize("said", STALE, ids=["drop", "421", "421 and drop"])
async def test_a_kept_connection_that_died_is_replaced_without_a_word(
    said: Said, step: str, extensions: tuple[str, ...] | None
) -> None:
    """If no content has left, the message goes over a new connection."""
    well = {"MAIL": "250 ok", "RCPT": "250 ok", "DATA": "354 go on"}[step]
    script = Script(says={step: [well, said]})
    script.extensions = extensions or script.extensions
    async with smtp_server(script) as server, transport_to(server) as transport:
        await transport.send(envelope("first@example.org"), Letter())
        reply = await transport.send(envelope("second@example.org"), Letter())
    assert (reply.stage, reply.code) == (Stage.FINAL, 250)
    assert [message.recipients[0] for message in server.messages] == ["first@example.org", "second@example.org"]
    assert len(server.visits) == 2


async def test_a_connection_closed_while_idle_is_not_even_tried() -> None:
    """A 421 that arrives between messages ends the connection; the next message finds a fresh one."""
    farewell = ThenSay("250 2.0.0 queued", b"421 4.3.2 shutting down\r\n")
    async with smtp_server(Script(says={".": [farewell]})) as server, transport_to(server) as transport:
        first = await transport.send(envelope(), Letter())
        await server.visits[0].closed.wait()
        second = await transport.send(envelope(), Letter())
    assert [first.code, second.code] == [250, 250]
    assert [visit.commands.count("DATA") for visit in server.visits] == [1, 1]


async def test_a_connection_dropped_while_idle_is_not_even_tried() -> None:
    """A connection dropped between messages is detected before anything is written."""
    async with smtp_server() as server, transport_to(server) as transport:
        await transport.send(envelope(), Letter())
        [kept] = transport._pool._idle
        server.visits[0].hang_up()
        await asyncio.wait([kept.closed])
        reply = await transport.send(envelope(), Letter())
    assert reply.code == 250
    assert [visit.commands.count("DATA") for visit in server.visits] == [1, 1]


async def test_connections_grow_old_one_by_one() -> None:
    """Each idle connection is given up when its own time has come."""
    hold = Hold("250 2.0.0 queued")
    async with (
        smtp_server(Script(says={"RCPT slow@example.org": hold})) as server,
        transport_to(server, timeouts=Timeouts(command=100 * HOUR, data=100 * HOUR, idle=6 * HOUR)) as transport,
    ):
        slow = asyncio.create_task(transport.send(envelope("slow@example.org"), Letter()))
        await hold.reached.wait()
        await transport.send(envelope(), Letter())
        let_pass(4 * HOUR)
        hold.go.set()
        await slow
        let_pass(4 * HOUR)
        await server.visits[1].closed.wait()
        await settle()
        assert not server.visits[0].closed.is_set()
        let_pass(4 * HOUR)
        await server.visits[0].closed.wait()
    assert [visit.commands[-1] for visit in server.visits] == ["QUIT", "QUIT"]


async def test_a_place_that_arrives_with_a_cancellation_is_passed_on() -> None:
    """A place granted to a cancelled caller goes to the next one."""
    pool = ConnectionPool(1, messages_per_connection=1, idle_s=1)
    await pool.acquire()
    unlucky, lucky = asyncio.create_task(pool.acquire()), asyncio.create_task(pool.acquire())
    await asyncio.wait([unlucky, lucky], timeout=0)
    pool.release(None)
    unlucky.cancel()
    assert await lucky is None
    assert unlucky.cancelled()


async def test_a_connection_that_is_not_made_in_time_is_given_up() -> None:
    """The time to connect is limited like every other."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        relay = SmtpRelay("127.0.0.1", listener.getsockname()[1], tls="none")
        reply = await SmtpTransport(relay, timeouts=Timeouts(connect=0)).send(envelope(), Letter())
    assert (reply.stage, reply.code, reply.text) == (Stage.CONNECT, None, "no connection within 0 s")


async def test_a_refusal_followed_by_a_dropped_line_is_still_the_answer() -> None:
    """A rejection before the server hung up is the answer; the message is not sent again."""
    script = Script(says={"MAIL": ["250 ok", ThenDrop("550 5.7.1 not you")]})
    async with smtp_server(script) as server, transport_to(server) as transport:
        await transport.send(envelope(), Letter())
        reply = await transport.send(envelope(), Letter())
    assert (reply.stage, reply.code) == (Stage.SENDER, 550)
    assert len(server.visits) == 1


async def test_content_written_to_a_closing_connection_has_not_left() -> None:
    """The event loop drops such bytes silently; they are not reported as perhaps delivered."""
    async with smtp_server() as server, transport_to(server) as transport:
        await transport.send(envelope(), Letter())
        [kept] = transport._pool._idle
        kept._close()
        await kept.hand_over(b"Subject: x\r\n\r\n.\r\n", 1)
        assert await kept.final_answer(1) is None
    assert not kept.content_finished


async def test_a_message_is_replaced_only_once() -> None:
    """If the fresh connection fails as well, that is the answer."""
    script = Script(says={"MAIL": ["250 ok", DROP, ThenDrop("421 4.3.2 busy")]})
    async with smtp_server(script) as server, transport_to(server) as transport:
        await transport.send(envelope(), Letter())
        reply = await transport.send(envelope(), Letter())
    assert (reply.stage, reply.code) == (Stage.SENDER, 421)
    assert len(server.visits) == 2


async def test_a_message_whose_content_left_is_never_sent_twice() -> None:
    """After the dot a dropped line is reported as unknown, on a kept connection too."""
    async with (
        smtp_server(Script(says={".": ["250 ok", DROP]})) as server,
        transport_to(server) as transport,
    ):
        await transport.send(envelope(), Letter())
        reply = await transport.send(envelope(), Letter())
    assert (reply.stage, reply.code) == (Stage.FINAL, None)
    assert len(server.visits) == 1


@pytest.mark.parametrize("step", ["connect", "EHLO", "MAIL", "DATA", "."])
async def test_a_cancelled_send_closes_its_connection(step: str) -> None:
    """A half-used connection is closed, and its place is free again."""
    hold = Hold("421 4.3.2 never mind")
    async with (
        smtp_server(Script(says={step: [hold]})) as server,
        transport_to(server, max_connections=1) as transport,
    ):
        cancelled = asyncio.create_task(transport.send(envelope(), Letter()))
        await hold.reached.wait()
        cancelled.cancel()
        with pytest.raises(asyncio.CancelledError):
            await cancelled
        hold.go.set()
        reply = await transport.send(envelope(), Letter())
    assert (reply.stage, reply.code) == (Stage.FINAL, 250)
    assert len(server.visits) == 2


async def test_cancelling_those_who_wait_loses_no_place() -> None:
    """A place granted to a cancelled caller goes to the next one."""
    hold = Hold("250 2.0.0 queued")
    async with (
        smtp_server(Script(says={".": [hold]})) as server,
        transport_to(server, max_connections=1) as transport,
    ):
        first = asyncio.create_task(transport.send(envelope(), Letter()))
        await hold.reached.wait()
        impatient = [asyncio.create_task(transport.send(envelope(), Letter())) for _ in range(5)]
        last = asyncio.create_task(transport.send(envelope(), Letter()))
        first.add_done_callback(lambda _: [task.cancel() for task in impatient])
        hold.go.set()
        assert (await last).code == 250
        await asyncio.gather(*impatient, return_exceptions=True)
        assert (await transport.send(envelope(), Letter())).code == 250


async def test_failing_connections_give_their_places_back() -> None:
    """Failed connections free their places, so every caller gets a reply."""
    async with smtp_server() as server:
        port = server.port
    transport = SmtpTransport(SmtpRelay("127.0.0.1", port, tls="none"), max_connections=2)
    replies = await asyncio.gather(*(transport.send(envelope(), Letter()) for _ in range(20)))
    await transport.close()
    assert {(reply.stage, reply.code) for reply in replies} == {(Stage.CONNECT, None)}
    assert replies[0].remote_host == f"127.0.0.1:{port}"


@pytest.mark.parametrize("host", ["nowhere.invalid", "a..b", "x" * 70 + ".invalid"])
async def test_a_host_that_does_not_exist_is_an_answer(host: str) -> None:
    """An unknown host name is a reply at stage CONNECT, not an exception."""
    transport = SmtpTransport(SmtpRelay(host, 25, tls="none"), timeouts=Timeouts(connect=5))
    reply = await transport.send(envelope(), Letter())
    assert (reply.stage, reply.code) == (Stage.CONNECT, None)
    assert reply.text


async def test_closing_says_goodbye_on_idle_connections() -> None:
    """close() leaves with QUIT, waits for it, and can be called again."""
    async with smtp_server() as server, transport_to(server) as transport:
        await asyncio.gather(*(transport.send(envelope(), Letter()) for _ in range(3)))
        await asyncio.gather(transport.close(), transport.close())
        await transport.close()
        assert all(visit.commands[-1] == "QUIT" for visit in server.visits)
        assert server.open_now == 0


async def test_closing_lets_a_message_in_flight_finish() -> None:
    """A message in flight and one that waits for the connection are sent; a later one is not."""
    hold = Hold("250 2.0.0 queued")
    async with (
        smtp_server(Script(says={".": [hold]})) as server,
        transport_to(server, max_connections=1) as transport,
    ):
        sending = asyncio.create_task(transport.send(envelope(), Letter()))
        await hold.reached.wait()
        waiting = asyncio.create_task(transport.send(envelope(), Letter()))
        await asyncio.sleep(0)  # it asks for the connection
        await transport.close()
        told = await transport.send(envelope(), Letter())
        hold.go.set()
        assert [(await sending).code, (await waiting).code] == [250, 250]
        await server.visits[0].closed.wait()
    assert (told.stage, told.code, told.text) == (Stage.CONNECT, None, "the transport is closed")
    assert server.commands[-1] == "QUIT"


async def test_our_own_mistake_does_not_poison_a_connection() -> None:
    """Content that cannot be encoded raises; the next message gets a clean connection."""

    class Broken:
        def encode(self, *, eight_bit: bool) -> bytes:
            raise LookupError

    async with smtp_server() as server, transport_to(server, max_connections=1) as transport:
        with pytest.raises(LookupError):
            await transport.send(envelope(), Broken())
        assert (await transport.send(envelope(), Letter())).code == 250


@pytest.mark.parametrize("local_name", ["", "two words", "line\r\nend", "umläut"])
def test_a_name_that_cannot_be_spoken_in_ehlo_is_refused(local_name: str) -> None:
    """The greeting name goes into a command, so it is checked when the transport is made."""
    with pytest.raises(ValueError, match="local_name"):
        SmtpTransport(SmtpRelay("127.0.0.1", 25, tls="none"), local_name=local_name)


@pytest.mark.parametrize("limits", [{"max_connections": 0}, {"messages_per_connection": 0}])
def test_limits_must_allow_something(limits: dict[str, int]) -> None:
    """A transport that could never send is refused when it is made."""
    with pytest.raises(ValueError, match="at least one"):
        SmtpTransport(SmtpRelay("127.0.0.1", 25, tls="none"), **limits)  # type: ignore[arg-type]


def test_it_works_on_uvloop_too() -> None:
    """The protocol relies on nothing that only one event loop has."""

    async def flow() -> tuple[int, int]:
        script = Script(says={"MAIL": ["250 ok", DROP]})
        async with smtp_server(script) as server, transport_to(server, max_connections=3) as transport:
            replies = await asyncio.gather(*(transport.send(envelope(), Letter()) for _ in range(50)))
            return sum(reply.code == 250 for reply in replies), len(server.messages)

    delivered, taken = uvloop.run(flow())
    assert delivered == taken
    assert delivered >= 49  # the drop met a fresh connection or a kept one
