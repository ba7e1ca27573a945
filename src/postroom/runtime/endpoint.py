"""The HTTP endpoints of a capability, as data: API calls, public links and pages of the dashboard alike.

A capability lists `Endpoint`s; `postroom.http` routes them, checks keys and scopes, decodes and validates input,
encodes output, and writes the OpenAPI document from the same list. A handler is one async function from a `Call` to an
`Answer`: parse → one service call → render.
"""

import atexit
import gc
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, TypeVar, cast

from postroom.db.room import Room
from postroom.errors import FieldError, ScopeMissing

# msgspec 0.22 frees the types of nested Structs twice when the interpreter collects its last garbage, and a process
# that has done everything right ends by a signal. What is frozen is left to the operating system.
atexit.register(gc.freeze)


MEGABYTE = 1024 * 1024
LARGE = sys.maxsize
"""`most_body` of endpoints that take attachments or batches: what POSTROOM_MAX_BODY_MB allows."""


Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
ASGIApp = Callable[[Scope, Receive, Send], Awaitable[None]]

T = TypeVar("T")


@dataclass(slots=True)
class Call:
    """One request. The application fills it step by step: route, key, query, body; the handler reads it."""

    room: Room
    tools: Mapping[type, Any]
    asgi: Scope
    headers: Mapping[str, str]  # names in lower case
    client: str  # the address of the client; empty if it has none
    request_id: str
    path: Mapping[str, Any] = field(default_factory=dict)  # the values in the path
    actor: str = "anonymous"  # key:<id>:<name>, for the audit log
    source: str = ""  # the key's name, for deliveries
    scopes: tuple[str, ...] = ()  # of the key
    query: Any = None  # an instance of Endpoint.query, or None
    body: Any = None  # an instance of Endpoint.body, or None
    raw: bytes = b""  # the body as it came; empty if it is streamed
    chunks: AsyncIterator[bytes] | None = None  # the body of an endpoint that streams

    @property
    def method(self) -> str:
        return cast("str", self.asgi["method"])

    @property
    def target(self) -> str:
        """The path and the query as they were sent, for signatures over them."""
        path: bytes = self.asgi.get("raw_path") or self.asgi["path"].encode()
        query: bytes = self.asgi["query_string"]
        return (path + b"?" + query if query else path).decode("latin-1")

    def tool(self, kind: type[T]) -> T:
        """The object of this class that the process was composed with."""
        return cast("T", self.tools[kind])

    def need(self, scope: str) -> None:
        """Raise `ScopeMissing` unless the key has this scope, or all of them."""
        if scope not in self.scopes and "*" not in self.scopes:
            raise ScopeMissing(scope)


@dataclass(frozen=True, slots=True)
class Answer:
    """A handler's answer: a status, and bytes, a stream of bytes, or a value that msgspec encodes."""

    value: Any = None
    status: int = 200
    media_type: str = "application/json"
    headers: Mapping[str, str] = field(default_factory=dict)


def redirect(location: str, status: HTTPStatus = HTTPStatus.SEE_OTHER) -> Answer:
    return Answer(b"", int(status), "text/plain", {"location": location})


class ProtocolError(Exception):
    """The HTTP application refused the request before a capability saw it."""

    def __init__(self, status: HTTPStatus, detail: str, *, field: str | None = None, allow: str | None = None) -> None:
        super().__init__(detail)
        self.status, self.detail = status, detail
        self.errors = (FieldError(field, detail),) if field else ()
        self.headers = {"allow": allow} if allow else {}


Handler = Callable[[Call], Awaitable[Answer]]
Refuse = Callable[[Call, Exception, Answer], Answer | None]
"""Writes a refusal in the form of another protocol or as a page; None: the problem document (the third argument)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """One method of one path, completely described."""

    method: str
    path: str  # "/v1/deliveries/{delivery_id:int}"
    handler: Handler
    summary: str
    scope: str | None  # None: public
    tag: str
    query: type | None = None  # a `Shape` whose fields are the query parameters
    body: Any = None  # a `Shape`, or a type such as list[Item]
    answers: Mapping[int, Any] = field(default_factory=dict)  # status → type of the JSON answer
    media_type: str = "application/json"  # of the successful answer
    problems: Sequence[int] = ()  # error statuses beyond those every endpoint of its kind can answer
    idempotent: bool = False  # takes an Idempotency-Key header
    accepts: Sequence[str] = ()  # media types of a body that is not JSON, and is left as it is
    most_body: int | None = None  # bytes; None: 1 MB if the endpoint takes a body, otherwise it is not read at all
    refuse: Refuse | None = None
    stream: bool = False  # the body may be of any size: the handler reads it from `Call.chunks`
    is_page: bool = False  # for browsers: any Accept header will do, and an invalid query counts as none
    headers: Mapping[str, str] = field(default_factory=dict)  # of every answer and refusal, unless it has its own

    def body_limit(self, most: int) -> int:
        """The bytes of a body that are read, where the settings allow `most`."""
        takes_body = self.body is not None or bool(self.accepts)
        return min(most, (MEGABYTE if takes_body else 0) if self.most_body is None else self.most_body)


@dataclass(frozen=True, slots=True)
class Site:
    """Endpoints that a process serves beside the API, and the objects their handlers use."""

    endpoints: Sequence[Endpoint]
    tools: Sequence[object] = ()
    refuse_unknown: Refuse | None = None  # answers paths that no endpoint has
