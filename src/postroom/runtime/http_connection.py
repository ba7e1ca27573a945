"""One HTTP connection with limits: uvicorn's httptools protocol, which has none of its own.

| limit                                              | response                     |
|----------------------------------------------------|------------------------------|
| head, or trailers: 64 kB, 100 headers              | 431                          |
| head: 10 s from the first byte, or from connecting | 408                          |
| body: 30 s, and one second more for each 8 kB      | 408                          |
| body after the response was sent: 30 s             | the connection ends          |
| a client that does not read its response: 60 s     | the connection ends          |
| connections in all, and from one address           | 503                          |

Responses are problem documents. The server calls `check` once a second; no connection has a timer of its own.
"""

import asyncio
import json
import math
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from postroom.runtime.peers import LOOPBACK, Network, is_within, network_of

_LINGER_S = 2.0  # a rejected client may still be sending; closing at once would discard the unread response


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpLimits:
    """Limits of one client."""

    head_bytes: int = 64 * 1024  # several times the cookies and headers that proxies add
    headers: int = 100  # as most servers allow
    head_s: float = 10.0  # a client sends the head in one packet or two
    body_s: float = 30.0
    body_bytes_per_s: int = 8 * 1024  # a slow mobile connection; a slower client holds the connection on purpose
    unread_s: float = 60.0
    connections: int = 800  # leaves room for the database below the 1024 descriptors of many systems
    connections_per_peer: int = 100  # one address cannot occupy all of them
    unlimited: Sequence[Network] = LOOPBACK  # peers without a limit of connections


class LimitedConfig(uvicorn.Config):
    """uvicorn's configuration with limits and the connections of each address."""

    def __init__(self, app: Any, limits: HttpLimits, **options: Any) -> None:
        # "error": uvicorn warns about each request that is not HTTP, so that any client could fill the log.
        super().__init__(app, http=LimitedConnection, ws="none", log_level="error", **options)
        self.limits = limits
        self.peers: Counter[str] = Counter()


class LimitedConnection(HttpToolsProtocol):
    """Counts bytes since the last progress, keeps one deadline, and rejects with problem documents."""

    config: LimitedConfig

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn's
        super().connection_made(transport)
        self._limits = self.config.limits
        self._peer = network_of(self.client[0] if self.client else "")
        self._without_progress = 0
        self._head_size = self._header_count = 0
        self._is_body = self._is_refused = False
        self._unanswered: deque[RequestResponseCycle] = deque()  # in order; the last one is `cycle`
        self._refusal: tuple[HTTPStatus, str] | None = None
        self._deadline = self.loop.time() + self._limits.head_s
        self._unread_since = math.inf
        self.config.peers[self._peer] += 1
        if len(self.connections) > self._limits.connections:
            self._refuse(HTTPStatus.SERVICE_UNAVAILABLE, "The server has too many connections. Try again later.")
        elif self.config.peers[self._peer] > self._limits.connections_per_peer and not self._is_unlimited():
            self._refuse(HTTPStatus.SERVICE_UNAVAILABLE, "This address has too many connections. Close some first.")

    def connection_lost(self, exc: Exception | None) -> None:
        self.config.peers[self._peer] -= 1
        if not self.config.peers[self._peer]:
            del self.config.peers[self._peer]
        for cycle in self._unanswered:  # the library notifies only the last one; the others would write and raise
            cycle.disconnected = True
            cycle.message_event.set()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._deadline == math.inf:  # the first bytes of the next request on a kept-alive connection
            self._deadline = self.loop.time() + self._limits.head_s
        while data and not self._is_refused:
            room = self._limits.head_bytes - self._without_progress
            piece, data = data[:room], data[room:]
            self._without_progress += len(piece)
            super().data_received(piece)
            if self._without_progress >= self._limits.head_bytes:
                self._refuse(*self._too_large())

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._head_size = self._header_count = 0

    def on_url(self, url: bytes) -> None:
        self._count_head(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._header_count += 1
        self._count_head(len(name) + len(value))
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._without_progress = 0
        self._is_body = True
        self._deadline = self.loop.time() + self._limits.body_s
        super().on_headers_complete()
        self._unanswered.append(self.cycle)

    def on_body(self, body: bytes) -> None:
        self._without_progress = 0
        if not self.cycle.response_complete:
            self._deadline += len(body) / self._limits.body_bytes_per_s
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._without_progress = 0
        self._is_body = False
        self._deadline = math.inf
        super().on_message_complete()

    def on_response_complete(self) -> None:
        self._unanswered.popleft()
        super().on_response_complete()

    def pause_writing(self) -> None:
        self._unread_since = self.loop.time()
        super().pause_writing()

    def resume_writing(self) -> None:
        self._unread_since = math.inf
        super().resume_writing()

    def check(self, now: float) -> None:
        """End the connection if its client exceeded a time limit."""
        if now - self._unread_since > self._limits.unread_s:
            self.transport.abort()
        elif self._is_body and self.flow.read_paused:  # the handler is slow, not the client
            self._deadline = max(self._deadline, now + self._limits.body_s)
        elif now > self._deadline:
            part = "body" if self._is_body else "head"
            self._refuse(HTTPStatus.REQUEST_TIMEOUT, f"The {part} of the request took too long to arrive.")

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002 - the library's message, the same for every error
        """Called when the parser failed, or a callback stopped it."""
        self._refuse(*self._refusal or (HTTPStatus.BAD_REQUEST, "The request is not valid HTTP/1.1."))

    def _is_unlimited(self) -> bool:
        return is_within(self.client[0] if self.client else "", self._limits.unlimited)

    def _count_head(self, size: int) -> None:
        self._head_size += size
        if self._head_size > self._limits.head_bytes or self._header_count > self._limits.headers:
            self._refusal = self._too_large()
            raise ValueError  # stops the parser, which then calls send_400_response

    def _too_large(self) -> tuple[HTTPStatus, str]:
        limits = self._limits
        return HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, (
            f"The head of a request may have {limits.head_bytes // 1024} kB and {limits.headers} headers."
        )

    def _refuse(self, status: HTTPStatus, detail: str) -> None:
        """Respond with a problem and end the connection; further data is ignored."""
        if self._is_refused or self.transport.is_closing():
            return
        self._is_refused, self._deadline = True, math.inf
        is_busy = self.cycle is not None and not self.cycle.response_complete
        if is_busy and not self._is_body:
            self.cycle.keep_alive = False  # the previous request gets its response first, and it is the last one
            return
        if (
            is_busy and self.pipeline and self.pipeline[0][0] is self.cycle
        ):  # it is waiting; the previous one is being handled
            self.pipeline.popleft()
            self._unanswered.pop()
            self.cycle = self._unanswered[-1]
            self.cycle.keep_alive = False
            return
        is_new = not is_busy and self._without_progress == 0 and status is HTTPStatus.REQUEST_TIMEOUT
        has_begun = is_busy and self.cycle.response_started
        if is_busy:  # the application must not write: the transport would raise a traceback into the log
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        if is_new or has_begun:
            self.transport.close()
            return
        self._answer(status, detail)

    def _answer(self, status: HTTPStatus, detail: str) -> None:
        self.transport.write(_problem(status, detail))
        if status is HTTPStatus.SERVICE_UNAVAILABLE:  # many clients must not hold sockets
            self.transport.close()
            return
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self.loop.call_later(_LINGER_S, self.transport.close)


def _problem(status: HTTPStatus, detail: str) -> bytes:
    """The document of `postroom.http.problems`, with its head."""
    slug = status.phrase.lower().replace(" ", "_")
    document = {
        "type": f"urn:postroom:problem:{slug}",
        "title": status.phrase,
        "status": int(status),
        "detail": detail,
        "code": slug,
        "errors": [],
    }
    body = json.dumps(document).encode()
    again = "retry-after: 5\r\n" if status is HTTPStatus.SERVICE_UNAVAILABLE else ""
    head = (
        f"HTTP/1.1 {int(status)} {status.phrase}\r\ncontent-type: application/problem+json\r\n"
        f"content-length: {len(body)}\r\n{again}connection: close\r\n\r\n"
    )
    return head.encode() + body
