"""What a capability offers over HTTP, said as data.

A capability's `api.py` lists `Endpoint`s; `postroom.http` routes them, checks keys and scopes, decodes and validates
input, encodes output, and writes the OpenAPI document from the same list. A handler is one async function from a
`Call` to an answer: parse → one service call → render.
"""

import atexit
import gc
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

from postroom.db.room import Room
from postroom.errors import FieldError, ScopeMissing

# msgspec 0.22 frees the types of nested Structs twice when the interpreter collects its last garbage, and a process
# that has done everything right ends by a signal. What is frozen is left to the operating system.
atexit.register(gc.freeze)


MEGABYTE = 1024 * 1024
LARGE = sys.maxsize
"""`most_body` of endpoints that take attachments or batches: what POSTROOM_MAX_BODY_MB allows."""


@dataclass(frozen=True, slots=True)
class Call:
    """One authenticated request, decoded."""

    room: Room
    actor: str  # key:<id>:<name>, for the audit log
    source: str  # the key's name, for deliveries
    path: Mapping[str, Any]
    query: Any  # an instance of Endpoint.query, or None
    body: Any  # an instance of Endpoint.body, or None
    headers: Mapping[str, str]  # names in lower case
    method: str = "GET"
    target: str = "/"  # the path and query as they were sent
    raw: bytes = b""  # the body as it came; empty if it is streamed
    chunks: AsyncIterator[bytes] | None = None  # the body of an endpoint that streams
    scopes: tuple[str, ...] = ()  # of the key

    def need(self, scope: str) -> None:
        """Raise `ScopeMissing` unless the key has this scope, or all of them."""
        if scope not in self.scopes and "*" not in self.scopes:
            raise ScopeMissing(scope)


@dataclass(frozen=True, slots=True)
class Answer:
    """A handler's answer: a status, and a value that msgspec can encode or bytes as they are."""

    value: Any = None
    status: int = 200
    media_type: str = "application/json"
    headers: Mapping[str, str] = field(default_factory=dict)


class Refused(Exception):  # noqa: N818 - a condition of the protocol, like the leaves of errors.py
    """The request was refused by the protocol itself, before any capability saw it."""

    def __init__(self, status: HTTPStatus, detail: str, *, field: str | None = None, allow: str | None = None) -> None:
        super().__init__(detail)
        self.status, self.detail = status, detail
        self.errors = (FieldError(field, detail),) if field else ()
        self.headers = {"allow": allow} if allow else {}


Handler = Callable[[Call], Awaitable[Answer]]


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
    refuse: Callable[[Exception], Answer | None] | None = None  # the words of a protocol that is not ours
    stream: bool = False  # the body may be of any size: the handler reads it from `Call.chunks`
    for_people: bool = False  # a page: a query that cannot be read counts as none, and no problem document is shown

    def body_limit(self, most: int) -> int:
        """The bytes of a body that are read, where the settings allow `most`."""
        takes_body = self.body is not None or bool(self.accepts)
        return min(most, (MEGABYTE if takes_body else 0) if self.most_body is None else self.most_body)
