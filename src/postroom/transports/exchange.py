"""One request to a provider's HTTP API, and the stage it reached if no response came.

Providers accept mail by POST. After a lost connection or a timeout, mail that had not completely left was not sent;
otherwise the result is unknown. `Exchange` reports these as `Stage.CONTENT` and `Stage.FINAL` without a code. A
request is made once and redirects are not followed.

HOSTILE INPUT  responses: at most `ANSWER_LIMIT` bytes of one are read.
"""

import asyncio
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import msgspec
from yarl import URL

from postroom.post.reply import Reply, Stage
from postroom.transports.base import SendProgress
from postroom.transports.response import KnownResponse
from postroom.transports.smtp.answer import clean_text

ANSWER_LIMIT = 64 * 1024  # bytes of a response body; an error text is far shorter
_BLOCK = 64 * 1024  # bytes per read
_SUCCESS, _REDIRECT = 200, 300  # 2xx


def is_private_channel(url: str) -> bool:
    """True for https and for http on loopback: a channel that may carry a token or a signed claim."""
    try:
        parts = urlsplit(url)
        is_local = parts.hostname == "localhost" or ip_address(parts.hostname or "").is_loopback
    except ValueError:  # a host name, or no valid address
        is_local = False
    return is_http(url) and (is_local or url.startswith("https://"))


def is_http(url: str) -> bool:
    """True for a valid http or https URL."""
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        return False


@dataclass(frozen=True, slots=True)
class Answered:
    """An HTTP response."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    remote_host: str | None = None
    tls: str | None = None

    @property
    def is_success(self) -> bool:
        return _SUCCESS <= self.status < _REDIRECT

    @property
    def json(self) -> dict[str, Any]:
        """The body as an object; empty if it is not a JSON object."""
        try:
            return msgspec.json.decode(self.body, type=dict[str, Any])
        except (msgspec.MsgspecError, RecursionError, UnicodeError):
            return {}


class _Body:
    """A request body that records when its last byte was taken."""

    def __init__(self, content: bytes) -> None:
        self._content = content
        self.size = len(content)
        self.stage = Stage.CONNECT

    async def __aiter__(self) -> AsyncIterator[bytes]:
        self.stage = Stage.CONTENT
        for start in range(0, len(self._content), _BLOCK):
            yield self._content[start : start + _BLOCK]
        self.stage = Stage.FINAL  # the next block was requested, so the last one was written


class Exchange:
    """Requests to one provider over kept connections.

    Callers take a `turn` first, of which there are `max_connections`; no timeout runs while they wait for one. After
    `close`, turns requested before are still served.
    """

    def __init__(self, *, timeout_s: float, max_connections: int, tls: ssl.SSLContext | None = None) -> None:
        if max_connections < 1 or timeout_s <= 0:
            raise ValueError("a transport needs at least one connection and a positive timeout")
        self._timeout_s, self._max_connections = timeout_s, max_connections
        self._turns = asyncio.Semaphore(max_connections)  # not aiohttp's: its timeout runs while a caller waits
        self._users = 0  # callers that have or await a turn
        self._tls = tls
        self._session: aiohttp.ClientSession | None = None
        self._closing = self._closed = False

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Wait for a turn; the last one that ends after `close` closes the connections."""
        SendProgress.current().follow(lambda: Stage.CONNECT)
        self._users += 1
        try:
            async with self._turns:
                yield
        finally:
            self._users -= 1
            if self._closing:
                await self.close()

    async def ask(
        self, method: str, url: str, *, headers: Mapping[str, str], content: bytes = b"", timeout_s: float | None = None
    ) -> Answered | Reply:
        """Make one request. A `Reply` without a code means that no response came; its stage is how far it got."""
        return await self._request(method, url, headers, _Body(content), timeout_s or self._timeout_s)

    async def hand_over(self, url: str, *, headers: Mapping[str, str], content: bytes) -> Answered | Reply:
        """Make the request that carries the message: `SendProgress` follows it, and an expired message is not sent."""
        body, passage = _Body(content), SendProgress.current()
        passage.follow(lambda: body.stage)
        if not passage.may_leave():
            return Reply(Stage.CONNECT, text="the message has expired")
        return await self._request("POST", url, headers, body, self._timeout_s)

    async def _request(
        self, method: str, url: str, headers: Mapping[str, str], body: _Body, patience: float
    ) -> Answered | Reply:
        if self._closed:
            return Reply(Stage.CONNECT, text="the transport is closed")
        try:
            async with asyncio.timeout(patience):
                return await self._ask(method, URL(url, encoded=True), headers, body if body.size else None)
        except TimeoutError:
            return _silent(body, f"no answer within {patience:g} s", url)
        except (aiohttp.ClientError, OSError) as error:
            return _trouble(error, body, url)

    async def close(self) -> None:
        """Close connections as soon as no caller has a turn. Idempotent."""
        self._closing = True
        if self._users:
            return
        self._closed = True
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def _ask(self, method: str, url: URL, headers: Mapping[str, str], body: _Body | None) -> Answered:
        given = dict(headers)
        if body is not None:
            given["Content-Length"] = str(body.size)
        async with self._opened().request(method, url, data=body, headers=given, allow_redirects=False) as response:
            assert isinstance(response, KnownResponse)
            said = await _read(response)
            host = f"{url.host} [{response.peer}]"
            return Answered(response.status, response.headers, said, host, response.tls_version)

    def _opened(self) -> aiohttp.ClientSession:
        """The session, created on first use because it belongs to the running event loop."""
        if self._session is None:
            connector = aiohttp.TCPConnector(limit=self._max_connections, ssl=self._tls or True)
            self._session = aiohttp.ClientSession(
                connector=connector,
                cookie_jar=aiohttp.DummyCookieJar(),
                timeout=aiohttp.ClientTimeout(total=None),
                trust_env=False,
                response_class=KnownResponse,
                skip_auto_headers=("Accept-Encoding", "Content-Type", "User-Agent"),
            )
        return self._session


async def _read(response: aiohttp.ClientResponse) -> bytes:
    """Read the response up to the limit. A received status is an answer even if the body fails."""
    try:
        said = await response.content.readexactly(ANSWER_LIMIT)
    except asyncio.IncompleteReadError as ended:
        return ended.partial
    except (aiohttp.ClientError, OSError):
        return b""
    response.close()  # the rest is not read, so the connection cannot be reused
    return said


def _trouble(error: Exception, body: _Body, url: str) -> Reply:
    """The reply if no response came. The texts are our own, because the library's texts contain the URL."""
    host = URL(url, encoded=True).host
    if isinstance(error, aiohttp.ClientConnectorSSLError | aiohttp.ClientConnectorCertificateError):
        return Reply(Stage.TLS, text="the certificate or the TLS cannot be trusted", remote_host=host)
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        return Reply(Stage.CONNECT, text="the host name is not known", remote_host=host)
    if isinstance(error, aiohttp.ClientConnectorError):
        return Reply(Stage.CONNECT, text=f"no connection: {error.strerror}", remote_host=host)
    return _silent(body, f"the connection was lost: {type(error).__name__}", url)


def _silent(body: _Body, text: str, url: str) -> Reply:
    return Reply(body.stage, text=text, remote_host=URL(url, encoded=True).host)


def excerpt(said: str) -> str:
    """Text of the other side, safe to store and show."""
    return " ".join(clean_text(said).split()).rstrip(" :")
