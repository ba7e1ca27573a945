"""Records declared once: the store reads the model, the API returns it and the command line prints it.

A model, a frozen dataclass or a `msgspec.Struct`, is encoded directly. Differences of the API are declared as data:
`response` hides, renames or adds fields, `change` makes every field of a request optional.
"""

from collections.abc import Iterable, Mapping
from dataclasses import MISSING, Field
from dataclasses import fields as dataclass_fields
from datetime import datetime
from typing import Annotated, Any, TypeVar, get_type_hints

import msgspec

Model = TypeVar("Model")

Text = Annotated[str, msgspec.Meta(pattern=r"^[^\x00]*$", max_length=1000)]
"""A string that PostgreSQL can store, for fields of queries and bodies."""

Moment = Annotated[datetime, msgspec.Meta(tz=True)]
"""A time with a zone; responses are always UTC."""


class Shape(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The base of all input: unknown fields are rejected."""


def read_row(model: type[Model], row: Mapping[str, Any]) -> Model:
    """A row as its model, column by column; text becomes an enum and an array a tuple where the model says so."""
    return msgspec.convert(dict(row), model)


def response(
    model: type,
    name: str,
    *,
    only: Iterable[str] | None = None,
    hide: Iterable[str] = (),
    rename: Mapping[str, str] | None = None,
    extra: Mapping[str, Any] | None = None,
) -> Any:
    """A type of JSON responses: the model's fields, or `only` some, or all but `hide`, with `rename`d names.

    `extra` adds fields and replaces types. `answer` makes a response from a model.
    """
    renamed, declared = rename or {}, get_type_hints(model)  # without limits, which are for input
    kept = (set(declared) if only is None else set(only)) - set(hide)
    fields = {renamed.get(field, field): kind for field, kind in declared.items() if field in kept}
    names = {new: old for old, new in renamed.items()}
    return _derived(name, model, list({**fields, **(extra or {})}.items()), doc=model.__doc__, names=names)


def answer(kind: Any, *records: Any, **more: Any) -> Any:
    """A response made from these records: each field has the value of the first record that has the field.

    `more` holds fields that the records lack or have in another form. A field that is nowhere has its default.
    """
    names = getattr(kind, "names", {})
    for field in kind.__struct_fields__:
        if field not in more:
            values = (getattr(record, names.get(field, field), MISSING) for record in records)
            more[field] = next((value for value in values if value is not MISSING), MISSING)
    return kind(**{field: value for field, value in more.items() if value is not MISSING})


def part(kind: type[Model], record: Any) -> Model:
    """A dataclass with the equally named values of another record, such as the filter that a query contains."""
    names = [each.name for each in dataclass_fields(kind)]  # type: ignore[arg-type]  # a type variable cannot say `dataclass`
    return kind(**{name: getattr(record, name) for name in names})


def request(  # noqa: PLR0913 - each parameter is one difference between the model and its JSON
    model: type,
    name: str,
    *,
    hide: Iterable[str] = (),
    types: Mapping[str, Any],
    required: Iterable[str] = (),
    rename: Mapping[str, str] | None = None,
    doc: str = "",
) -> Any:
    """A type of request bodies: the fields of a dataclass except `hide`, with `types` as in JSON."""
    hints, hidden, needed = _fields(model), set(hide), set(required)
    fields = [
        (each.name, types.get(each.name, hints[each.name]), *([] if each.name in needed else _default(each)))
        for each in dataclass_fields(model)
        if each.name not in hidden
    ]
    return _derived(name, model, fields, doc=doc, bases=(Shape,), rename=rename)


def _default(declared: "Field[Any]") -> list[Any]:
    """The default of a field for msgspec, in a list; empty for a required field."""
    if declared.default_factory is not MISSING:
        return [msgspec.field(default_factory=declared.default_factory)]
    if declared.default == ():
        return [msgspec.field(default_factory=list)]
    return [] if declared.default is MISSING else [declared.default]


def change(
    request: type,
    name: str,
    *,
    read_only: Iterable[str] = (),
    never_null: Iterable[str] = (),
    extra: Mapping[str, Any] | None = None,
) -> Any:
    """The body of a PATCH: every field is optional, and null clears it unless it is in `never_null`.

    A read-only field is rejected by name.
    """
    fields = [
        (name, (_without_null(kind) if name in set(never_null) else kind) | msgspec.UnsetType, msgspec.UNSET)
        for name, kind in _fields(request).items()
        if name not in set(read_only)
    ]
    fields += [(name, kind | msgspec.UnsetType, msgspec.UNSET) for name, kind in (extra or {}).items()]
    renamed = {field.name: field.encode_name for field in msgspec.structs.fields(request)}
    doc = "The fields to change. A field that is left out stays as it is; null clears it."
    return _derived(name, request, fields, doc=doc, rename=renamed, bases=(Shape,))


def many(kind: Any) -> Any:
    """`list[kind]` of a derived type, which a type checker does not accept as a type."""
    return list[kind]


def given(body: msgspec.Struct) -> dict[str, Any]:
    """The fields that a change contains."""
    return {name: value for name, value in msgspec.structs.asdict(body).items() if value is not msgspec.UNSET}


def _fields(model: type) -> dict[str, Any]:
    return get_type_hints(model, include_extras=True)


def _without_null(kind: Any) -> Any:
    """`str | None` as `str`."""
    first, *others = (each for each in kind.__args__ if each is not type(None))
    for other in others:
        first |= other
    return first


def _derived(name: str, model: type, fields: list[Any], *, doc: str | None, **options: Any) -> Any:
    namespace = {"__doc__": doc, "names": options.pop("names", {})}
    return msgspec.defstruct(
        name, fields, module=model.__module__, namespace=namespace, frozen=True, kw_only=True, **options
    )
