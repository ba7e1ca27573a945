"""`postroom.Client`: the client for asynchronous code, on aiohttp."""

import asyncio
from collections.abc import AsyncGenerator, Iterator
from contextlib import contextmanager
from typing import Self

import aiohttp
from yarl import URL

from postroom.client.api import Api
from postroom.client.calls import Asynchronous
from postroom.client.session import ClientRequest, ConnectionLost, Session


@contextmanager
def _failures() -> Iterator[None]:
    """Raise `ConnectionLost` for every error of the connection."""
    try:
        yield
    except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
        raise ConnectionLost(error, is_sent=False) from error
    except (aiohttp.ClientError, TimeoutError, OSError) as error:
        raise ConnectionLost(error) from error


class _AiohttpResponse:
    """A response of aiohttp."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self._response = response
        self.status: int = response.status

    def header(self, name: str) -> str | None:
        return self._response.headers.get(name)

    async def read(self) -> bytes:
        with _failures():
            async with self._response:
                return await self._response.read()

    async def chunks(self) -> AsyncGenerator[bytes, None]:
        with _failures():
            async with self._response:
                async for chunk in self._response.content.iter_any():
                    yield chunk


class _AiohttpTransport:
    """Sends requests on the connections of one aiohttp session, which begins with the first request."""

    is_blocking = False

    def __init__(self, url: str, timeout_s: float) -> None:
        self._url = url
        # No limit for the whole: an upload or a download may take long, as long as it proceeds.
        self._timeout = aiohttp.ClientTimeout(total=None, sock_connect=timeout_s, sock_read=timeout_s)
        self._session: aiohttp.ClientSession | None = None

    async def send(self, request: ClientRequest) -> _AiohttpResponse:
        if self._session is None:
            self._session = aiohttp.ClientSession(timeout=self._timeout)
        url = URL(self._url + request.target, encoded=True)
        with _failures():
            return _AiohttpResponse(
                await self._session.request(
                    request.method, url, data=request.body, headers=request.headers, allow_redirects=False
                )
            )

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()


class Client(Api[Asynchronous]):
    """One API server and one key, for asynchronous code. An async context manager; it keeps connections alive."""

    def __init__(self, url: str, key: str, *, timeout_s: float = 30, retries: int = 4, backoff_s: float = 0.5) -> None:
        """`timeout_s` limits connecting, and each wait for the next bytes.

        A request that failed is sent up to `retries` times more, after `backoff_s` seconds, twice as long each time.
        """
        url = url.rstrip("/")
        super().__init__(Session(url, key, _AiohttpTransport(url, timeout_s), retries, backoff_s))

    async def close(self) -> None:
        await self.session.transport.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_error: object) -> None:
        await self.close()
