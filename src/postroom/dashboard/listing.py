"""Tables, detail lists and filter forms declared as data; `macros.html` draws them.

A column takes its label and its form from the record's declaration: `columns(AuditEntry, "at", "actor", "action")`.
"""

import types
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from datetime import datetime
from enum import Enum, StrEnum
from typing import Any, Union, get_args, get_origin, get_type_hints
from urllib.parse import quote, urlencode

import msgspec

from postroom.runtime.endpoint import PARAMETER

_FORMS: tuple[tuple[type, str], ...] = (
    (bool, "flag"),
    (datetime, "when"),
    (Enum, "state"),
    (int, "number"),
    (float, "number"),
    (str, "text"),
)

_LABELS = {"at": "When", "email": "Address", "state": "Status", "time_zone": "Time zone", "timezone": "Time zone"}
"""One word per thing, however its field is named."""

_ACRONYMS = {"smtp": "SMTP", "ses": "SES", "tls": "TLS", "gmail": "Gmail", "url": "URL", "pid": "PID", "id": "Id"}


_LONGEST_PAIRS = 300  # a row stays a few lines high; its page shows the rest
_WIDE = frozenset({"text", "clip", "list", "tags", "html", "noted", "pairs", "subject", "marked"})
_FIGURES = frozenset({"latency", "number", "size"})
_TIGHT = frozenset({"state", "when", "exact", "flag"})


@dataclass(frozen=True, slots=True)
class ListColumn:
    """One column of a table, or one fact of a detail list.

    Forms: text, words (a slug), code, when (a time), span and latency (seconds), number, state (a badge), flag (yes or
    no), list, word (a short name), clip (a long text), size, meter (part and whole), bar (amount and largest),
    exact (a time to the second), tags (text and address of each), html (made by us), noted (a text and a remark),
    pairs (names and values), marked (a text with `code`), recipients, status and subject (of a delivery).
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
        kinds = {
            **dict.fromkeys(("state", "status"), "tight badge"),
            "recipients": "wide address",
            "word": "word",
            **dict.fromkeys(_WIDE, "wide"),
            **dict.fromkeys(_FIGURES, "figures"),
        }
        shown = kinds.get(self.form, "tight" if self.form in _TIGHT else "")
        return f"{shown} less" if self.is_minor else shown

    def of(self, record: Any) -> Any:
        if self.value is not None:
            return self.value(record)
        return record[self.name] if isinstance(record, Mapping) else getattr(record, self.name)

    def href(self, record: Any) -> str | None:
        return None if self.link is None else self.link(record)


def _delivery_page(record: Any) -> str | None:
    return None if record.delivery_id is None else f"/deliveries/{record.delivery_id}"


DELIVERY = ListColumn("delivery_id", "Delivery", "code", link=_delivery_page)
"""The delivery of a record, with a link to its page."""


def columns(model: type, *names: str, **changes: Mapping[str, Any]) -> tuple[ListColumn, ...]:
    """Columns of a record's fields or properties; `changes` replaces attributes of single columns by name."""
    hints = get_type_hints(model)
    declared = (ListColumn(name, label_of(name), _form(hints.get(name))) for name in names)
    return tuple(replace(column, **changes.get(column.name, {})) for column in declared)


def label_of(name: str) -> str:
    """A field's name for people: `created_at` is Created, `sender_account_id` is Sender account."""
    if name in _LABELS:
        return _LABELS[name]
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


_FINAL = frozenset({"Cancel", "Delete", "Disable", "Remove", "Revoke", "Skip", "Suspend", "Unsubscribe"})


def is_final(label: str) -> bool:
    """Whether a button with this label takes something away."""
    return label.split(maxsplit=1)[0] in _FINAL


@dataclass(frozen=True, slots=True)
class PageAction:
    """A button that posts a form, or with `is_link` opens a page. It is drawn only for keys with its scope.

    An action on records is declared once, with placeholders in its path and its question: `PAUSE.at(account.id)` is
    its button on one record, and `page.actions(PAUSE)` the form behind it, which calls `act` with the pool, the values
    of the path and the actor. Then the page at `to` shows the sentence `done`; both may name the result: `{0.email}`.
    """

    label: str
    path: str
    scope: str
    act: Callable[..., Awaitable[Any]] | None = None
    done: str = ""
    _: KW_ONLY
    to: str = ""  # empty: the path of the record, which is the action's without its last segment
    question: str | None = None  # asked before the form is posted
    button: str = ""  # the last button, if its words differ from the label
    about: str = ""  # the record, for readers of a screen who hear ten equal buttons
    fields: Mapping[str, str] = field(default_factory=dict)
    is_link: bool = False
    is_main: bool = False

    @property
    def is_final(self) -> bool:
        """Whether the action takes something away; its last button is red."""
        return is_final(self.label)

    def at(self, *place: object, fields: Mapping[str, str] | None = None, **words: object) -> "PageAction":
        """The action on one record: `place` fills its path, and `words` its question and the name of the record."""
        values = iter(place)
        path = PARAMETER.sub(lambda _name: quote(str(next(values)), safe=""), self.path)
        texts = {name: getattr(self, name).format(**words) for name in ("question", "about") if getattr(self, name)}
        return replace(self, path=path, fields=fields or self.fields, **texts)


@dataclass(frozen=True, slots=True)
class Filter:
    """One field of a filter form, and a parameter of the address; with `options`, a choice."""

    name: str
    label: str
    value: str | None = None
    options: Sequence[str] = ()
    placeholder: str = ""
    is_required: bool = False  # a choice without `any`
    is_rare: bool = False  # folded away unless it has a value
    kind: str = "text"  # the type of the input: text, date, number
    field: str = ""  # of the record that selects; empty: as the parameter
    type: type = str  # of the field


def filters(selects: Any, *declared: Filter) -> tuple[Filter, ...]:
    """Filters with the types of their fields in `selects`: a record, or a function that takes them."""
    hints = get_type_hints(selects)
    return tuple(_typed(each, hints[each.field or each.name]) for each in declared)


def _typed(declared: Filter, hint: Any) -> Filter:
    kind = next((kind for kind in _members(hint) if isinstance(kind, type) and kind is not type(None)), str)
    if issubclass(kind, Enum):
        return replace(declared, type=kind, options=[member.value for member in kind])
    return replace(declared, type=kind, kind="datetime-local" if kind is datetime else declared.kind)


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
    is_rare: bool = False  # folded away unless a field of its kind has a value
    suggestions: str = ""  # the id of a datalist


def pairs(value: Any, *, is_brief: bool = False) -> list[tuple[str, str]] | None:
    """The names and values of a JSON object; another value has no name. `is_brief` leaves out empty values.

    A table shows the beginning: `_LONGEST_PAIRS` characters.
    """
    if value is None:
        return None
    given = value if isinstance(value, Mapping) else {"": value}
    shown: list[tuple[str, str]] = []
    left = _LONGEST_PAIRS
    for name, each in given.items():
        if is_brief and each in (None, [], {}):
            continue
        text = each if isinstance(each, str) else msgspec.json.encode(each).decode()
        shown.append((name[:left], text if len(text) <= left else f"{text[:left]}…"))
        left -= len(name) + len(text)
        if left <= 0:
            break
    return shown


def options_of(kind: type[StrEnum]) -> list[str]:
    return [member.value for member in kind]


def query_with(filters: Iterable[Filter]) -> str:
    """The chosen filters as a query string, for the pager and for links."""
    return urlencode({each.name: each.value for each in filters if each.value})
