"""From appends to what the stored functions take: one array per column, JSON as text, tags as array literals."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from postroom.errors import AppendConditionFailed, BadInput, DuplicateAppend
from postroom.events.model import Append, Appended, Cursor, Event, check_events, check_time

_encode = msgspec.json.Encoder().encode


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
        "data": [_json(index, event) for index, event in enumerate(append.events)],
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


def _json(index: int, event: Event) -> str:
    try:
        text = _encode(event.data).decode()
    except (TypeError, ValueError) as error:
        raise BadInput.of(f"events[{index}].data", f"is not JSON: {error}") from error
    if "\\u0000" in text and "\\u0000" in text.replace("\\\\", ""):
        raise BadInput.of(f"events[{index}].data", "must not contain the character U+0000")
    return text
