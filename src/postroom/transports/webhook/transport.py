"""Posts a signed request and reports the answer."""

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
from postroom.transports.webhook.inbox import CAPTURE_URL
from postroom.transports.webhook.verdict import GONE, REFUSED, reply_to

TIMEOUT = timedelta(seconds=10)
BODY_LIMIT = 2048
"""How much of an answer is read: enough for a reason, too little for an attack."""
HEADER_LIMIT = 2**16
"""The longest line of an answer before its body. A longer one hides even the status, and counts as no answer."""


@dataclass(frozen=True, slots=True)
class WebhookContent:
    """One request: its headers with the signature, its body, the URL, and the endpoint it is for, if any."""

    headers: Mapping[str, str]
    body: bytes
    url: str
    endpoint_id: int | None = None

    def encode(self, *, eight_bit: bool) -> bytes:
        """The request as a message, which is how an inbox keeps it."""
        body = self.body if eight_bit else self.body.decode().encode("ascii", "backslashreplace")
        lines = [f"{name}: {value}" for name, value in self.headers.items()]
        return "\r\n".join(["Subject: Webhook", "MIME-Version: 1.0", *lines, "", ""]).encode() + body + b"\r\n"


class WebhookTransport:
    """Posts webhooks. Any number of tasks may send at once; `max_connections` of them are served.

    `inbox` gets requests to `inbox.CAPTURE_URL` and is closed with the transport. `on_gone` gets the id of an endpoint
    that answers 410. `tls` replaces the usual verification, for tests and for installations with their own authorities.
    """

    name = "webhook"

    def __init__(
        self,
        *,
        timeout: timedelta = TIMEOUT,
        allow_private: bool = False,
        max_connections: int = 100,
        inbox: Transport | None = None,
        on_gone: Callable[[int], Awaitable[None]] | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._timeout_s = timeout.total_seconds()
        self._resolver = GuardedResolver(allow_private=allow_private)
        self._max_connections, self._inbox, self._on_gone = max_connections, inbox, on_gone
        self._tls = tls or ssl.create_default_context()
        self._session: aiohttp.ClientSession | None = None
        self._closed = False

    async def send(self, envelope: Envelope, content: Content) -> Reply:
        """Post once. Never raises for what the network or the receiver does."""
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
            # Receivers know a repetition by its webhook-id, so silence is no reason to ask a person.
            return Reply(Stage.CONTENT, text=f"no answer within {self._timeout_s:g} s", remote_host=_host(url))
        except AddressForbidden as error:
            return Reply(Stage.RECIPIENT, REFUSED, "forbidden", str(error), remote_host=_host(url))
        except (aiohttp.ClientError, OSError, ValueError) as error:
            return _trouble(error, url)

    async def close(self) -> None:
        """Give back connections, the inbox's too; twice is once."""
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
        """The session, made at the first use: it belongs to the loop that runs then."""
        if self._session is None:
            connector = aiohttp.TCPConnector(
                resolver=self._resolver,
                use_dns_cache=False,  # a kept answer would outlive what its owner says
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
    """As much of the body as is kept. A status that came is an answer, whatever becomes of the body."""
    body = b""
    with contextlib.suppress(aiohttp.ClientError, OSError):  # a time-out is one of the latter
        async with asyncio.timeout_at(ends_at):
            while len(body) < BODY_LIMIT and (more := await response.content.read(BODY_LIMIT - len(body))):
                body += more
    if not response.content.at_eof():
        response.close()  # the rest is not wanted, and a connection with a rest cannot be used again
    return body


def _trouble(error: Exception, url: str) -> Reply:
    """No answer: how far it got. The words are ours, because the library's would repeat the URL."""
    if isinstance(error, aiohttp.ClientSSLError | ssl.SSLError):  # some of which are a ValueError too
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
