"""The ways out, the counts of one worker, and the oldest mail. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime

from postroom.delivery.decision import AttemptResult
from postroom.delivery.model import Lane
from postroom.post.reply import Reply, Stage

UNREACHED = frozenset({Stage.CONNECT, Stage.TLS, Stage.LOGIN})
"""Stages at which an attempt ends before a mail is offered. SQL has them in waits_for.sql and release_unreached."""

_MAIL = frozenset({"smtp", "gmail", "ses"})  # transports that leave the installation


@dataclass(frozen=True, slots=True, kw_only=True)
class WayOut:
    """The relay or a sender account, and whether it answers."""

    name: str
    is_relay: bool
    last_sent_at: datetime | None
    failing_since: datetime | None  # None: it answers
    failures: int  # attempts since then
    logins_refused: int  # those of them whose login was refused
    stage: str | None
    detail: str | None


@dataclass(frozen=True, slots=True)
class OldestMail:
    """The oldest unfinished mail of a lane with this reason to wait (`waits_for`; `reply`: a worker has it)."""

    lane: Lane
    waits_for: str
    since: datetime  # when it was to leave


@dataclass(frozen=True, slots=True)
class Slice:
    """One slice of deferred mail: deliveries seen and made due, and where the next one begins."""

    seen: int
    released: int
    after_since: datetime | None
    after_id: int | None


@dataclass(frozen=True, slots=True)
class NewOutage:
    """An outage after a probe; `is_new` if this probe makes it known."""

    failures: int
    failing_since: datetime | None
    is_new: bool


@dataclass(slots=True)
class AttemptCounts:
    """The results of the attempts at one way out since the last report."""

    is_sent: bool = False
    is_reached: bool = False
    failures: int = 0  # since the last attempt that offered a mail
    logins_refused: int = 0
    stage: str | None = None
    detail: str | None = None

    def add(self, reply: Reply, *, is_sent: bool) -> None:
        if reply.stage not in UNREACHED:
            self.is_reached, self.is_sent = True, self.is_sent or is_sent
            self.failures = self.logins_refused = 0
            self.stage = self.detail = None
            return
        self.failures += 1
        self.logins_refused += reply.stage is Stage.LOGIN and reply.code is not None
        self.stage, self.detail = reply.stage.value, words_of(reply)


@dataclass(slots=True)
class WayOutCounts:
    """The counts of one worker, by sender account; None is the relay."""

    counts: dict[int | None, AttemptCounts] = field(default_factory=dict)

    def add(self, results: Iterable[AttemptResult]) -> None:
        """Count results that are in the ledger."""
        for result in results:
            if result.transport in _MAIL and result.reply is not None:
                account_id = result.outgoing.sender_account_id
                counts = self.counts.get(account_id)
                if counts is None:
                    counts = self.counts[account_id] = AttemptCounts()
                counts.add(result.reply, is_sent=result.outcome == "sent")

    def take(self) -> dict[int | None, AttemptCounts]:
        taken, self.counts = self.counts, {}
        return taken

    def restore(self, taken: dict[int | None, AttemptCounts]) -> None:
        """Keep counts that could not be written, unless newer ones exist."""
        self.counts = {**taken, **self.counts}


def words_of(reply: Reply) -> str:
    """The reply of the server, or the error of the network, for people."""
    return " ".join(str(part) for part in (reply.code, reply.enhanced, reply.text) if part)[:500]
