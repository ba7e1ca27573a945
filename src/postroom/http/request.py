"""Finds the endpoint of a request, and reads the request into its `Call`. Everything that arrives here is hostile.

A path is looked up exactly, or matched with patterns in the order they were listed. A pattern holds parameters:
`{name}` is one segment, `{id:int}` a number, `{id:uuid}` a UUID, `{rest:path}` the rest. Patterns are grouped by their
first two segments, so that a request is compared with a few of them and not with all.

Invalid data becomes `BadInput` with the field's path as the caller wrote it: `to[1]`, `attachments[0].content`,
`limit`. Types are strict: `"1"` is not a number in a body, an unknown field is refused, a query parameter stands once
unless it is a list.
"""

import itertools
import re
import secrets
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from http import HTTPStatus
from typing import Any
from urllib.parse import unquote_to_bytes
from uuid import UUID

import msgspec
from msgspec.inspect import BoolType, IntType, ListType, Metadata, StructType, UnionType, type_info
from prometheus_client import Counter, Histogram

from postroom.errors import BadInput
from postroom.runtime.endpoint import MEGABYTE, PARAMETER, Call, Endpoint, ProtocolError, Receive, Refuse
from postroom.runtime.metrics import HTTP_REQUESTS, HTTP_SECONDS
from postroom.runtime.wrong_field import find_wrong_field

LARGEST_ID = 2**63 - 1  # bigint
METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})

_HEX = "[0-9a-fA-F]"
_KINDS = {
    "": "[^/]{1,200}",
    "int": "[0-9]{1,19}",
    "uuid": f"{_HEX}{{8}}-?{_HEX}{{4}}-?{_HEX}{{4}}-?{_HEX}{{4}}-?{_HEX}{{12}}",
    "path": ".*",
}
_CONVERTERS: dict[str, Callable[[str], Any]] = {"int": int, "uuid": UUID}
Group = tuple[str, str | None]

_LONGEST_NUMBER = 19  # digits enough to be too large
_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
_PROCESS = secrets.token_hex(4)  # tells processes apart in one log
_counter = itertools.count(1)
_JSON = re.compile(r"application/(?:[\w.+-]+\+)?json(?:\s*;\s*charset=\"?utf-8\"?)?\s*", re.IGNORECASE)
_WHOLE_NUMBER = re.compile(r"-?\d{1,18}")
_FLAGS = {"true": True, "false": False}
_KEY = re.compile(r"[!-~]{1,255}")
_LONGEST_PATH = 200  # of a field name in an error, which a client may choose


# ── the endpoint of a request ────────────────────────────────────────────────────────────────────────────────────────


@dataclass(slots=True)
class Route:
    """One path and what its methods do. Metrics are looked up once per status, not once per request."""

    path: str
    pattern: re.Pattern[str]
    converters: tuple[tuple[str, Callable[[str], Any]], ...] = ()
    methods: dict[str, Endpoint] = field(default_factory=dict)
    _counters: dict[tuple[str, int], Counter] = field(default_factory=dict)
    _seconds: Histogram | None = None

    def endpoint_for(self, method: str) -> Endpoint:
        """Raises 404 if the path has no endpoint at all, and 405 with the methods that it has."""
        if not self.methods:
            raise ProtocolError(HTTPStatus.NOT_FOUND, "There is nothing at this path.")
        found = self.methods.get("GET" if method == "HEAD" else method)
        if found is None:
            allowed = sorted({*self.methods, *(["HEAD"] if "GET" in self.methods else [])})
            text = f"This path does not support {method[:20]}; use {', '.join(allowed)}."
            raise ProtocolError(HTTPStatus.METHOD_NOT_ALLOWED, text, allow=", ".join(allowed))
        return found

    @property
    def is_page(self) -> bool:
        """True if the path is for browsers."""
        return any(endpoint.is_page for endpoint in self.methods.values())

    def refuse_of(self, method: str) -> list[Refuse]:
        refuse = self._nearest(method).refuse
        return [] if refuse is None else [refuse]

    def _nearest(self, method: str) -> Endpoint:
        """The endpoint of a method; for a method that the path does not have, its first one."""
        found = self.methods.get("GET" if method == "HEAD" else method)
        return found or next(iter(self.methods.values()))

    def measure(self, method: str, status: int, seconds: float) -> None:
        counter = self._counters.get((method, status))
        if counter is None:
            shown = method if method in METHODS else "other"
            counter = HTTP_REQUESTS.labels(self.path, shown, str(status))
            if len(self._counters) < len(METHODS) * 20:  # a client may invent methods without end
                self._counters[method, status] = counter
        counter.inc()
        if self._seconds is None:
            self._seconds = HTTP_SECONDS.labels(self.path)
        self._seconds.observe(seconds)

    def values(self, path: str) -> dict[str, Any] | None:
        """The values in a path; None if the path is not of this route."""
        match = self.pattern.fullmatch(path)
        if match is None:
            return None
        values: dict[str, Any] = match.groupdict()
        for name, convert in self.converters:
            values[name] = convert(values[name])
            if convert is int and values[name] > LARGEST_ID:  # no row has such an id: PostgreSQL's bigint ends here
                return None
        return values


UNMATCHED = Route("unmatched", re.compile("$^"))


class Routes:
    """All endpoints of a process, ready for look-up."""

    def __init__(self, endpoints: Iterable[Endpoint]) -> None:
        self._exact: dict[str, Route] = {}
        self._groups: dict[Group, list[Route]] = {}
        by_path: dict[str, Route] = {}
        for endpoint in endpoints:
            route = by_path.get(endpoint.path)
            if route is None:
                route = by_path[endpoint.path] = _compile(endpoint.path)
                self._add(route)
            if endpoint.method in route.methods:
                raise ValueError(f"{endpoint.method} {endpoint.path} is listed twice")
            route.methods[endpoint.method] = endpoint

    def find(self, path: str, method: str) -> tuple[Route, dict[str, Any]]:
        """The route of a path and the values in it; `UNMATCHED` if no route matches."""
        exact = self._exact.get(path)
        if exact is not None:
            # Clients of SES post to `/`; without the dashboard there is nothing else at this path.
            is_known = path != "/" or ("GET" if method == "HEAD" else method) in exact.methods
            return exact if is_known else UNMATCHED, {}
        first, second = (*path.split("/", 3), "", "")[1:3]
        for group in ((first, second), (first, None)):
            for route in self._groups.get(group, ()):
                values = route.values(path)
                if values is not None:
                    return route, values
        return UNMATCHED, {}

    def _add(self, route: Route) -> None:
        if not PARAMETER.search(route.path):
            self._exact[route.path] = route
            return
        first, second = route.path.split("/", 3)[1:3]
        self._groups.setdefault((first, None if "{" in second else second), []).append(route)


def _compile(path: str) -> Route:
    pattern, end, converters = "", 0, []
    for found in PARAMETER.finditer(path):
        name, kind = found[1], found[2] or ""
        pattern += f"{re.escape(path[end : found.start()])}(?P<{name}>{_KINDS[kind]})"
        end = found.end()
        if kind in _CONVERTERS:
            converters.append((name, _CONVERTERS[kind]))
    return Route(path, re.compile(pattern + re.escape(path[end:]), re.DOTALL), tuple(converters))


# ── the parts of a request ───────────────────────────────────────────────────────────────────────────────────────────


def request_id_of(headers: Mapping[str, str]) -> str:
    """The client's own if it is plain, otherwise a new one."""
    given = headers.get("x-request-id")
    if given is not None and _REQUEST_ID.fullmatch(given):
        return given
    return f"{_PROCESS}{next(_counter) & 0xFFFFFFFF:08x}"  # a random one for each request costs 1.5 µs of about 20


async def read_call(call: Call, endpoint: Endpoint, receive: Receive, *, most_body: int) -> None:
    """Check and decode what the endpoint takes."""
    _check_body_type(endpoint, call.headers)
    if not endpoint.is_page:
        _check_accept(endpoint, call.headers)
    if endpoint.idempotent:
        check_idempotency_key(call.headers)
    call.query = _query(endpoint, call.asgi["query_string"])
    if endpoint.stream:
        call.chunks = _chunks(receive)
    elif limit := endpoint.body_limit(most_body):
        call.raw = await _read(call.headers, receive, limit)
    if endpoint.body is not None:
        call.body = decode_body(call.raw, endpoint.body)


def _query(endpoint: Endpoint, raw: bytes) -> Any:
    if not endpoint.is_page:
        return decode_query(raw, endpoint.query)
    if endpoint.query is None:
        return None
    try:
        return decode_query(raw, endpoint.query)
    except BadInput:
        return endpoint.query()


async def _read(headers: Mapping[str, str], receive: Receive, limit: int) -> bytes:
    """The body. A larger one than the limit is refused as soon as its size is known."""
    announced = headers.get("content-length", "0")
    size = int(announced[:_LONGEST_NUMBER]) if announced.isdecimal() else 0
    parts: list[bytes] = []
    received, more = 0, True
    while more and size <= limit:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ProtocolError(HTTPStatus.BAD_REQUEST, "The request ended before its body did.", field="body")
        parts.append(message.get("body", b""))
        received += len(parts[-1])
        size, more = max(size, received), message.get("more_body", False)
    if size > limit:
        detail = f"The body of this request may have at most {limit // MEGABYTE} MB."
        raise ProtocolError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, detail, field="body")
    return parts[0] if len(parts) == 1 else b"".join(parts)


async def _chunks(receive: Receive) -> AsyncIterator[bytes]:
    """The body in chunks, as fast as the handler takes them."""
    more = True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ProtocolError(HTTPStatus.BAD_REQUEST, "The request ended before its body did.", field="body")
        if piece := message.get("body", b""):
            yield piece
        more = message.get("more_body", False)


def _check_body_type(endpoint: Endpoint, headers: Mapping[str, str]) -> None:
    given = headers.get("content-type", "")
    if endpoint.accepts and given.partition(";")[0].strip().lower() not in endpoint.accepts:
        detail = f"The body must be {' or '.join(endpoint.accepts)}."
        raise ProtocolError(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, detail, field="Content-Type")
    if endpoint.body is not None:
        if given != "application/json" and not _JSON.fullmatch(given):
            detail = "The body must be application/json in UTF-8."
            raise ProtocolError(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, detail, field="Content-Type")
        if headers.get("content-encoding", "identity") != "identity":
            detail = "The body must not be compressed."
            raise ProtocolError(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, detail, field="Content-Encoding")


def _check_accept(endpoint: Endpoint, headers: Mapping[str, str]) -> None:
    accept = headers.get("accept", "*/*")
    if accept not in ("*/*", endpoint.media_type) and not _accepts(accept, endpoint.media_type):
        detail = f"The answer is {endpoint.media_type}."
        raise ProtocolError(HTTPStatus.NOT_ACCEPTABLE, detail, field="Accept")


def _accepts(accept: str, media_type: str) -> bool:
    """True if one of the ranges in an Accept header holds the media type, and is not switched off by q=0."""
    wanted = media_type.partition(";")[0]
    ranges = {"*/*", wanted, wanted.partition("/")[0] + "/*"}
    for entry in accept.split(","):
        name, *parameters = (part.strip().lower() for part in entry.split(";"))
        refused = any(re.fullmatch(r"q=0(\.0*)?", parameter) for parameter in parameters)
        if name in ranges and not refused:
            return True
    return not accept.strip()


# ── values ───────────────────────────────────────────────────────────────────────────────────────────────────────────


@cache
def _decoder(kind: Any) -> "msgspec.json.Decoder[Any]":
    return msgspec.json.Decoder(kind)


def decode_body(raw: bytes, kind: Any) -> Any:
    """A JSON body as the type an endpoint asks for."""
    try:
        return _decoder(kind).decode(raw)
    except msgspec.ValidationError as error:
        raise _bad(str(error), "body", kind) from None
    except UnicodeDecodeError:
        raise BadInput.of("body", "is not UTF-8") from None
    except msgspec.DecodeError as error:
        raise BadInput.of("body", f"is not JSON: {error}") from None


def decode_query(raw: bytes, kind: Any) -> Any:
    """A query string as the type an endpoint asks for; without one, parameters are refused."""
    values: dict[str, Any] = {}
    for pair in raw.split(b"&"):
        if not pair:
            continue
        name, _, text = (_unquote(part) for part in pair.partition(b"="))
        if kind is None:
            raise BadInput.of(name[:_LONGEST_PATH], "is not a parameter of this request")
        if name in _fields_of(kind, ListType):
            values.setdefault(name, []).append(text)
            continue
        if name in values:
            raise BadInput.of(name[:_LONGEST_PATH], "is given twice")
        values[name] = _read_value(text, name, kind)
    if kind is None:
        return None
    try:
        return msgspec.convert(values, kind)
    except msgspec.ValidationError as error:
        raise _bad(str(error), "query", kind) from None


def _read_value(text: str, name: str, kind: Any) -> str | int | bool:
    """The value of a parameter; text that is not of its type stays text, which the type then refuses."""
    if name in _fields_of(kind, IntType) and _WHOLE_NUMBER.fullmatch(text):
        return int(text)
    if name in _fields_of(kind, BoolType) and text in _FLAGS:
        return _FLAGS[text]
    return text


def check_idempotency_key(headers: Mapping[str, str]) -> None:
    """An `Idempotency-Key` is 1 to 255 visible characters or absent."""
    key = headers.get("idempotency-key")
    if key is not None and not _KEY.fullmatch(key):
        raise BadInput.of("Idempotency-Key", "must be 1 to 255 visible ASCII characters")


def _unquote(part: bytes) -> str:
    try:
        return unquote_to_bytes(part.replace(b"+", b" ")).decode()
    except UnicodeDecodeError:
        raise BadInput.of("query", "is not UTF-8") from None


@cache
def _fields_of(kind: Any, wanted: type) -> frozenset[str]:
    """The query parameters of a type: lists may be repeated, numbers and flags are converted, the rest is text."""
    info = type_info(kind)
    assert isinstance(info, StructType)
    return frozenset(field.encode_name for field in info.fields if _is(wanted, field.type))


def _is(wanted: type, kind: Any) -> bool:
    if isinstance(kind, Metadata):  # a description wraps the type it describes
        return _is(wanted, kind.type)
    return isinstance(kind, wanted) or (isinstance(kind, UnionType) and any(_is(wanted, one) for one in kind.types))


def _bad(description: str, whole: str, kind: Any) -> BadInput:
    path, message = find_wrong_field(description, kind)
    return BadInput.of(path[:_LONGEST_PATH] or whole, message)
