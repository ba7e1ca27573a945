"""From bytes off the network to checked values. Everything that arrives here is hostile.

Invalid data becomes `BadInput` with the field's path as the caller wrote it: `to[1]`, `attachments[0].content`,
`limit`. Types are strict: `"1"` is not a number in a body, an unknown field is refused, a query parameter stands once
unless it is a list.
"""

import re
from collections.abc import Mapping
from functools import cache
from typing import Any
from urllib.parse import unquote_to_bytes

import msgspec
from msgspec.inspect import BoolType, IntType, ListType, Metadata, StructType, UnionType, type_info

from postroom.errors import BadInput
from postroom.runtime.wrong_field import find_wrong_field

_WHOLE_NUMBER = re.compile(r"-?\d{1,18}")
_FLAGS = {"true": True, "false": False}
_KEY = re.compile(r"[!-~]{1,255}")
_LONGEST_PATH = 200  # of a field name in an error, which a client may choose


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
        values[name] = _read(text, name, kind)
    if kind is None:
        return None
    try:
        return msgspec.convert(values, kind)
    except msgspec.ValidationError as error:
        raise _bad(str(error), "query", kind) from None


def _read(text: str, name: str, kind: Any) -> str | int | bool:
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
