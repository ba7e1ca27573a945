"""A webhook receiver on loopback that returns the given answers and records requests."""

import base64
import contextlib
import hashlib
import hmac
import ssl
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from aiohttp import web
from tests.support.aiohttp_server import answering
from tests.support.patience import PATIENCE_S
from tests.support.silence import fall_silent

from postroom.delivery.model import (
    Channel,
    ClaimId,
    DeliveryId,
    Lane,
    Outgoing,
    Recipient,
    RecipientKind,
    RecipientOutcome,
)
from postroom.outbox.webhooks.writer import compose
from postroom.post.reply import Content, Envelope, Reply
from postroom.transports.webhook.signing import read_secret
from postroom.transports.webhook.transport import WebhookContent, WebhookTransport

CREATED_AT = datetime(2026, 11, 15, tzinfo=UTC)
PATIENCE = timedelta(seconds=PATIENCE_S)
"""Timeout of a transport whose receiver is on the same machine, which may stall."""


@dataclass(frozen=True, slots=True)
class Request:
    """A received request."""

    path: str
    headers: Mapping[str, str]
    body: bytes


@dataclass(slots=True)
class Receiver:
    """Answers and records. `silent` never answers; `stalls` answers and never ends; `drops` hangs up."""

    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    silent: bool = False
    stalls: bool = False
    drops: bool = False
    requests: list[Request] = field(default_factory=list)
    url: str = ""

    async def handle(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        self.requests.append(Request(request.path_qs, dict(request.headers), body))
        if self.drops:
            assert request.transport is not None
            request.transport.close()
        if self.silent:
            await fall_silent()
        if self.stalls:
            return await self._stall(request)
        return web.Response(status=self.status, headers=self.headers, body=self.body)

    async def _stall(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(status=self.status, headers=self.headers)
        response.content_length = len(self.body) + 1
        await response.prepare(request)
        await response.write(self.body)
        await fall_silent()
        return response


@contextlib.asynccontextmanager
async def receiving(receiver: Receiver, *, tls: ssl.SSLContext | None = None) -> AsyncIterator[Receiver]:
    """The receiver behind a real server on a free port."""
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", receiver.handle)
    async with answering(app, tls=tls) as url:
        receiver.url = f"{url}/greet"
        yield receiver


def is_genuine(secret: str, headers: Mapping[str, str], body: bytes) -> bool:
    """The receiver's check, written from the specification: any valid v1 signature under its secret is enough."""
    key = base64.b64decode(secret.removeprefix("whsec_"))
    content = b".".join([headers["webhook-id"].encode(), headers["webhook-timestamp"].encode(), body])
    expected = base64.b64encode(hmac.new(key, content, hashlib.sha256).digest()).decode()
    offered = [entry.split(",", 1) for entry in headers["webhook-signature"].split(" ")]
    return any(version == "v1" and hmac.compare_digest(value, expected) for version, value in offered)


def a_post(url: str, *secrets: str, now: datetime = CREATED_AT, **fields: Any) -> tuple[Envelope, WebhookContent]:
    """A webhook as a worker writes it, signed with these secrets."""
    given: dict[str, Any] = {"id": DeliveryId(7), "text": '{"message":"Hey"}', "headers": {}, **fields}
    outgoing = Outgoing(
        claim_id=ClaimId(1),
        channel=Channel.WEBHOOK,
        lane=Lane.TRANSACTIONAL,
        ladder="webhook",
        attempt_no=1,
        attempt_base=0,
        created_at=CREATED_AT,
        dated_at=CREATED_AT,
        expires_at=None,
        traceparent=None,
        recipients=(Recipient(RecipientKind.TO, 0, url, None, RecipientOutcome.PENDING),),
        sender=None,
        subject="",
        html=None,
        attachments=(),
        **given,
    )
    return compose(outgoing, [read_secret(secret) for secret in secrets], now=now)


@dataclass(slots=True)
class ToOneReceiver:
    """A transport for tests without URLs: every message goes to one receiver."""

    transport: WebhookTransport
    url: str
    name: str = WebhookTransport.name

    async def send(self, envelope: Envelope, content: Content) -> Reply:
        return await self.transport.send(*a_post(self.url, id=envelope.delivery_id, now=datetime.now(UTC)))

    async def close(self) -> None:
        await self.transport.close()


@contextlib.asynccontextmanager
async def webhook_to(receiver: Receiver) -> AsyncIterator[ToOneReceiver]:
    """A transport and its receiver, both real."""
    async with receiving(receiver):
        transport = WebhookTransport(allow_private=True, timeout=PATIENCE)
        try:
            yield ToOneReceiver(transport, receiver.url)
        finally:
            await transport.close()
