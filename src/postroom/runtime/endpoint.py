"""What a capability offers over HTTP, said as data.

A capability's `api.py` lists `Endpoint`s; `postroom.http` routes them, checks keys and scopes, decodes and validates
input, encodes output, and writes the OpenAPI document from the same list. A handler is one async function from a
`Call` to an answer: parse → one service call → render.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from postroom.db.room import Room


@dataclass(frozen=True, slots=True)
class Call:
    """One authenticated request, decoded."""

    room: Room
    actor: str  # key:<name>, for the audit log
    source: str  # the key's name, for deliveries
    path: Mapping[str, Any]
    query: Any  # an instance of Endpoint.query, or None
    body: Any  # an instance of Endpoint.body, or None
    headers: Mapping[str, str]  # names in lower case


@dataclass(frozen=True, slots=True)
class Answer:
    """A handler's answer: a status, and a value that msgspec can encode or bytes as they are."""

    value: Any = None
    status: int = 200
    media_type: str = "application/json"
    headers: Mapping[str, str] = field(default_factory=dict)


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
    query: type | None = None  # a msgspec.Struct whose fields are the query parameters
    body: type | None = None  # a msgspec.Struct, or a type such as list[Item]
    answers: Mapping[int, type | None] = field(default_factory=dict)  # status → type of the JSON answer
    media_type: str = "application/json"  # of the successful answer
    problems: tuple[int, ...] = ()  # error statuses beyond 400/401/403/413/415
    idempotent: bool = False  # takes an Idempotency-Key header
