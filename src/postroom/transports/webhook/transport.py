"""The webhook transport: posts a signed request and returns the reply."""

import asyncio
import contextlib
import ssl
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import aiohttp
from msgspec.structs import replace
from yarl import URL

from postroom.post.reply import Content, Envelope, Reply, Stage
from postroom.transports.base import Transport
from postroom.transports.guard import AddressForbidden, GuardedResolver
from postroom.transports.response import KnownResponse
from postroom.transports.tls import client_context
from postroom.transports.webhook.inbox import CAPTURE_URL
from postroom.transports.webhook.replies import GONE, REFUSED, reply_to

# A slow endpoint holds a place at the transport; endpoints should accept at once and work later
TIMEOUT = timedelta(seconds=10)
BODY_LIMIT = 2048
"""Limit of bytes read from a response: enough for a reason, too few for an attack."""
HEADER_LIMIT = 2**16
"""Longest header line of a response. A longer one hides the status and counts as no response."""


@dataclass(frozen=True, slots=True)
class WebhookContent:
    """One request: signed headers, body, URL, and its endpoint, if any."""

    headers: Mapping[str, str]
    body: bytes
    url: str
    endpoint_id: int | None = None

    def encode(self, *, eight_bit: bool) -> bytes:
        """The request as a message, the format of the capture inbox."""
        body = self.body if eight_bit else self.body.decode().encode("ascii", "backslashreplace")
        lines = [f"{name}: {value}" for name, value in self.headers.items()]
        return "\r\n".join(["Subject: Webhook", "MIME-Version: 1.0", *lines, "", ""]).encode() + body + b"\r\n"


class WebhookTransport:
    """Posts webhooks. Any number of tasks may send at once; `max_connections` of them are served.

    `inbox` gets requests to `inbox.CAPTURE_URL` and is closed with the transport. `on_gone` gets the id of an endpoint
    that answers 410. `tls` replaces the usual verification, for tests and for installations with their own authorities.
    """

    name = "webhook"

    def __init__(  # noqa: PLR0913 - one parameter per property of the transport
        self,
        *,
        timeout: timedelta = TIMEOUT,
        allow_private: bool = False,
        allow_loopback: bool = False,
        max_connections: int = 100,
        inbox: Transport | None = None,
        on_gone: Callable[[int], Awaitable[None]] | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._timeout_s = timeout.total_seconds()
        self._resolver = GuardedResolver(allow_private=allow_private, allow_loopback=allow_loopback)
        self._max_connections, self._inbox, self._on_gone = max_connections, inbox, on_gone
        self._tls = tls or client_context()
        self._session: aiohttp.ClientSession | None = None
        self._closed = False

    async def send(self, envelope: Envelope, content: Content) -> Reply:
        """Post once. Never raises for an error of the network or the receiver."""
        if not isinstance(content, WebhookContent):
            content = WebhookContent({}, content.encode(eight_bit=True), envelope.recipients[0])
        if content.url == CAPTURE_URL and self._inbox is not None:
            return await self._inbox.send(envelope, content)
        if self._closed:
            return Reply(Stage.CONNECT, text="the transport is closed")
        reply = await self._try(content)
        if reply.enhanced == GONE and content.endpoint_id is not None and self._on_gone is not None:
            await self._on_gone(content.endpoint_id)
        return reply

    async def _try(self, content: WebhookContent) -> Reply:
        url = content.url
        try:
            return await self._post(content)
        except TimeoutError:
            # Receivers deduplicate by webhook-id, so a timeout can be retried and needs no person.
            return Reply(Stage.CONTENT, text=f"no answer within {self._timeout_s:g} s", remote_host=_host(url))
        except AddressForbidden as error:
            return Reply(Stage.RECIPIENT, REFUSED, "forbidden", str(error), remote_host=_host(url))
        except (aiohttp.ClientError, OSError, ValueError) as error:
            return _trouble(error, url)

    async def close(self) -> None:
        """Close connections and the inbox. Idempotent."""
        self._closed = True
        session, self._session = self._session, None
        if session is not None:
            await session.close()
        if self._inbox is not None:
            await self._inbox.close()

    async def _post(self, content: WebhookContent) -> Reply:
        url = URL(content.url, encoded=True)
        self._resolver.check_host(url.raw_host or "")
        ends_at = asyncio.get_running_loop().time() + self._timeout_s
        async with asyncio.timeout_at(ends_at):
            response = await self._opened().post(
                url, data=content.body, headers=dict(content.headers), allow_redirects=False
            )
        async with response:
            body = await _read(response, ends_at)
            assert isinstance(response, KnownResponse)
            return replace(
                reply_to(response.status, response.headers, body, now=datetime.now(UTC)),
                remote_host=f"{url.host} [{response.peer}]",
                tls=response.tls_version,
            )

    def _opened(self) -> aiohttp.ClientSession:
        """The session, created on first use because it belongs to the running event loop."""
        if self._session is None:
            connector = aiohttp.TCPConnector(
                resolver=self._resolver,
                use_dns_cache=False,  # a cached address would outlive its TTL
                limit=self._max_connections,
                ssl=self._tls,
            )
            self._session = aiohttp.ClientSession(
                connector=connector,
                cookie_jar=aiohttp.DummyCookieJar(),
                timeout=aiohttp.ClientTimeout(total=None),
                auto_decompress=False,  # two kilobytes can unpack to gigabytes
                trust_env=False,
                response_class=KnownResponse,
                max_line_size=HEADER_LIMIT,
                max_field_size=HEADER_LIMIT,
                skip_auto_headers=("Accept", "Accept-Encoding"),
            )
        return self._session


async def _read(response: aiohttp.ClientResponse, ends_at: float) -> bytes:
    """Read the body up to the limit. A received status is an answer even if the body fails."""
    body = b""
    with contextlib.suppress(aiohttp.ClientError, OSError):  # a timeout is an OSError
        async with asyncio.timeout_at(ends_at):
            while len(body) < BODY_LIMIT and (more := await response.content.read(BODY_LIMIT - len(body))):
                body += more
    if not response.content.at_eof():
        response.close()  # the rest is not read, so the connection cannot be reused
    return body


def _trouble(error: Exception, url: str) -> Reply:
    """The reply if no response came. The texts are our own, because the library's texts contain the URL."""
    if isinstance(error, aiohttp.ClientSSLError | ssl.SSLError):  # before ValueError: some are both
        return Reply(Stage.TLS, text="the receiver's certificate or its TLS cannot be trusted", remote_host=_host(url))
    if isinstance(error, ValueError):
        return Reply(Stage.RECIPIENT, REFUSED, "invalid", "the URL or a header cannot be used")
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        return Reply(Stage.CONNECT, text="the host name is not known", remote_host=_host(url))
    if isinstance(error, aiohttp.ClientConnectorError):
        return Reply(Stage.CONNECT, text=f"no connection: {error.strerror}", remote_host=_host(url))
    return Reply(Stage.CONTENT, text=f"the connection was lost: {type(error).__name__}", remote_host=_host(url))


def _host(url: str) -> str | None:
    return URL(url, encoded=True).host
