"""The contract of every transport.

A new transport joins by one line in `TRANSPORTS`, and by one in `TROUBLES` for each thing its other side can do.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

import pytest
from msgspec.structs import replace
from tests.support.aws import Aws, ses_to
from tests.support.gmail_server import Google, gmail_to
from tests.support.smtp_channels import CHANNELS, channel_to
from tests.support.smtp_server import DROP, SILENT, Letter, Said, Script, ThenDrop, envelope
from tests.support.webhook_server import Receiver, webhook_to

from postroom.db.pool import Pool
from postroom.db.room import Room
from postroom.inbox.transport import CaptureTransport
from postroom.post.reply import Content, Envelope, Reply, Stage
from postroom.transports.base import Transport
from postroom.transports.smtp.relay import TlsMode
from postroom.transports.unsent import NoopTransport, StubTransport

Opening = Callable[[Pool], AbstractAsyncContextManager[Transport]]


def plain(make: Callable[[Pool], Transport]) -> Opening:
    """A transport that needs nothing around it but, perhaps, a database."""

    @contextlib.asynccontextmanager
    async def opening(pool: Pool) -> AsyncIterator[Transport]:
        transport = make(pool)
        yield transport
        await transport.close()

    return opening


class CaptureFor(CaptureTransport):
    """The inbox, with everything addressed to one of its magic recipients."""

    def __init__(self, pool: Pool, recipient: str) -> None:
        super().__init__(pool)
        self._recipient = recipient

    async def send(self, envelope: Envelope, content: Content) -> Reply:
        return await super().send(replace(envelope, recipients=(self._recipient,)), content)


def capture(recipient: str) -> Opening:
    return plain(lambda pool: CaptureFor(pool, recipient))


def smtp(tls: TlsMode, step: str = "", said: Said = "") -> Opening:
    """SMTP against a server that does something at one step, or behaves well."""

    @contextlib.asynccontextmanager
    async def opening(_pool: Pool) -> AsyncIterator[Transport]:
        script = Script(says={step: said} if step else {})
        async with channel_to(tls, script, max_connections=5) as (_, transport):
            yield transport

    return opening


def webhook(**answer: Any) -> Opening:
    """Webhooks to a receiver with scripted answers."""
    return lambda _pool: webhook_to(Receiver(**answer))


def gmail(**answer: Any) -> Opening:
    """Gmail with a scripted Google server."""
    return lambda _pool: gmail_to(Google(**answer))


def ses(**answer: Any) -> Opening:
    """SES with a scripted AWS server."""
    return lambda _pool: ses_to(Aws(**answer))


TRANSPORTS = {
    "capture": plain(CaptureTransport),
    "gmail": gmail(),
    "noop": plain(lambda _pool: NoopTransport()),
    "ses": ses(),
    **{f"smtp, {channel}": smtp(tls) for channel, tls in CHANNELS.items()},
    "stub": plain(lambda _pool: StubTransport()),
    "webhook": webhook(),
}

SMTP_TROUBLES: dict[str, tuple[str, Said, Stage, int | None]] = {
    "refuses the connection": ("connect", "554 no", Stage.CONNECT, 554),
    "drops the connection": ("connect", DROP, Stage.CONNECT, None),
    "does not greet": ("connect", SILENT, Stage.CONNECT, None),
    "speaks another language": ("connect", b"\x16\x03\x01\x00\r\n", Stage.CONNECT, None),
    "refuses the sender": ("MAIL", "550 no", Stage.SENDER, 550),
    "refuses the recipient": ("RCPT", "550 no", Stage.RECIPIENT, 550),
    "refuses the content": ("DATA", "554 no", Stage.CONTENT, 554),
    "closes before the content": ("DATA", ThenDrop("421 bye"), Stage.CONTENT, 421),
    "refuses in the end": (".", "451 no", Stage.FINAL, 451),
    "drops in the end": (".", DROP, Stage.FINAL, None),
    "is silent in the end": (".", SILENT, Stage.FINAL, None),
}

TROUBLES: dict[str, tuple[Opening, Stage, int | None]] = {
    **{
        f"smtp {trouble}, {channel}": (smtp(tls, step, said), stage, code)
        for channel, tls in CHANNELS.items()
        for trouble, (step, said, stage, code) in SMTP_TROUBLES.items()
    },
    "capture refuses the recipient": (capture("bounce@example.org"), Stage.RECIPIENT, 550),
    "capture defers": (capture("defer@example.org"), Stage.RECIPIENT, 451),
    "capture drops the connection": (capture("drop@example.org"), Stage.CONTENT, None),
    "capture never answers": (capture("ambiguous@example.org"), Stage.FINAL, None),
    "gmail refuses the claim": (gmail(subjects=set()), Stage.LOGIN, 535),
    "gmail has no token to give": (gmail(token_status=503), Stage.LOGIN, 454),
    "gmail is used too often": (gmail(status=403, reason="rateLimitExceeded"), Stage.FINAL, 421),
    "gmail refuses the message": (gmail(status=400, reason="invalidArgument"), Stage.FINAL, 554),
    "gmail is broken": (gmail(status=503), Stage.FINAL, 451),
    "gmail loses the message": (gmail(loses=True), Stage.FINAL, None),
    "gmail drops in the end": (gmail(drops=True, status=503), Stage.FINAL, None),
    "ses refuses the key": (ses(status=403, error="InvalidClientTokenId"), Stage.LOGIN, 535),
    "ses is used too often": (ses(status=429, error="TooManyRequestsException"), Stage.FINAL, 421),
    "ses refuses the message": (ses(status=400, error="MessageRejected"), Stage.FINAL, 554),
    "ses is broken": (ses(status=500, error="InternalFailure"), Stage.FINAL, 451),
    "ses is silent in the end": (ses(hangs=True), Stage.FINAL, None),
    "ses drops in the end": (ses(drops=True), Stage.FINAL, None),
    "webhook is refused": (webhook(status=404), Stage.FINAL, 550),
    "webhook is deferred": (webhook(status=503), Stage.FINAL, 450),
    "webhook is redirected": (webhook(status=307), Stage.FINAL, 550),
    "webhook is dropped": (webhook(drops=True), Stage.CONTENT, None),
    "webhook is not answered": (webhook(silent=True), Stage.CONTENT, None),
}

every_transport = pytest.mark.parametrize("opening", TRANSPORTS.values(), ids=TRANSPORTS.keys())
every_trouble = pytest.mark.parametrize("opening, stage, code", TROUBLES.values(), ids=TROUBLES.keys())


@pytest.fixture
def pool(shared_room: Room) -> Pool:
    """For the inbox, which only receives messages here."""
    return shared_room.pool


@every_transport
async def test_it_has_a_name(opening: Opening, pool: Pool) -> None:
    """Attempts record which way out was taken."""
    async with opening(pool) as transport:
        assert transport.name.isidentifier()


@every_transport
async def test_a_good_message_ends_at_the_last_stage(opening: Opening, pool: Pool) -> None:
    """Taken with a 2xx, or suppressed and then without a code."""
    async with opening(pool) as transport:
        reply = await transport.send(envelope(), Letter())
    assert reply.stage is Stage.FINAL
    assert reply.code is None if reply.suppress else reply.code == 250
    assert reply.recipients == ()


@every_transport
async def test_many_tasks_may_send_at_once(opening: Opening, pool: Pool) -> None:
    """A hundred sends at the same time give a hundred replies."""
    async with opening(pool) as transport:
        replies = await asyncio.gather(*(transport.send(envelope(f"{n}@example.org"), Letter()) for n in range(100)))
    assert len(replies) == 100
    assert all(isinstance(reply, Reply) and reply.stage is Stage.FINAL for reply in replies)


@every_transport
async def test_closing_twice_has_no_effect(opening: Opening, pool: Pool) -> None:
    """close() may be called again, and without a message ever sent."""
    async with opening(pool) as transport:
        await transport.close()
        await transport.close()
        assert transport.name.isidentifier()


@every_transport
async def test_closing_after_use_is_clean(opening: Opening, pool: Pool) -> None:
    """close() after messages, twice at the same time, leaves nothing open."""
    async with opening(pool) as transport:
        replies = await asyncio.gather(*(transport.send(envelope(), Letter()) for _ in range(10)))
        assert {reply.stage for reply in replies} == {Stage.FINAL}
        await asyncio.gather(transport.close(), transport.close())


@every_trouble
async def test_every_behaviour_of_the_server_is_a_reply(
    opening: Opening, stage: Stage, code: int | None, pool: Pool
) -> None:
    """Nothing is raised; the reply says how far it got, and a code only if there was one."""
    async with opening(pool) as transport:
        reply = await transport.send(envelope(), Letter())
    assert (reply.stage, reply.code, reply.suppress) == (stage, code, False)


@every_trouble
async def test_trouble_is_reported_to_each_of_many(
    opening: Opening, stage: Stage, code: int | None, pool: Pool
) -> None:
    """When all concurrent attempts fail in the same way, each gets a reply and none hangs."""
    async with opening(pool) as transport:
        replies = await asyncio.gather(*(transport.send(envelope(), Letter()) for _ in range(12)))
    assert {(reply.stage, reply.code) for reply in replies} == {(stage, code)}
