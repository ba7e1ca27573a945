"""JSON Schemas as client generators need them.

msgspec's schemas are right, and four things in them mislead generators:

- a name that two modules use is written with its Python path; here it is written with its capability, `OutboxDone`,
  and without the suffix that marks a type of responses: `Delivery` of `DeliveryShape`
- a default makes a generated client send it: `"default": []` became `"cc": "[]"` in one of them. Here it is a sentence
- a string or a list of strings becomes a union of types; here it is the list, which the server prefers
- a time without a rule about zones has no format; here it has one, because responses are always UTC
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec.inspect import (
    DateTimeType,
    DictType,
    ListType,
    Metadata,
    StructType,
    UnionType,
    VarTupleType,
    type_info,
)

REF = "#/components/schemas/"
_PAGE = re.compile(r"Page_(\w+)_")  # msgspec's name of `Page[Item]`


def readable_names(components: Mapping[str, Any]) -> dict[str, str]:
    """A name without a Python path for each schema; raises `ValueError` if two would have the same."""
    names = {name: _readable(name) for name in components}
    if len(set(names.values())) < len(names):
        raise ValueError(f"two schemas have one name: {sorted(names.values())}")
    return names


def _readable(name: str) -> str:
    if page := _PAGE.fullmatch(name):
        return _readable(page[1]) + "Page"
    if "." in name:
        _package, capability, *_modules, name = name.split(".")
        name = capability.title() + name
    return name.removesuffix("Shape")


def mark_times(types: Sequence[Any], schemas: Sequence[dict[str, Any]], components: dict[str, Any]) -> None:
    """Add the format of times to the schemas of these types."""
    seen: set[str] = set()
    for kind, schema in zip(types, schemas, strict=True):
        _mark(type_info(kind), schema, components, seen)


def _mark(kind: Any, schema: dict[str, Any], components: dict[str, Any], seen: set[str]) -> None:
    if isinstance(kind, Metadata):
        _mark(kind.type, schema, components, seen)
    elif isinstance(kind, DateTimeType):
        schema["format"] = "date-time-local" if kind.tz is False else "date-time"
    elif (name := schema.get("$ref", "").removeprefix(REF)) and name not in seen:
        seen.add(name)
        for field in getattr(kind, "fields", ()):
            _mark(field.type, components[name]["properties"][field.encode_name], components, seen)
    else:
        for inner, part in _parts(kind, schema):
            _mark(inner, part, components, seen)


def _parts(kind: Any, schema: dict[str, Any]) -> Iterator[tuple[Any, dict[str, Any]]]:
    """The types within a type, each with its schema."""
    if isinstance(kind, ListType | VarTupleType):
        yield kind.item_type, schema["items"]
    elif isinstance(kind, DictType):
        yield kind.value_type, schema.get("additionalProperties", {})
    elif isinstance(kind, UnionType):
        in_order = sorted(kind.types, key=lambda each: isinstance(each, StructType))  # as msgspec lists them
        yield from zip(in_order, schema["anyOf"], strict=True)


def tidy(schema: Any, names: Mapping[str, str]) -> Any:
    """The schema with readable references, without defaults, and with lists instead of string-or-list."""
    if isinstance(schema, list):
        return [tidy(each, names) for each in schema]
    if not isinstance(schema, dict):
        return schema
    if isinstance(kinds := schema.get("anyOf"), list) and (only := _list_of(kinds)) is not None:
        schema = {**{key: value for key, value in schema.items() if key != "anyOf"}, **only}
    tidied = {key: tidy(value, names) for key, value in schema.items() if key != "default"}
    if isinstance(ref := schema.get("$ref"), str):
        tidied["$ref"] = REF + names[ref.removeprefix(REF)]
    if (default := schema.get("default")) not in (None, "", [], {}) and "properties" not in schema:
        written = str(default).lower() if isinstance(default, bool) else str(default)
        tidied["description"] = f"{schema.get('description', '')} Without it: {written}.".strip()
    return tidied


def _list_of(kinds: list[Any]) -> dict[str, Any] | None:
    """The list among two kinds of which the other is its items."""
    if len(kinds) != 2:  # noqa: PLR2004 - a value, or a list of it
        return None
    for one, other in (kinds, kinds[::-1]):
        if other.get("type") == "array" and other.get("items") == one and one.get("type") == "string":
            found: dict[str, Any] = other
            return found
    return None
