"""Errors of the JSON decoder in plain sentences."""

from typing import Annotated, Any, Literal

import msgspec
import pytest

from postroom.delivery.model import Lane
from postroom.runtime.record import Moment, Text
from postroom.runtime.wrong_field import find_wrong_field


class Inner(msgspec.Struct):
    """An item of a list."""

    lane: Lane = Lane.BULK


class Asked(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """One field of every kind."""

    name: Annotated[str, msgspec.Meta(min_length=1, max_length=3)] | None = None
    code: Annotated[str, msgspec.Meta(pattern="^[a-z]+$")] = "a"
    line: Annotated[str, msgspec.Meta(pattern=r"^[^\x00-\x1f\x7f]*$")] = ""
    text: Text = ""
    number: Annotated[str, msgspec.Meta(pattern=r"^\d+$")] = "1"
    limit: Annotated[int, msgspec.Meta(ge=1, le=200)] = 1
    at: Moment | None = None
    lane: Lane | None = None
    word: Literal["yes", "no"] = "yes"
    inner: list[Inner] = []
    by_name: dict[str, Inner] = {}
    many: Annotated[list[int], msgspec.Meta(max_length=1)] = []


@pytest.mark.parametrize(
    "value,field,message",
    [
        ({"limit": 201}, "limit", "must be at most 200"),
        ({"limit": 0}, "limit", "must be at least 1"),
        ({"limit": "1"}, "limit", "must be a whole number, not a string"),
        ({"limit": 10**30}, "limit", "must be at most 200"),
        ({"name": 1}, "name", "must be a string or null, not a whole number"),
        ({"name": "abcd"}, "name", "must have at most 3 characters"),
        ({"code": "A"}, "code", "must match the pattern ^[a-z]+$"),
        ({"line": "a\nb"}, "line", "must not contain control characters"),
        ({"text": "a\0b"}, "text", "must not contain a NUL character"),
        ({"number": "x"}, "number", r"must match the pattern ^\d+$"),
        ({"at": "soon"}, "at", "must be a time such as 2030-01-31T09:00:00Z"),
        ({"at": "2030-01-31T09:00:00"}, "at", "must have a time zone, such as Z or +01:00"),
        ({"lane": "PENDING"}, "lane", "must be one of auth, transactional, bulk"),
        ({"word": "maybe"}, "word", "must be one of no, yes"),
        ({"inner": [{"lane": "x"}]}, "inner[0].lane", "must be one of auth, transactional, bulk"),
        ({"inner": [{"lane": 1}]}, "inner[0].lane", "must be a string, not a whole number"),
        ({"by_name": {"a": {"lane": "x"}}}, "by_name.lane", "must be one of auth, transactional, bulk"),
        ({"many": [1, 2]}, "many", "must have at most 1 items"),
        ({"many": {}}, "many", "must be a list, not an object"),
        (
            {"other": 1},
            "other",
            f"is not a known field; known are {', '.join(Asked.__struct_fields__)}",
        ),
        ({"limits": 1}, "limits", "is not a known field; did you mean limit?"),
        ([], "", "must be an object, not a list"),
    ],
)
def test_decoder_errors_are_plain_sentences(value: Any, field: str, message: str) -> None:
    """Every error names the field and the allowed values."""
    with pytest.raises(msgspec.ValidationError) as error:
        msgspec.json.decode(msgspec.json.encode(value), type=Asked)
    assert find_wrong_field(str(error.value), Asked) == (field, message)
