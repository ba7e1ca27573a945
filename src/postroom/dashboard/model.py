"""The figures of the overview, and sign-in codes."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta

from postroom.delivery.model import DeadLetter, Lane, LaneDepth
from postroom.delivery.ways_out.model import OldestMail
from postroom.outbox.model import ProgressLine
from postroom.senders.model import SenderAccount, SenderStatus
from postroom.stats.model import LaneLatency

SLEEPER_SILENCE = timedelta(minutes=2)  # `register_sleeper` renews once a minute


@dataclass(frozen=True, slots=True)
class RequestedCodes:
    """Sign-in codes requested within the last hour."""

    by_address: int
    by_address_and_client: int
    by_client: int
    is_known_place: bool  # the operator with the address has signed in from the client's network


@dataclass(frozen=True, slots=True)
class TriedCode:
    """A sign-in code that an attempt was counted for."""

    code_hash: bytes = field(repr=False)
    operator_id: int | None


@dataclass(frozen=True, slots=True)
class Partition:
    """A month of a large table; `rows` is an estimate, unknown before the first ANALYZE."""

    table_name: str
    name: str
    bounds: str
    rows: int | None
    bytes: int

    @property
    def period(self) -> str:
        """The month that PostgreSQL's `FOR VALUES FROM ('2026-11-01 …') TO ('2026-12-01 …')` names."""
        days = re.findall(r"\d{4}-\d\d-\d\d", self.bounds)
        return f"{date.fromisoformat(days[0]):%B %Y}" if days else "all other rows"


@dataclass(frozen=True, slots=True)
class SeenWorker:
    """A worker and its last report; `asleep` names the lanes in which it waits for work."""

    id: int
    pid: int
    host: str
    started_at: datetime
    seen_at: datetime
    asleep: tuple[Lane, ...]

    def state(self, at: datetime, lease: timedelta) -> str:
        """`lost`, `sleeping` or `active`. A worker that sleeps in every lane may report only once a minute."""
        limit = max(lease, SLEEPER_SILENCE) if len(self.asleep) == len(Lane) else lease
        return "lost" if at - self.seen_at > limit else ("sleeping" if self.asleep else "active")


@dataclass(frozen=True, slots=True, kw_only=True)
class OverviewFigures:
    """The overview at one moment."""

    at: datetime
    lanes: Sequence[LaneDepth]
    oldest: Sequence[OldestMail]  # of each lane, by what it waits for
    sending: Mapping[Lane, int]
    latency: Mapping[str, LaneLatency]
    steps: Mapping[tuple[datetime, str], int]  # by minute
    steps_since: datetime | None  # None: of the whole hour
    dead_letters: Sequence[DeadLetter]
    workers: Sequence[SeenWorker]
    senders: Sequence[SenderAccount]
    outbox: Sequence[ProgressLine]

    def oldest_of(self, lane: Lane) -> list[OldestMail]:
        """The oldest unfinished mail of a lane for each reason to wait, the oldest first."""
        return sorted((each for each in self.oldest if each.lane == lane), key=lambda each: each.since)

    @property
    def senders_by_status(self) -> dict[SenderStatus, int]:
        counts = dict.fromkeys(SenderStatus, 0)
        for account in self.senders:
            counts[account.status] += 1
        return {status: count for status, count in counts.items() if count}

    @property
    def troubled_senders(self) -> list[SenderAccount]:
        """Accounts that do not send, or whose last attempts failed."""
        sending = (SenderStatus.ACTIVE, SenderStatus.WARMING_UP)
        return [each for each in self.senders if each.status not in sending or each.consecutive_errors]
