"""The arguments of the stored functions: one array per column, JSON as text, tags as array literals."""

import json
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from postroom.errors import BadInput
from postroom.events.delivery_facts import check_conditions
from postroom.events.errors import AppendConditionFailed, DuplicateAppend
from postroom.events.model import DEEPEST, Append, Appended, Cursor, check_events, check_time

LONGEST_PLAIN = 308
"""Every reader can hold a number with at most this many digits: the largest double is 1.8e308."""

_TOO_LARGE = "must not contain numbers beyond 1.8e308"
_ESCAPED = re.compile(rb"\\.")
_STRING = re.compile(rb'"[^"]*"')
_LONG_NUMBER = re.compile(rb"[0-9]{%d,}" % (LONGEST_PLAIN + 1))
# Quick checks by byte tables: a regular expression takes ten times as long as the rest of the conversion.
_AS_ZEROS = bytes.maketrans(b"123456789", b"0" * 9)
_MANY_ZEROS = b"0" * (LONGEST_PLAIN + 1)
_AS_BRACKETS = bytes.maketrans(b"{}", b"[]")
_NEITHER_BRACKET_NOR_QUOTE = bytes(set(range(256)) - set(b'[]{}"'))
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode


def array_literal(tags: Iterable[str]) -> str:
    """The PostgreSQL array literal of these strings, with quotes and backslashes escaped."""
    plain = "\0".join(tags)  # no tag contains U+0000: see check_events
    if "\\" in plain or '"' in plain:
        plain = plain.replace("\\", "\\\\").replace('"', '\\"')
    return '{"' + plain.replace("\0", '","') + '"}' if plain else "{}"


def append_columns(append: Append) -> dict[str, Any]:
    check_events(append.events)
    check_time(append.occurred_at)
    check_conditions(append)
    return {
        "types": [event.type for event in append.events],
        "tags": [array_literal(event.tags) for event in append.events],
        "data": [json_text(f"events[{index}].data", event.data) for index, event in enumerate(append.events)],
        "condition": append.condition.json if append.condition else None,
        "idempotency": append.idempotency.json if append.idempotency else None,
        "occurred_at": append.occurred_at,
        "correlation_ids": _unless_all_none([event.correlation_id for event in append.events]),
        "causation_ids": _unless_all_none([event.causation_id for event in append.events]),
    }


def _unless_all_none(values: list[str | None]) -> list[str | None] | None:
    return values if any(values) else None


def append_json(append: Append) -> msgspec.Raw:
    """An append as one JSON object, for append_events_each."""
    columns = append_columns(append)
    raw = {name: msgspec.Raw(columns[name].encode()) for name in ("condition", "idempotency") if columns[name]}
    data = [msgspec.Raw(text.encode()) for text in columns["data"]]
    return msgspec.Raw(_encode({**columns, "condition": None, "idempotency": None, **raw, "data": data}))


def appends_json(appends: Sequence[msgspec.Raw]) -> str:
    return _encode(appends).decode()


def appended(answer: Mapping[str, Any]) -> Appended:
    """Decode the answer of an append; raises `DuplicateAppend` or `AppendConditionFailed` if it was rejected."""
    if answer["success"]:
        cursor = answer["cursor"]
        return Appended(
            answer["position"],
            answer["transaction_id"],
            answer["events_count"],
            None if cursor is None else Cursor.parse(cursor),
        )
    matched = answer["matched"]
    refusal = DuplicateAppend if answer["error_code"] == "IDEMPOTENCY_VIOLATION" else AppendConditionFailed
    raise refusal(matched["position"], matched["type"], matched["tags"])


def json_text(field: str, value: Any, *, deepest: int = DEEPEST) -> str:
    """Encode a value as JSON that PostgreSQL can store and readers can decode; raises `BadInput` naming the field."""
    try:
        encoded = _encode(value)
        _decode(encoded)  # a msgspec.Raw is not validated by the encoder, and an invalid one would fail a whole batch
        problem = _problem(value, encoded, deepest)
    except RecursionError as error:
        raise BadInput.of(field, _too_deep(deepest)) from error
    except msgspec.ValidationError as error:  # a number that JSON allows and a double cannot hold
        raise BadInput.of(field, _TOO_LARGE) from error
    except (TypeError, ValueError) as error:
        raise BadInput.of(field, f"is not JSON: {error}") from error
    if problem is not None:
        raise BadInput.of(field, problem)
    return encoded.decode()


def _problem(value: Any, encoded: bytes, deepest: int) -> str | None:
    """The problem of a value, or None. A quick check of the text decides whether a full check is needed."""
    if b"\\u0000" in encoded and b"\\u0000" in encoded.replace(b"\\\\", b""):
        return "must not contain the character U+0000"
    if b"null" in encoded and _has_no_number(value):
        return "must not contain NaN or an infinity"
    if encoded.count(b"[") + encoded.count(b"{") > deepest and _is_deeper(encoded, deepest):
        return _too_deep(deepest)
    if len(encoded) > LONGEST_PLAIN and _MANY_ZEROS in encoded.translate(_AS_ZEROS) and _has_large_number(encoded):
        return _TOO_LARGE
    return None


def _too_deep(deepest: int) -> str:
    return f"must be at most {deepest} levels deep"


def _has_no_number(value: Any) -> bool:
    """True if the value contains NaN or an infinity, for which msgspec writes null."""
    try:
        json.dumps(msgspec.to_builtins(value, str_keys=True, enc_hook=_nothing), allow_nan=False)
    except ValueError:
        return True
    return False


def _nothing(_raw: Any) -> None:
    """Encode a msgspec.Raw as None: it is JSON already and contains no NaN."""


def _is_deeper(encoded: bytes, deepest: int) -> bool:
    """True if brackets are left after removing the innermost level this many times."""
    bare = _ESCAPED.sub(b"", encoded).translate(_AS_BRACKETS, _NEITHER_BRACKET_NOR_QUOTE).replace(b'""', b"")
    if b'"' in bare:
        bare = _STRING.sub(b"", bare)
    for _level in range(deepest):
        bare = bare.replace(b"[]", b"")
    return bool(bare)


def _has_large_number(encoded: bytes) -> bool:
    found = _LONG_NUMBER.findall(_STRING.sub(b"", _ESCAPED.sub(b"", encoded)))
    return any(len(digits) > LONGEST_PLAIN + 1 or int(digits) > sys.float_info.max for digits in found)
