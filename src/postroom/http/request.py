"""Reads a request into its `Call`: media types, query, body. Everything that arrives here is hostile.

Invalid data becomes `BadInput` with the field's path as the caller wrote it: `to[1]`, `attachments[0].content`,
`limit`. Types are strict: `"1"` is not a number in a body, an unknown field is refused, a query parameter stands once
unless it is a list.
"""

import itertools
import re
import secrets
from collections.abc import AsyncIterator, Mapping
from functools import cache
from http import HTTPStatus
from typing import Any
from urllib.parse import unquote_to_bytes

import msgspec
from msgspec.inspect import BoolType, IntType, ListType, Metadata, StructType, UnionType, type_info

from postroom.errors import BadInput
from postroom.runtime.endpoint import MEGABYTE, Call, Endpoint, ProtocolError, Receive
from postroom.runtime.wrong_field import find_wrong_field

_LONGEST_NUMBER = 19  # digits enough to be too large
_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
_PROCESS = secrets.token_hex(4)  # tells processes apart in one log
_counter = itertools.count(1)
_JSON = re.compile(r"application/(?:[\w.+-]+\+)?json(?:\s*;\s*charset=\"?utf-8\"?)?\s*", re.IGNORECASE)
_WHOLE_NUMBER = re.compile(r"-?\d{1,18}")
_FLAGS = {"true": True, "false": False}
_KEY = re.compile(r"[!-~]{1,255}")
_LONGEST_PATH = 200  # of a field name in an error, which a client may choose


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
