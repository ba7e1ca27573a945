"""Topics, progress and leadership: the decisions of the outbox that need no database."""

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
"""Reserved topic names: /v1/outbox/topics and /v1/outbox/rules are other endpoints."""

VIEW = "view:"
"""Prefix of the publishers that maintain views."""

MOST_CONDITIONS = 100  # each is compared with every event
LAG_BOUND = 10_000
"""Most events that a listing scans to count a publisher's lag; more are shown as `10000+`."""

LINGERS, LINGER = 10, timedelta(milliseconds=20)
"""Short polls before a leader sleeps, because work comes in bursts."""

UNSETTLED_REST = timedelta(milliseconds=250)
"""Longest poll interval while an open transaction holds events back: their notification has already been sent."""


class PublisherStatus(StrEnum):
    """The status of a publisher of a topic."""

    ACTIVE = "ACTIVE"  # publishes
    PAUSED = "PAUSED"  # by an operator, until an operator resumes it
    FAILED = "FAILED"  # after too many consecutive errors, until an operator resumes it


class Subscription(NamedTuple):
    """One publisher of one topic: the unit of leadership, pausing and metrics."""

    topic: str
    publisher: str

    def __str__(self) -> str:
        return f"{self.topic}/{self.publisher}"


CONDITIONS = ("types", "required_keys", "any_keys", "exact_tags")
"""The fields of a topic that select events."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Topic:
    """The conditions of the events published under a name. All four must hold; an empty one matches every event."""

    name: str
    types: tuple[str, ...] = ()
    required_keys: tuple[str, ...] = ()
    any_keys: tuple[str, ...] = ()
    exact_tags: tuple[str, ...] = ()
    created_at: datetime | None = None
    publishers: tuple[str, ...] = ()

    @property
    def about(self) -> str:
        """The conditions in words: `events of type A or B, with wallet=…, with region=1`."""
        said = [
            *([f"of type {' or '.join(self.types)}"] if self.types else []),
            *(f"with {key}=…" for key in self.required_keys),
            *([f"with {' or '.join(f'{key}=…' for key in self.any_keys)}"] if self.any_keys else []),
            *(f"with {tag}" for tag in self.exact_tags),
        ]
        return f"events {', '.join(said)}" if said else "every event"


def check_topic(topic: Topic) -> None:
    """Raise `BadInput` naming every condition that no event can match."""
    errors = []
    if not re.fullmatch(NAME, topic.name):
        errors.append(FieldError("name", "must be lower-case letters, digits, dots, dashes; at most 100"))
    if topic.name in RESERVED:
        errors.append(FieldError("name", f"must not be {' or '.join(RESERVED)}"))
    errors += [
        FieldError(f"{name}[{index}]", problem)
        for name, problem, is_wrong in (
            ("types", f"must have 1 to {TYPE_LENGTH} characters", _is_no_type),
            ("required_keys", "must be the key of a tag, without an equals sign", _is_no_key),
            ("any_keys", "must be the key of a tag, without an equals sign", _is_no_key),
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
    """The progress of a publisher of a topic, and its leader."""

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

    @property
    def pair(self) -> Subscription:
        return Subscription(self.topic, self.publisher)


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress(_PublisherFields):
    """The progress of a publisher of a topic."""

    follower_id: int | None

    @property
    def place(self) -> Place:
        return Place(self.last_transaction_id, self.last_position)


@dataclass(frozen=True, slots=True)
class Stall:
    """The open transaction that holds back committed events. `prepared` names one without a session."""

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
    """One line of the listing: a publisher's progress, lag, leader and last error.

    `lag_is_more`: more events follow than were counted. `lag_seconds`: the age of the oldest unpublished event, by its
    `occurred_at`.
    """

    lag_events: int
    lag_is_more: bool
    lag_seconds: float
    stall: Stall | None = None


@dataclass(frozen=True, slots=True)
class LagSample:
    """The largest lag of a publisher in one step of a period."""

    at: datetime
    topic: str
    publisher: str
    events: int
    seconds: float

    @property
    def pair(self) -> Subscription:
        return Subscription(self.topic, self.publisher)


@dataclass(frozen=True, slots=True)
class ResetPreview:
    """The effect of a reset: `events` are published again if it rewinds, and not published at all if it does not.

    `is_more`: there are more events than were counted.
    """

    to_position: int
    rewinds: bool
    events: int
    is_more: bool


@dataclass(frozen=True, slots=True)
class ProgressReset:
    """The result of a reset. `rewinds` is true if events that were published before will be published again."""

    from_position: int
    to_position: int
    rewinds: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgressCheck:
    """The result of comparing a publisher's progress with a place, and the reason if it has not reached it."""

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
        return "no worker leads it" if self.leader_instance is None else "it is still catching up"


@dataclass(frozen=True, slots=True)
class Skipped:
    """An event that a publisher skipped."""

    position: int
    type: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NextEvents:
    """One scan of a leader: the progress of its pair, and the next events up to the first unreadable one."""

    status: PublisherStatus
    leader_instance: str | None
    place: Place
    end: Place
    scanned: int
    has_unsettled: bool
    horizon: int  # the oldest open transaction
    newest: int  # the first transaction id that has not been assigned
    events: tuple[SequencedEvent, ...] = ()
    unreadable: EventUnreadable | None = None  # the event after them


@dataclass(slots=True)
class BatchSize:
    """Events per batch: after a failed batch its events are retried one by one, so that valid ones are published."""

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
    """Events per scan: a batch where most events match, up to 10,000 where few do."""

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
    """Waiting times of an idle leader.

    At first it polls every 20 ms, because work comes in bursts; then it registers as asleep and is notified.
    Committed events that an open transaction holds back are polled every 250 ms even while asleep, because their
    notification has already been sent. While asleep the poll interval doubles up to a limit, but only after every
    transaction that may have appended without seeing the registration has ended.
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
        """The time to wait now. Zero means that the leader has just registered as asleep and must scan once again."""
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
    """Assign pairs to instances. The result depends only on the arguments, and loads differ by one at most.

    `instances` maps each instance to the publishers it has. Among the least loaded instances a hash of both decides,
    so that most pairs keep their leader when an instance starts or stops.
    """
    able = {instance: frozenset(publishers) for instance, publishers in instances.items()}
    load = dict.fromkeys(able, 0)
    chosen: dict[Subscription, int] = {}
    # Pairs with the fewest candidates come first; otherwise the only candidate of a pair could be overloaded.
    for pair in sorted(pairs, key=lambda pair: (sum(pair.publisher in names for names in able.values()), pair)):
        candidates = [instance for instance, names in able.items() if pair.publisher in names]
        if candidates:
            best = min(candidates, key=lambda instance: (load[instance], _preference(pair, instance)))
            chosen[pair] = best
            load[best] += 1
    return chosen


def _preference(pair: Subscription, instance: int) -> bytes:
    return hashlib.blake2b(f"{pair} {instance}".encode(), digest_size=8).digest()
