"""Records declared once: the model is what the store reads, the API answers and the command line prints.

A model, a frozen dataclass or a `msgspec.Struct`, is encoded as it is. Where the API differs from it, the difference
is said as data: `response` hides, renames or adds fields, `change` makes every field of a request optional.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Annotated, Any, TypeVar, get_type_hints

import msgspec

Model = TypeVar("Model")

Text = Annotated[str, msgspec.Meta(pattern=r"^[^\x00]*$", max_length=1000)]
"""A string the database can hold, for fields of queries and bodies."""

Moment = Annotated[datetime, msgspec.Meta(tz=True)]
"""A time with its zone; answers are always UTC."""


class Shape(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The base of everything that arrives: an unknown field is refused, not ignored."""


def read_row(model: type[Model], row: Mapping[str, Any]) -> Model:
    """A row as its model, column by column; text becomes an enum and an array a tuple where the model says so."""
    return msgspec.convert(dict(row), model)


def response(
    model: type,
    name: str,
    *,
    hide: Iterable[str] = (),
    rename: Mapping[str, str] | None = None,
    extra: Mapping[str, Any] | None = None,
) -> Any:
    """A type of JSON answers: the model's fields but for `hide`, renamed; `extra` adds fields or gives other types.

    `answer` makes one from a model.
    """
    renamed, hidden = rename or {}, set(hide)
    fields = {renamed.get(field, field): kind for field, kind in _fields(model).items() if field not in hidden}
    names = {new: old for old, new in renamed.items()}
    return _derived(name, model, list({**fields, **(extra or {})}.items()), doc=model.__doc__, names=names)


def answer(kind: Any, record: Any, **more: Any) -> Any:
    """The record as its `response`; `more` holds the fields that the record lacks or has in another form."""
    own = (field for field in kind.__struct_fields__ if field not in more)
    return kind(**{field: getattr(record, kind.names.get(field, field)) for field in own}, **more)


def change(request: type, name: str, *, read_only: Iterable[str] = (), never_null: Iterable[str] = ()) -> Any:
    """The body of a PATCH: every field of the request may be left out, and null clears it unless it is `never_null`.

    A read-only field is refused by name.
    """
    fields = [
        (name, (_without_null(kind) if name in set(never_null) else kind) | msgspec.UnsetType, msgspec.UNSET)
        for name, kind in _fields(request).items()
        if name not in set(read_only)
    ]
    renamed = {field.name: field.encode_name for field in msgspec.structs.fields(request)}
    doc = "The fields to change. A field that is left out stays as it is; null clears it."
    return _derived(name, request, fields, doc=doc, rename=renamed, bases=(Shape,))


def many(kind: Any) -> Any:
    """`list[kind]` of a derived type, which a type checker does not know as one."""
    return list[kind]


def given(body: msgspec.Struct) -> dict[str, Any]:
    """The fields of a change that were given."""
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
