"""Events and queries. Pure: no clock, no database.

An event has a type, tags (`key=value`) and data. A query is an OR of items; an event matches an item if its type is one
of the item's types (empty: any) and it has all of the item's tags (empty: any). A cursor records exactly which events a
reader has seen, so that an append can be rejected if a matching event was added since. It is opaque: store it and pass
it back unchanged.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, NamedTuple, Self

import msgspec

from postroom.errors import BadInput, FieldError
from postroom.post.text import is_storable

TYPE_LENGTH = 64  # as the constraint `events_type_length`
TAG_BYTES = 1024  # as `event_tags_form`: an entry of a B-tree index has at most 2704 bytes
UNSTORABLE = "must not contain U+0000 or half a surrogate pair"
NOT_A_LIST = "must be a list of strings, not a string"
LARGEST = 2**63 - 1  # bigint
DEEPEST = 100
"""Most levels of nested lists and objects; not every JSON parser reads deeper ones."""
_ID = r"\d{1,19}"
_SNAPSHOT = rf"({_ID}:{_ID}:(?:{_ID}(?:,{_ID})*)?)"
_CURSOR = re.compile(rf"{_SNAPSHOT}/(?:{_SNAPSHOT}/({_ID})\.({_ID})|/)/(?:({_ID})\.({_ID}))?", re.ASCII)


def tag(key: str, value: object) -> str:
    """`key=value`; the key has no equals sign, the value may be any string, even empty."""
    if not key or "=" in key:
        raise BadInput.of("tag", f"the key {key!r} is invalid: it must not be empty or contain an equals sign")
    return f"{key}={value}"


def tags_of(values: Mapping[str, object]) -> tuple[str, ...]:
    """Tags from a mapping; a list gives one tag per value, and None gives no tag."""
    made: list[str] = []
    for key, value in values.items():
        several = value if isinstance(value, list | tuple | set | frozenset) else [value]
        made += [tag(key, one) for one in several if one is not None]
    return tuple(made)


def split_tag(text: str) -> tuple[str, str]:
    key, _, value = text.partition("=")
    return key, value


class Place(NamedTuple):
    """The place of an event in the order of the store."""

    transaction_id: int
    position: int


@dataclass(frozen=True, slots=True)
class Cursor:
    """The events that a reader has seen, exchanged as text.

    `base`: all events visible in this snapshot. `page`, `page_place`: if a limit cut the read, its snapshot and the
    last event read. `own`: the last event read of the reader's own transaction, which `base` does not show.
    """

    base: str
    page: str | None = None
    page_place: Place | None = None
    own: Place | None = None

    def __str__(self) -> str:
        page = f"{self.page}/{self.page_place[0]}.{self.page_place[1]}" if self.page_place else "/"
        own = f"{self.own[0]}.{self.own[1]}" if self.own else ""
        return f"{self.base}/{page}/{own}"

    @classmethod
    def parse(cls, text: str) -> Self:
        matched = _CURSOR.fullmatch(text)
        if matched is None:
            raise BadInput.of("after", "is not a cursor of events")
        base, page, *places = matched.groups()
        numbers = [int(number) if number else None for number in places]
        if not (
            _is_snapshot(base)
            and (page is None or _is_snapshot(page))
            and max(filter(None, numbers), default=0) < LARGEST
        ):
            raise BadInput.of("after", "is not a cursor of events")
        return cls(base, page, _place(*numbers[:2]), _place(*numbers[2:]))

    def advanced(
        self, *, until: str, own: int | None, seen: Sequence["Place | SequencedEvent"], is_cut: bool
    ) -> "Cursor":
        """The cursor after a read that stayed within `until`, in transaction `own`, and returned `seen` in order.

        A cursor never moves back: `until` may be older than `base` for a follower, which reads only below the oldest
        open transaction, and in a transaction that keeps its first snapshot.
        """
        own_place = None if own is None else _last(seen, lambda event: event.transaction_id == own)
        own_place = own_place or self.own
        if not is_cut:
            base = _joined(self.base, until)
            is_covered = own_place is None or _is_visible(own_place.transaction_id, base)
            return Cursor(base, own=None if is_covered else own_place)
        last = _last(seen, lambda event: event.transaction_id != own)
        return Cursor(self.base, until, last or self.page_place or Place(0, 0), own_place)


def _last(seen: Sequence["Place | SequencedEvent"], wanted: "Callable[[Place | SequencedEvent], bool]") -> Place | None:
    """The place of the last of these events that satisfies the predicate."""
    found = next(filter(wanted, reversed(seen)), None)
    return None if found is None else Place(found.transaction_id, found.position)


NOTHING_SEEN = Cursor("1:1:")


def _is_visible(transaction_id: int, snapshot: str) -> bool:
    lowest, end, running = snapshot.split(":")
    if transaction_id < int(lowest):
        return True
    return transaction_id < int(end) and str(transaction_id) not in running.split(",")


def _joined(one: str, other: str) -> str:
    """The union of two snapshots: it hides a transaction that is open in one and not visible in the other."""
    (lowest, end, opened), (other_lowest, other_end, other_opened) = _parts(one), _parts(other)
    if end <= other_lowest:
        return other
    if other_end <= lowest:
        return one
    both = set(opened).intersection(other_opened)
    hidden = both.union((i for i in opened if i >= other_end), (i for i in other_opened if i >= end))
    last = max(end, other_end)
    return f"{min(hidden, default=last)}:{last}:{','.join(map(str, sorted(hidden)))}"


def _is_snapshot(text: str) -> bool:
    """True if PostgreSQL accepts the snapshot: one forged cursor must not fail a whole batch of appends."""
    lowest, end, opened = _parts(text)
    bounds = [1, lowest, *opened, end, LARGEST]
    return bounds == sorted(bounds) and end not in opened


def _parts(snapshot: str) -> tuple[int, int, list[int]]:
    lowest, end, opened = snapshot.split(":")
    return int(lowest), int(end), list(map(int, opened.split(","))) if opened else []


def _place(transaction_id: int | None, position: int | None) -> Place | None:
    return None if transaction_id is None or position is None else Place(transaction_id, position)


@dataclass(frozen=True, slots=True)
class QueryItem:
    """Matches events with one of these types (empty: any) and all of these tags (empty: any)."""

    types: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Query:
    """An OR of items. `Query.all()` matches everything; a query without items is rejected.

    A type or tag that no event can have is rejected too: a condition with it would always hold.
    """

    items: tuple[QueryItem, ...]

    def __post_init__(self) -> None:
        if not self.items:
            raise BadInput.of("query", "must have an item; Query.all() matches everything")
        errors = [
            FieldError(f"query[{index}].{name}", problem)
            for index, item in enumerate(self.items)
            if not _is_plain_item(item)
            for name, problem in _item_problems(item)
        ]
        if errors:
            raise BadInput(errors)

    @classmethod
    def all(cls) -> Self:
        return cls((QueryItem(),))

    @classmethod
    def of(cls, *types: str, tags: Iterable[str] | Mapping[str, object] = ()) -> Self:
        """A query of one item: `Query.of("WalletOpened", tags={"wallet": 1})`."""
        if isinstance(tags, str):
            raise BadInput.of("tags", NOT_A_LIST)
        given = tags_of(tags) if isinstance(tags, Mapping) else tuple(tags)
        return cls((QueryItem(types, given),))

    def __or__(self, other: "Query") -> "Query":
        return Query(self.items + other.items)

    def matches(self, type_: str, tags: Iterable[str]) -> bool:
        """The same decision as in SQL, for models and tests."""
        carried = set(tags)
        return any((not item.types or type_ in item.types) and carried.issuperset(item.tags) for item in self.items)

    @property
    def only_tag(self) -> str | None:
        """The tag of a query for one tag and nothing else, or None."""
        item = self.items[0]
        return item.tags[0] if len(self.items) == 1 and len(item.tags) == 1 and not item.types else None

    @property
    def json(self) -> str:
        return msgspec.json.encode(self.items).decode()


@dataclass(frozen=True, slots=True)
class AppendCondition:
    """No event that matches the query was appended after the cursor (None: none exists at all)."""

    query: Query
    after: Cursor | int | None = None

    def __post_init__(self) -> None:
        if isinstance(self.after, int) and not 0 <= self.after < 10**18:
            raise BadInput.of("after", "is not a position of events")

    @property
    def json(self) -> str:
        """The argument of the SQL functions. A bare position is exact only under the conditions of append_events_if."""
        after = None if self.after is None else str(self.after)
        return msgspec.json.encode({"query": self.query.items, "after": after}).decode()


@dataclass(frozen=True, slots=True)
class Event:
    """An event to append. `data` is any JSON value."""

    type: str
    data: Any = field(default_factory=dict)
    tags: tuple[str, ...] = ()
    correlation_id: str | None = None
    causation_id: str | None = None

    @classmethod
    def of(cls, type_: str, data: Any = None, **tags: object) -> Self:
        """Create an event: `Event.of("WalletOpened", {"owner": "Ada"}, wallet=1)`."""
        return cls(type_, {} if data is None else data, tags_of(tags))


class SequencedEvent(msgspec.Struct, frozen=True):
    """A stored event. `GET /v1/commands?transaction_id=…` finds the command that appended it."""

    # A Struct because reads create hundreds of them, several times faster than dataclasses.

    position: int
    transaction_id: int
    occurred_at: datetime
    type: str
    tags: tuple[str, ...]
    data: Any
    correlation_id: str | None = None
    causation_id: str | None = None

    @property
    def place(self) -> Place:
        return Place(self.transaction_id, self.position)

    def values(self, key: str) -> list[str]:
        """The values of the tags with this key."""
        return [value for name, value in map(split_tag, self.tags) if name == key]


class Reading(NamedTuple):
    """The events read, and the cursor to continue reading from or to append after."""

    events: list[SequencedEvent]
    cursor: Cursor


@dataclass(frozen=True, slots=True)
class Head:
    """The end of the store in the snapshot of one statement."""

    cursor: Cursor
    position: int


@dataclass(frozen=True, slots=True)
class Appended:
    """The result of an append. `cursor`, if there was a condition: the `after` of the next append by the same query."""

    position: int
    transaction_id: int
    events_count: int
    cursor: Cursor | None = None

    @property
    def place(self) -> Place:
        return Place(self.transaction_id, self.position)


@dataclass(frozen=True, slots=True)
class Append:
    """One append: its events and its conditions."""

    events: tuple[Event, ...]
    condition: AppendCondition | None = None
    idempotency: Query | None = None
    occurred_at: datetime | None = None


def check_events(events: Sequence[Event]) -> None:
    """Raise `BadInput` naming every event that cannot be stored."""
    if not events:
        raise BadInput.of("events", "must contain at least one event")
    errors = [
        FieldError(f"events[{index}].{name}", problem)
        for index, event in enumerate(events)
        if not _is_plain(event)
        for name, problem in _problems(event)
    ]
    if errors:
        raise BadInput(errors)


_WRONG_TYPE = f"must have 1 to {TYPE_LENGTH} characters"
_PLAIN_TYPE = re.compile(r"\w{1,64}", re.ASCII)
_PLAIN_TAG = re.compile(r"[ -<>-~]{1,128}=[ -~]{0,512}")


def _is_plain(event: Event) -> bool:
    """True for a common, valid event; this quick check costs a quarter of the full one."""
    return (
        _PLAIN_TYPE.fullmatch(event.type) is not None
        and all(map(_PLAIN_TAG.fullmatch, event.tags))
        and event.correlation_id is event.causation_id is None
    )


def _problems(event: Event) -> Iterable[tuple[str, str]]:
    if not _is_type(event.type):
        yield "type", _WRONG_TYPE
    yield from _tag_problems(event.tags)
    for name in ("correlation_id", "causation_id"):
        if not is_storable(getattr(event, name) or ""):
            yield name, UNSTORABLE


def _is_plain_item(item: QueryItem) -> bool:
    """The same quick check for a query item. A string in place of a list would be read character by character."""
    return (
        not isinstance(item.types, str)
        and not isinstance(item.tags, str)
        and all(map(_PLAIN_TAG.fullmatch, item.tags))
        and all(map(_PLAIN_TYPE.fullmatch, item.types))
    )


def _item_problems(item: QueryItem) -> Iterable[tuple[str, str]]:
    if isinstance(item.types, str) or isinstance(item.tags, str):
        yield "types" if isinstance(item.types, str) else "tags", NOT_A_LIST
        return
    for index, text in enumerate(item.types):
        if not _is_type(text):
            yield f"types[{index}]", _WRONG_TYPE
    yield from _tag_problems(item.tags)


def _is_type(text: str) -> bool:
    return 1 <= len(text) <= TYPE_LENGTH and is_storable(text)


def _tag_problems(tags: Sequence[str]) -> Iterable[tuple[str, str]]:
    for index, text in enumerate(tags):
        if text.find("=") < 1 or not is_storable(text):
            yield f"tags[{index}]", "must be key=value"
        elif len(text.encode()) > TAG_BYTES:
            yield f"tags[{index}]", f"must have at most {TAG_BYTES} bytes"


def check_time(occurred_at: datetime | None) -> None:
    """Raise `BadInput` if this time has no time zone, or lies outside of the years 1 to 9999 in UTC."""
    if occurred_at is None:
        return
    if occurred_at.utcoffset() is None:
        raise BadInput.of("occurred_at", "must have a time zone")
    try:
        occurred_at.astimezone(UTC)  # the offset can move it into another year
    except OverflowError as error:
        raise BadInput.of("occurred_at", "must be a time in the years 1 to 9999") from error
