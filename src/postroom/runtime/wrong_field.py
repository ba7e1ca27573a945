"""Translate the error of a JSON decoder into a field and a plain sentence.

msgspec says ``Expected `int` <= 200 - at `$.limit` ``; a caller reads `limit: must be at most 200`. For a value
outside a list and for an unknown field, the allowed values and names are looked up in the expected type.
"""

import re
from collections.abc import Callable, Iterator
from difflib import get_close_matches
from functools import lru_cache
from typing import Any

from msgspec import inspect

_AT = re.compile(r"^(?P<message>.*?)(?: - at (?:the key in )?`\$(?P<path>[^`]*)`)?$", re.DOTALL)
_NAMED = re.compile(r"Object (?P<what>missing required|contains unknown) field `(?P<name>.*)`", re.DOTALL)
_INDEX = re.compile(r"\[\d+\]")
_STEP = re.compile(r"\.([^.\[]+)|\[([^\]]*)\]")

_KINDS = {
    "int": "a whole number",
    "float": "a number",
    "str": "a string",
    "bool": "true or false",
    "array": "a list",
    "object": "an object",
    "null": "null",
    "datetime": "a time such as 2030-01-31T09:00:00Z",
    "date": "a date such as 2030-01-31",
    "time": "a time of day such as 09:00:00",
    "uuid": "a UUID",
}
_BOUNDS = {"<=": "at most", ">=": "at least", "<": "less than", ">": "more than"}
_FORBIDDEN = {r"^[^\x00]*$": "a NUL character", r"^[^\x00-\x1f\x7f]*$": "control characters"}
MOST_LISTED = 20  # fields that an error names
_UNITS = {"str": "characters", "array": "items", "object": "fields", "bytes": "bytes"}


def _expected(found: re.Match[str]) -> str:
    kinds = [_KINDS.get(kind, kind) for kind in found["kinds"].split(" | ")]
    got = _KINDS.get(found["got"], found["got"]).partition(" such as ")[0]
    return f"must be {' or '.join(kinds)}, not {got}"


def _matching(pattern: str) -> str:
    if (forbidden := _FORBIDDEN.get(pattern)) is not None:
        return f"must not contain {forbidden}"
    return f"must match the pattern {pattern}"


_WORDS: tuple[tuple[re.Pattern[str], Callable[[re.Match[str]], str]], ...] = (
    (re.compile(r"Expected `(?P<kinds>[^`]+)`, got `(?P<got>[^`]+)`"), _expected),
    (
        re.compile(r"Expected `(?P<kind>\w+)` of length (?P<bound><=|>=) (?P<size>\d+)"),
        lambda found: f"must have {_BOUNDS[found['bound']]} {found['size']} {_UNITS.get(found['kind'], '')}".rstrip(),
    ),
    (
        re.compile(r"Expected `array` of at (?P<bound>least|most) length (?P<size>\d+), got (?P<got>\d+)"),
        lambda found: f"must have at {found['bound']} {found['size']} items, not {found['got']}",
    ),
    (
        re.compile(r"Expected `(?:int|float)` (?P<bound><=|>=|<|>) (?P<limit>\S+)"),
        lambda found: f"must be {_BOUNDS[found['bound']]} {found['limit']}",
    ),
    (
        re.compile(r"Expected `str` matching regex '(?P<pattern>.*)'", re.DOTALL),
        lambda found: _matching(found["pattern"].replace("\\\\", "\\")),  # the decoder doubles every backslash
    ),
    (re.compile(r"Expected `\w+` with a timezone component"), lambda _: "must have a time zone, such as Z or +01:00"),
    (re.compile(r"Invalid RFC3339 encoded (?P<kind>\w+)"), lambda found: f"must be {_KINDS[found['kind']]}"),
    (re.compile(r"Invalid UUID.*"), lambda _: "must be a UUID"),
    (re.compile(r"Invalid base64 encoded string"), lambda _: "must be base64"),
    (re.compile(r"(?:Integer value|Number) out of range"), lambda _: "is too large"),
    (
        re.compile(r"Invalid (?:enum )?value (?P<value>.*)", re.DOTALL),
        lambda found: f"cannot be {found['value'][:100]}",
    ),
)


def find_wrong_field(description: str, kind: Any = None) -> tuple[str, str]:
    """The path in the caller's input, empty for the whole value, and the message. `kind` is the expected type."""
    found = _AT.match(description)
    assert found is not None
    path = (found["path"] or "").replace("[...]", "").removeprefix(".")
    where = _INDEX.sub("[]", found["path"] or "")
    message = found["message"]
    if (named := _NAMED.fullmatch(message)) is not None:
        full = f"{path}.{named['name']}" if path else named["name"]
        is_missing = named["what"] == "missing required"
        return full, "is required" if is_missing else _unknown(named["name"], _names(kind, where))
    if message.startswith("Invalid") and kind is not None and (choices := _choices(kind, where)):
        return path, f"must be one of {', '.join(choices)}"
    for pattern, words in _WORDS:
        if (matched := pattern.fullmatch(message)) is not None:
            return path, words(matched)
    return path, message


def _unknown(name: str, known: tuple[str, ...]) -> str:
    near = get_close_matches(name, known, n=1)
    if near:
        return f"is not a known field; did you mean {near[0]}?"
    shown = f"; known are {', '.join(known)}" if 0 < len(known) <= MOST_LISTED else ""
    return f"is not a known field{shown}"


@lru_cache(maxsize=1000)
def _choices(kind: Any, path: str) -> tuple[str, ...]:
    """The values that a type allows at a path, if they are a list."""
    return tuple(dict.fromkeys(str(value) for each in _types_at(kind, path) for value in _values(each)))


@lru_cache(maxsize=1000)
def _names(kind: Any, path: str) -> tuple[str, ...]:
    """The fields that a type has at a path."""
    structs = (plain for each in _types_at(kind, path) for plain in _plain(each))
    fields = (field for each in structs if isinstance(each, inspect.StructType) for field in each.fields)
    return tuple(dict.fromkeys(field.encode_name for field in fields))


def _types_at(kind: Any, path: str) -> list[inspect.Type]:
    here = [] if kind is None else [inspect.type_info(kind)]
    for name, _index in _STEP.findall(path):
        here = [inner for each in here for inner in _inside(each, name)]
    return here


def _inside(kind: inspect.Type, name: str) -> Iterator[inspect.Type]:
    """The types of a field, or without a name, of the items."""
    for each in _plain(kind):
        if isinstance(each, inspect.StructType) and name:
            yield from (field.type for field in each.fields if field.encode_name == name)
        elif isinstance(each, inspect.ListType) and not name:
            yield each.item_type
        elif isinstance(each, inspect.DictType):
            yield each.value_type


def _values(kind: inspect.Type) -> Iterator[Any]:
    for each in _plain(kind):
        if isinstance(each, inspect.EnumType):
            yield from (member.value for member in each.cls)
        elif isinstance(each, inspect.LiteralType):
            yield from each.values


def _plain(kind: inspect.Type) -> Iterator[inspect.Type]:
    """The alternatives of a type: without its description, and each member of a union."""
    if isinstance(kind, inspect.Metadata):
        yield from _plain(kind.type)
    elif isinstance(kind, inspect.UnionType):
        for each in kind.types:
            yield from _plain(each)
    else:
        yield kind
