"""From appends to what the stored functions take: one array per column, JSON as text, tags as array literals."""

import json
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from postroom.errors import BadInput
from postroom.events.errors import AppendConditionFailed, DuplicateAppend
from postroom.events.model import DEEPEST, Append, Appended, Cursor, check_events, check_time

LONGEST_PLAIN = 308
"""A number with no more digits than this is one that everybody can read."""

_TOO_LARGE = "must not contain numbers beyond 1.8e308"
_ESCAPED = re.compile(rb"\\.")
_STRING = re.compile(rb'"[^"]*"')
_LONG_NUMBER = re.compile(rb"[0-9]{%d,}" % (LONGEST_PLAIN + 1))
# The glances, by tables of what each byte becomes: a search for patterns takes ten times as long as all the rest.
_AS_ZEROS = bytes.maketrans(b"123456789", b"0" * 9)
_MANY_ZEROS = b"0" * (LONGEST_PLAIN + 1)
_AS_BRACKETS = bytes.maketrans(b"{}", b"[]")
_NEITHER_BRACKET_NOR_QUOTE = bytes(set(range(256)) - set(b'[]{}"'))
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode


def array_literal(tags: Iterable[str]) -> str:
    """An array literal that means exactly these strings, whatever is in them."""
    plain = "\0".join(tags)  # no tag holds this one: see check_events
    if "\\" in plain or '"' in plain:
        plain = plain.replace("\\", "\\\\").replace('"', '\\"')
    return '{"' + plain.replace("\0", '","') + '"}' if plain else "{}"


def append_columns(append: Append) -> dict[str, Any]:
    check_events(append.events)
    check_time(append.occurred_at)
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
    """The same as one JSON object, for append_events_each."""
    columns = append_columns(append)
    raw = {name: msgspec.Raw(columns[name].encode()) for name in ("condition", "idempotency") if columns[name]}
    data = [msgspec.Raw(text.encode()) for text in columns["data"]]
    return msgspec.Raw(_encode({**columns, "condition": None, "idempotency": None, **raw, "data": data}))


def appends_json(appends: Sequence[msgspec.Raw]) -> str:
    return _encode(appends).decode()


def appended(answer: Mapping[str, Any]) -> Appended:
    """What an answer says; raises `DuplicateAppend` or `AppendConditionFailed` if it is a refusal."""
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
    """The value in JSON that PostgreSQL can hold and everybody can read back; raises `BadInput` naming the field."""
    try:
        encoded = _encode(value)
        _decode(encoded)  # a msgspec.Raw is taken as it is, and in a batch it would spoil what others append
        problem = _problem(value, encoded, deepest)
    except RecursionError as error:
        raise BadInput.of(field, _too_deep(deepest)) from error
    except msgspec.ValidationError as error:  # the one thing that JSON may hold and a double may not
        raise BadInput.of(field, _TOO_LARGE) from error
    except (TypeError, ValueError) as error:
        raise BadInput.of(field, f"is not JSON: {error}") from error
    if problem is not None:
        raise BadInput.of(field, problem)
    return encoded.decode()


def _problem(value: Any, encoded: bytes, deepest: int) -> str | None:
    """What is wrong. Nearly always nothing is, and a glance at the text tells; only then is it looked at closely."""
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
    """Whether a float in it has no JSON; our encoder writes null for it."""
    try:
        json.dumps(msgspec.to_builtins(value, str_keys=True, enc_hook=_nothing), allow_nan=False)
    except ValueError:
        return True
    return False


def _nothing(_raw: Any) -> None:
    """What stands for a msgspec.Raw: JSON already, so there is no NaN in it."""


def _is_deeper(encoded: bytes, deepest: int) -> bool:
    """Whether brackets are left after the innermost have been taken away, level by level, so many times."""
    bare = _ESCAPED.sub(b"", encoded).translate(_AS_BRACKETS, _NEITHER_BRACKET_NOR_QUOTE).replace(b'""', b"")
    if b'"' in bare:
        bare = _STRING.sub(b"", bare)
    for _level in range(deepest):
        bare = bare.replace(b"[]", b"")
    return bool(bare)


def _has_large_number(encoded: bytes) -> bool:
    found = _LONG_NUMBER.findall(_STRING.sub(b"", _ESCAPED.sub(b"", encoded)))
    return any(len(digits) > LONGEST_PLAIN + 1 or int(digits) > sys.float_info.max for digits in found)
