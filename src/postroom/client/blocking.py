"""`postroom.sync.Client`: the client for synchronous code, on `http.client`."""

import selectors
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import contextmanager, suppress
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from typing import Self
from urllib.parse import urlsplit

from postroom.blocking import run_blocking
from postroom.client.api import Api
from postroom.client.calls import Synchronous
from postroom.client.session import ClientRequest, ConnectionLost, Session
from postroom.client.upload import PIECE, FileUpload


@contextmanager
def _failures(connection: HTTPConnection, *, is_sent: bool = True) -> Iterator[None]:
    """Close the connection after any error, and raise `ConnectionLost` for its own."""
    try:
        yield
    except (OSError, HTTPException) as error:
        connection.close()
        raise ConnectionLost(error, is_sent=is_sent) from error
    except BaseException:  # an abandoned download, or an error of the file that is sent
        connection.close()
        raise


class _HttpResponse:
    """A response of http.client; its connection is free for other requests when it has been read."""

    def __init__(
        self, connection: HTTPConnection, response: HTTPResponse, release: Callable[[HTTPConnection], None]
    ) -> None:
        self._connection, self._response, self._release = connection, response, release
        self.status: int = response.status

    def header(self, name: str) -> str | None:
        return self._response.headers.get(name)

    async def read(self) -> bytes:
        with _failures(self._connection):
            content = self._response.read()
        self._release(self._connection)
        return content

    async def chunks(self) -> AsyncGenerator[bytes, None]:
        with _failures(self._connection):
            while chunk := self._response.read1(PIECE):
                yield chunk
            self._response.close()  # `read1` does not see the end of a response with a known length
        self._release(self._connection)


class _HttpTransport:
    """Keeps connections alive between requests; each thread uses another one, as long as its request takes."""

    is_blocking = True

    def __init__(self, url: str, timeout_s: float) -> None:
        parts = urlsplit(url)
        self._kind = HTTPSConnection if parts.scheme == "https" else HTTPConnection
        self._host, self._port, self._prefix = parts.hostname or "", parts.port, parts.path
        self._timeout_s = timeout_s
        self._idle: deque[HTTPConnection] = deque()

    async def send(self, request: ClientRequest) -> _HttpResponse:
        connection = self._connection()
        target = self._prefix + request.target
        with _failures(connection):
            if isinstance(request.body, FileUpload):
                headers = {**request.headers, "Transfer-Encoding": "chunked"}
                # A server that refuses an upload stops reading it, and the reason is in its response.
                with suppress(BrokenPipeError, ConnectionResetError):
                    connection.request(request.method, target, request.body, headers, encode_chunked=True)
            else:
                connection.request(request.method, target, request.body, dict(request.headers))
            return _HttpResponse(connection, connection.getresponse(), self._release)

    async def sleep(self, seconds: float) -> None:
        time.sleep(seconds)  # noqa: ASYNC251 - there is no event loop: the coroutine runs in the caller's thread

    async def close(self) -> None:
        while self._idle:
            self._idle.pop().close()

    def _connection(self) -> HTTPConnection:
        """An idle connection that the server has not closed, or a new one."""
        while True:
            try:
                connection = self._idle.pop()
            except IndexError:
                break
            if not _is_readable(connection):
                return connection
            connection.close()
        connection = self._kind(self._host, self._port, timeout=self._timeout_s)
        with _failures(connection, is_sent=False):
            connection.connect()
        return connection

    def _release(self, connection: HTTPConnection) -> None:
        if connection.sock is not None:  # None: the server asked to close it
            self._idle.append(connection)


def _is_readable(connection: HTTPConnection) -> bool:
    """True if there is something to read between two requests: the end of the connection."""
    with selectors.DefaultSelector() as selector:
        selector.register(connection.sock, selectors.EVENT_READ)
        return bool(selector.select(0))


class BlockingClient(Api[Synchronous]):
    """One API server and one key, for synchronous code. A context manager; threads may share it."""

    def __init__(self, url: str, key: str, *, timeout_s: float = 30, retries: int = 4, backoff_s: float = 0.5) -> None:
        """Takes the arguments of `postroom.Client`."""
        url = url.rstrip("/")
        super().__init__(Session(url, key, _HttpTransport(url, timeout_s), retries, backoff_s))

    def close(self) -> None:
        run_blocking(self.session.transport.close())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()
