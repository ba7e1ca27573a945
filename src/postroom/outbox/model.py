"""Topics, progress and leadership: everything about the outbox that can be decided without a database."""

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import NamedTuple

from postroom.errors import BadInput, FieldError
from postroom.events.errors import EventUnreadable
from postroom.events.model import TAG_BYTES, TYPE_LENGTH, Place, SequencedEvent

NAME = r"^[a-z0-9][a-z0-9_.-]{0,99}$"
PUBLISHER = r"^[a-z0-9][a-z0-9_.:-]{0,99}$"
RESERVED = ("topics", "rules")
"""Not names of topics: in /v1/outbox/… they are something else."""

VIEW = "view:"
"""How the publishers begin that keep views."""

MOST_CONDITIONS = 100
LAG_BOUND = 10_000
"""How many events a listing looks through to tell how far behind a publisher is."""

LINGERS, LINGER = 10, timedelta(milliseconds=20)
UNSETTLED_REST = timedelta(milliseconds=250)


class PublisherStatus(StrEnum):
    """What a publisher does with its topic."""

    ACTIVE = "ACTIVE"  # publishes
    PAUSED = "PAUSED"  # waits for a person, who wanted it so
    FAILED = "FAILED"  # waits for a person, after too many errors in a row


class Subscription(NamedTuple):
    """One publisher of one topic: what is led, paused and counted."""

    topic: str
    publisher: str

    def __str__(self) -> str:
        return f"{self.topic}/{self.publisher}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Topic:
    """What is published under a name. All four conditions hold; an empty one holds for every event."""

    name: str
    types: tuple[str, ...] = ()
    required_keys: tuple[str, ...] = ()
    any_keys: tuple[str, ...] = ()
    exact_tags: tuple[str, ...] = ()
    created_at: datetime | None = None
    publishers: tuple[str, ...] = ()

    @property
    def about(self) -> str:
        """In words: `events of type A or B, with wallet=…, with region=1`."""
        said = [
            *([f"of type {' or '.join(self.types)}"] if self.types else []),
            *(f"with {key}=…" for key in self.required_keys),
            *([f"with {' or '.join(f'{key}=…' for key in self.any_keys)}"] if self.any_keys else []),
            *(f"with {tag}" for tag in self.exact_tags),
        ]
        return f"events {', '.join(said)}" if said else "every event"

    def matches(self, type_: str, tags: Iterable[str]) -> bool:
        """What the database decides, said in Python: for tests and for people."""
        carried = set(tags)
        keys = {tag.partition("=")[0] for tag in carried}
        return (
            (not self.types or type_ in self.types)
            and carried.issuperset(self.exact_tags)
            and keys.issuperset(self.required_keys)
            and (not self.any_keys or not keys.isdisjoint(self.any_keys))
        )


def check_topic(topic: Topic) -> None:
    """Raise `BadInput` naming every condition that no event could ever fulfil."""
    errors = []
    if not re.fullmatch(NAME, topic.name):
        errors.append(FieldError("name", "must be lower-case letters, digits, dots, dashes; at most 100"))
    if topic.name in RESERVED:
        errors.append(FieldError("name", f"must not be {' or '.join(RESERVED)}"))
    errors += [
        FieldError(f"{name}[{index}]", problem)
        for name, problem, is_wrong in (
            ("types", f"must have 1 to {TYPE_LENGTH} characters", _is_no_type),
            ("required_keys", "must be a tag's key, without an equals sign", _is_no_key),
            ("any_keys", "must be a tag's key, without an equals sign", _is_no_key),
            ("exact_tags", "must be key=value", _is_no_tag),
        )
        for index, text in enumerate(getattr(topic, name))
        if is_wrong(text)
    ]
    if errors:
        raise BadInput(errors)


def check_publisher(name: str) -> None:
    if not re.fullmatch(PUBLISHER, name):
        raise BadInput.of("publisher", "must be lower-case letters, digits, dots, colons, dashes; at most 100")


def _is_no_type(text: str) -> bool:
    return not 1 <= len(text) <= TYPE_LENGTH or "\0" in text


def _is_no_key(text: str) -> bool:
    return not text or "=" in text or "\0" in text


def _is_no_tag(text: str) -> bool:
    return text.find("=") < 1 or "\0" in text or len(text.encode("utf-8", "replace")) > TAG_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class _PublisherFields:
    """How far a publisher is with a topic, and who leads it."""

    topic: str
    publisher: str
    status: PublisherStatus
    last_position: int
    last_transaction_id: int
    last_published_at: datetime | None
    error_count: int
    last_error: str | None
    failed_position: int | None
    leader_instance: str | None
    leader_since: datetime | None
    leader_heartbeat: datetime | None
    updated_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress(_PublisherFields):
    """How far a publisher is with a topic."""

    follower_id: int | None

    @property
    def place(self) -> Place:
        return Place(self.last_transaction_id, self.last_position)


@dataclass(frozen=True, slots=True)
class Stall:
    """The open transaction that committed events wait for. `prepared` names one that no session holds."""

    pid: int | None
    seconds: float
    database: str | None = None
    application_name: str | None = None
    state: str | None = None
    prepared: str | None = None

    def __str__(self) -> str:
        return f"{self.prepared or f'pid {self.pid}'} for {self.seconds:.0f} s"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgressLine(_PublisherFields):
    """One line of the listing: how far a publisher is, how far behind, who leads, what is wrong.

    `lag_is_more`: there are more than were counted. `lag_seconds`: the age of the oldest that waits, by its
    `occurred_at`.
    """

    lag_events: int
    lag_is_more: bool
    lag_seconds: float
    stall: Stall | None = None


@dataclass(frozen=True, slots=True)
class ProgressReset:
    """What a reset did. It rewinds if events that were published before will be published again."""

    from_position: int
    to_position: int
    rewinds: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgressCheck:
    """Whether a publisher has come as far as a place, and what keeps it if not."""

    is_reached: bool
    status: PublisherStatus
    leader_instance: str | None
    last_error: str | None
    failed_position: int | None

    def __str__(self) -> str:
        if self.last_error is not None:
            return self.last_error
        if self.status is not PublisherStatus.ACTIVE:
            return f"it is {self.status}"
        return "nobody keeps it" if self.leader_instance is None else "it is on its way"


@dataclass(frozen=True, slots=True)
class Skipped:
    """An event that a publisher will never get."""

    position: int
    type: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NextEvents:
    """What a leader saw: where its pair stands, and the next events, up to the first that cannot be read."""

    status: PublisherStatus
    leader_instance: str | None
    place: Place
    end: Place
    scanned: int
    has_unsettled: bool
    horizon: int  # the oldest open transaction
    newest: int  # the first that has not begun
    events: tuple[SequencedEvent, ...] = ()
    unreadable: EventUnreadable | None = None  # what follows them


@dataclass(slots=True)
class BatchSize:
    """How many events are tried at once: one by one through what failed together, so that the good ones get out."""

    largest: int
    _careful: int = 0

    @property
    def now(self) -> int:
        return 1 if self._careful > 0 else self.largest

    def failed(self, count: int) -> None:
        self._careful = max(self._careful, count)

    def succeeded(self, count: int) -> None:
        self._careful = max(0, self._careful - count)


@dataclass(slots=True)
class ScanSize:
    """How far a look goes: as far as a batch where most events match, further where few do."""

    largest: int = 10_000
    _factor: int = 1

    def now(self, batch: int) -> int:
        return min(batch * self._factor, max(self.largest, batch))

    def saw(self, scanned: int, matched: int) -> None:
        if matched * 4 >= scanned:
            self._factor = max(1, self._factor // 4)
        else:
            self._factor = min(self._factor * 4, self.largest)


@dataclass(slots=True)
class PollInterval:
    """How long a leader with nothing to do waits, and when it asks to be woken instead.

    First it looks again and again, because work comes in bursts. What is committed but held back by an open transaction
    is looked for every quarter of a second, asleep or not: its notification has been. Asleep, it polls more and more
    rarely, but not before everybody who may have appended without knowing that it sleeps has ended.
    """

    poll: timedelta = timedelta(seconds=1)
    longest: timedelta = timedelta(minutes=1)
    is_asleep: bool = False
    _empty: int = 0
    _held: int = 0
    _newest: int | None = None
    _pause: timedelta = field(default_factory=timedelta)

    def worked(self) -> None:
        self._empty, self._held, self.is_asleep, self._newest, self._pause = 0, 0, False, None, timedelta()

    def found_nothing(self, look: NextEvents) -> timedelta:
        """How long to wait now. If it returns zero, the leader has just fallen asleep: it must look once more."""
        if look.has_unsettled:
            self._held = min(self._held + 1, 8)
            return min(LINGER * (1 << (self._held - 1)), UNSETTLED_REST)
        self._held = 0
        self._empty += 1
        if self._empty <= LINGERS and not self.is_asleep:
            return LINGER
        if not self.is_asleep:
            self.is_asleep = True
            return timedelta()
        if self._newest is None:
            self._newest = look.newest
        is_quiet = look.horizon >= self._newest
        self._pause = min(self._pause * 2, self.longest) if self._pause and is_quiet else self.poll
        return self._pause


def assign(pairs: Sequence[Subscription], instances: Mapping[int, Iterable[str]]) -> dict[Subscription, int]:
    """Who should lead what. Whoever knows the same arrives at the same answer; nobody gets two more than another.

    `instances` maps each to the publishers it has. Of those with the least to do, a pair goes to the one that a hash of
    both prefers, so that most pairs stay where they are when somebody comes or goes.
    """
    able = {instance: frozenset(publishers) for instance, publishers in instances.items()}
    load = dict.fromkeys(able, 0)
    chosen: dict[Subscription, int] = {}
    # Those with the fewest candidates choose first, or what only one can do would overload it.
    for pair in sorted(pairs, key=lambda pair: (sum(pair.publisher in names for names in able.values()), pair)):
        candidates = [instance for instance, names in able.items() if pair.publisher in names]
        if candidates:
            best = min(candidates, key=lambda instance: (load[instance], _preference(pair, instance)))
            chosen[pair] = best
            load[best] += 1
    return chosen


def _preference(pair: Subscription, instance: int) -> bytes:
    return hashlib.blake2b(f"{pair} {instance}".encode(), digest_size=8).digest()
