"""HTTP endpoints of a capability as data: API calls, public links and pages of the dashboard.

A capability lists `Endpoint`s; `postroom.http` routes them, checks keys and scopes, decodes and validates input,
encodes output, and generates the OpenAPI document from the same list. A handler is one async function from a `Call` to
an `Answer`: parse → one service call → render.
"""

import atexit
import gc
import re
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, MutableMapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from http import HTTPStatus
from typing import Any, TypeVar, cast

import msgspec

from postroom.db.room import Room
from postroom.errors import FieldError, ScopeMissing

# msgspec 0.22 frees the types of nested Structs twice in the interpreter's last garbage collection, so that a process
# that succeeded ends by a signal. Frozen objects are not collected.
atexit.register(gc.freeze)


PROBLEM = "application/problem+json"
MEGABYTE = 1024 * 1024  # bytes
PUBLIC_BODY = 64 * 1024
"""The largest body that is read for a client that has proven nothing: with 800 connections, 50 MB."""
LARGE = sys.maxsize
"""`most_body` of endpoints that take attachments or batches: the limit is POSTROOM_MAX_BODY_MB."""


PARAMETER = re.compile(r"\{(\w+)(?::(\w+))?\}")
"""A parameter of a path: its name and its kind."""

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
    client: str  # address of the client; empty without one
    request_id: str
    path: Mapping[str, Any] = field(default_factory=dict)  # the values in the path
    actor: str = "anonymous"  # key:<id>:<name>, for the audit log
    source: str = ""  # the key's name, for deliveries
    key_id: int | None = None  # of the API key, for its limits; None: no key, or another kind of credential
    scopes: tuple[str, ...] = ()  # of the key
    query: Any = None  # an instance of Endpoint.query, or None
    body: Any = None  # an instance of Endpoint.body, or None
    admitted: Any = None  # the result of Endpoint.admit
    raw: bytes = b""  # the body as received; empty if it is streamed
    chunks: AsyncIterator[bytes] | None = None  # the body of a streaming endpoint

    @property
    def method(self) -> str:
        return cast("str", self.asgi["method"])

    @property
    def target(self) -> str:
        """Path and query as received, for signatures."""
        path: bytes = self.asgi.get("raw_path") or self.asgi["path"].encode()
        query: bytes = self.asgi["query_string"]
        return (path + b"?" + query if query else path).decode("latin-1")

    def tool(self, kind: type[T]) -> T:
        """The object of this class that the process was composed with."""
        return cast("T", self.tools[kind])

    def may(self, scope: str) -> bool:
        """Whether the key has this scope or all scopes."""
        return scope in self.scopes or "*" in self.scopes

    def need(self, scope: str) -> None:
        """Raise `ScopeMissing` unless the key has this scope or all scopes."""
        if not self.may(scope):
            raise ScopeMissing(scope)


@dataclass(frozen=True, slots=True)
class Answer:
    """A response: a status, and bytes, a stream of bytes, or a value that msgspec encodes."""

    value: Any = None
    status: int = 200
    media_type: str = "application/json"
    headers: Mapping[str, str] = field(default_factory=dict)


def redirect(location: str) -> Answer:
    return Answer(b"", int(HTTPStatus.SEE_OTHER), "text/plain", {"location": location})


class ProblemField(msgspec.Struct, frozen=True):
    """One wrong field: its path and what is wrong with it."""

    field: str
    message: str


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """The reason why a request was rejected (RFC 9457). `code` is stable and meant for programs."""

    type: str
    title: str
    status: int
    detail: str
    code: str
    errors: list[ProblemField]
    scope: str | msgspec.UnsetType = msgspec.UNSET  # that the key lacks


class ProtocolError(Exception):
    """The HTTP application rejected the request before its handler ran."""

    def __init__(self, status: HTTPStatus, detail: str, *, field: str | None = None, allow: str | None = None) -> None:
        super().__init__(detail)
        self.status, self.detail = status, detail
        self.errors = (FieldError(field, detail),) if field else ()
        self.headers = {"allow": allow} if allow else {}


Handler = Callable[[Call], Awaitable[Answer]]
Admit = Callable[[Call], Awaitable[Any]]
Refuse = Callable[[Call, Exception, Answer], Answer | None]
"""Renders an error in the form of another protocol or as a page; None: use the problem document (third argument)."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One method of one path."""

    method: str
    path: str  # "/v1/deliveries/{delivery_id:int}"
    handler: Handler
    summary: str
    _: KW_ONLY
    scope: str | None  # None: public
    admit: Admit | None = None  # of a public endpoint: checks the client before the body is read
    tag: str
    query: type | None = None  # a `Shape` whose fields are the query parameters
    body: Any = None  # a `Shape`, or a type such as list[Item]
    answers: Mapping[int, Any] = field(default_factory=dict)  # status → type of the JSON answer
    media_type: str = "application/json"  # of the successful answer
    problems: Sequence[int] = ()  # error statuses besides those of every endpoint of its kind
    idempotent: bool = False  # takes an Idempotency-Key header
    accepts: Sequence[str] = ()  # media types of a body that is not JSON and is not decoded
    most_body: int | None = None  # bytes; None: 1 MB if the endpoint takes a body, otherwise no body is read.
    # PUBLIC_BODY at most, if neither a key nor `admit` is asked before
    refuse: Refuse | None = None
    stream: bool = False  # the body has no size limit: the handler reads it from `Call.chunks`
    from_replica: bool = False  # lists, counts or exports records, and may be as late as POSTROOM_DATABASE_REPLICA_LAG
    is_page: bool = False  # for browsers: any Accept header is accepted, and an invalid query is ignored
    headers: Mapping[str, str] = field(default_factory=dict)  # of every response, unless it sets its own

    def body_limit(self, most: int) -> int:
        """The largest body that is read, given the limit of the settings."""
        takes_body = self.body is not None or bool(self.accepts)
        own = (MEGABYTE if takes_body else 0) if self.most_body is None else self.most_body
        return min(most, own, most if self.scope or self.admit else PUBLIC_BODY)


@dataclass(frozen=True, slots=True)
class Site:
    """Endpoints that a process serves besides the API, and the objects their handlers use."""

    endpoints: Sequence[Endpoint]
    tools: Sequence[object] = ()
    refuse_unknown: Refuse | None = None  # responds to unknown paths
    recognise: Callable[[Call], Awaitable[None]] | None = None  # notes who asks for an unknown path, for its answer
    claims: Callable[[Call], bool] | None = (
        None  # calls of its clients, unknown ones too, where another site has a page
    )
