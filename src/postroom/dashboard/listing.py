"""Tables, detail lists and filter forms declared as data; `macros.html` draws them.

A column takes its label and its form from the record's declaration: `columns(AuditEntry, "at", "actor", "action")`.
"""

import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import Enum, StrEnum
from typing import Any, Union, get_args, get_origin, get_type_hints
from urllib.parse import urlencode

_FORMS: tuple[tuple[type, str], ...] = (
    (bool, "flag"),
    (datetime, "when"),
    (Enum, "state"),
    (int, "number"),
    (float, "number"),
    (str, "text"),
)

_ACRONYMS = {"smtp": "SMTP", "ses": "SES", "tls": "TLS", "gmail": "Gmail", "url": "URL", "pid": "PID", "id": "Id"}


_WIDE = frozenset({"text", "clip", "list", "tags", "html"})


@dataclass(frozen=True, slots=True)
class ListColumn:
    """One column of a table, or one fact of a detail list.

    Forms: text, words (a slug), code, when (a time), span (seconds), number, state (a badge), flag (yes or no), list,
    clip (a long text), size, meter (part and whole), bar (amount and largest),
    exact (a time to the second), tags (text and address of each), html (made by us).
    """

    name: str
    label: str
    form: str = "text"
    link: Callable[[Any], str | None] | None = None  # record → address
    value: Callable[[Any], Any] | None = None  # record → value; None: the attribute `name`
    is_minor: bool = False  # left out on phones

    @property
    def style(self) -> str:
        """The CSS classes of its cells."""
        shown = "figures" if self.form == "number" else "wide" if self.form in _WIDE else ""
        return f"{shown} less" if self.is_minor else shown

    def of(self, record: Any) -> Any:
        if self.value is not None:
            return self.value(record)
        return record[self.name] if isinstance(record, Mapping) else getattr(record, self.name)

    def href(self, record: Any) -> str | None:
        return None if self.link is None else self.link(record)


def columns(model: type, *names: str, **changes: Mapping[str, Any]) -> tuple[ListColumn, ...]:
    """Columns of a record's fields or properties; `changes` replaces attributes of single columns by name."""
    hints = get_type_hints(model)
    declared = (ListColumn(name, label_of(name), _form(hints.get(name))) for name in names)
    return tuple(replace(column, **changes.get(column.name, {})) for column in declared)


def label_of(name: str) -> str:
    """A field's name for people: `created_at` is Created, `sender_account_id` is Sender account."""
    for ending in ("_at", "_id", "_unique"):
        name = name.removesuffix(ending)
    words = [_ACRONYMS.get(word, word) for word in name.split("_")]
    return " ".join([words[0][:1].upper() + words[0][1:], *words[1:]])


def _form(hint: Any) -> str:
    kinds = [kind for kind in _members(hint) if kind is not type(None)]
    if len(kinds) != 1 or not isinstance(kinds[0], type):
        return "list" if hint is not None and get_origin(kinds[0] if kinds else None) in (list, tuple) else "text"
    return next((form for kind, form in _FORMS if issubclass(kinds[0], kind)), "text")


def _members(hint: Any) -> tuple[Any, ...]:
    return get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)


@dataclass(frozen=True, slots=True, kw_only=True)
class PageAction:
    """A button that posts a form, or with `is_link` opens a page. It is drawn only for keys with its scope."""

    label: str
    path: str
    scope: str
    question: str | None = None  # asked before the form is posted
    fields: Mapping[str, str] = field(default_factory=dict)
    is_link: bool = False
    is_main: bool = False


@dataclass(frozen=True, slots=True)
class Filter:
    """One field of a filter form; with `options`, a choice."""

    name: str
    label: str
    value: str | None = None
    options: Sequence[str] = ()
    placeholder: str = ""
    is_required: bool = False  # a choice without `any`
    is_rare: bool = False  # folded away unless it has a value
    kind: str = "text"  # the type of the input: text, date, number


@dataclass(frozen=True, slots=True)
class FormField:
    """One field of a form; with `options`, a choice.

    Kinds: text, password, number, email, check, area, and lines, which is a small area.
    """

    name: str
    label: str
    kind: str = "text"
    value: str = ""
    options: Sequence[str] = ()
    hint: str = ""
    is_required: bool = False
    suggestions: str = ""  # the id of a datalist


def options_of(kind: type[StrEnum]) -> list[str]:
    return [member.value for member in kind]


def query_with(filters: Iterable[Filter]) -> str:
    """The chosen filters as a query string, for the pager and for links."""
    return urlencode({each.name: each.value for each in filters if each.value})
