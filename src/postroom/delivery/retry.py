"""Retry schedules: when to retry a delivery and when to give up. Pure.

A ladder has the waits between attempts and an age limit. The age counts from the first attempt, not from acceptance:
mail that waited for a paused campaign or for an account with quota keeps all of its retries. A hint from the other
side ("try again in 300 seconds") replaces the ladder's wait if it is longer, within limits. Jitter changes every
wait by up to a quarter in either direction, so that deliveries that failed together are not retried together.

A request can set its own limits: `max_retries` and `give_up_after`. Both can lengthen a ladder as well as shorten
it: after its last step, the last wait repeats.
"""

from dataclasses import dataclass
from datetime import timedelta

from postroom.delivery.outcome import Disposition, Outcome


@dataclass(frozen=True, slots=True)
class RetrySchedule:
    """Waits between attempts; after the last, the `repeat` wait, if any, repeats until `max_age`."""

    waits: tuple[timedelta, ...]
    max_age: timedelta
    repeat: timedelta | None = None

    def wait_after(self, attempts: int) -> timedelta | None:
        """The wait after this many attempts; None if the ladder has no further step."""
        return self.waits[attempts - 1] if attempts <= len(self.waits) else self.repeat


def _seconds(*values: int) -> tuple[timedelta, ...]:
    return tuple(timedelta(seconds=value) for value in values)


_MINUTE, _HOUR, _DAY = 60, 3600, 86400  # seconds

LADDERS: dict[str, RetrySchedule] = {
    "auth": RetrySchedule(_seconds(5, 15, 45, 2 * _MINUTE, 5 * _MINUTE), max_age=timedelta(hours=1)),
    "generic": RetrySchedule(
        _seconds(_MINUTE, 5 * _MINUTE, 15 * _MINUTE, _HOUR, 2 * _HOUR, 4 * _HOUR, 8 * _HOUR, 16 * _HOUR),
        max_age=timedelta(days=4),
        repeat=timedelta(days=1),
    ),
    "webhook": RetrySchedule(
        _seconds(5, 5 * _MINUTE, 30 * _MINUTE, 2 * _HOUR, 5 * _HOUR, 10 * _HOUR, 14 * _HOUR, 20 * _HOUR, _DAY),
        max_age=timedelta(days=5),
    ),
    # long enough for three hints of the maximum length: here the number of retries is the limit, not the age
    "greeting": RetrySchedule(_seconds(1, 2, 4), max_age=timedelta(days=4)),
}

JITTER = 0.25  # spreads the retries of mail that failed together
LONGEST_HINT = timedelta(days=1)  # a server cannot postpone a mail until it expires
MOST_RETRIES = 100  # a mail with a short ladder is not repeated without end
SHORTEST_PATIENCE, LONGEST_PATIENCE = timedelta(seconds=1), timedelta(days=30)
"""Limits of `max_retries` and `give_up_after`; SQL has them in check_patience.sql."""


@dataclass(frozen=True, slots=True)
class RetryIn:
    """Retry after this time."""

    wait: timedelta


@dataclass(frozen=True, slots=True)
class GiveUp:
    """Give up, with a `dead_letter_reason`."""

    reason: str


def find_ladder(name: str, *, max_retries: int | None = None, give_up_after: timedelta | None = None) -> RetrySchedule:
    """The named ladder within the limits of one request.

    An unknown name, of a later version, means the generic ladder.
    """
    steps = LADDERS.get(name, LADDERS["generic"])
    if max_retries is None and give_up_after is None:
        return steps
    repeat = steps.repeat or steps.waits[-1]
    max_age = give_up_after or steps.max_age
    if max_retries is None:
        return RetrySchedule(steps.waits, max_age, repeat)
    return RetrySchedule((*steps.waits, *(repeat,) * max_retries)[:max_retries], max_age)


def next_step(
    outcome: Outcome, *, ladder: RetrySchedule, attempts: int, age: timedelta, jitter: float, hold_unknown: bool
) -> RetryIn | GiveUp:
    """Decide what follows an attempt that neither succeeded nor was rejected.

    `attempts` counts those since the last redrive, `jitter` is a random number in [-1, 1), `hold_unknown` is the
    lane's policy for a message that may already have been delivered.
    """
    if outcome.verdict is Disposition.UNKNOWN and hold_unknown:
        return GiveUp("ambiguous")
    wait = ladder.wait_after(attempts)
    if wait is None:
        return GiveUp("attempts_exhausted")
    hint = timedelta(seconds=min(outcome.retry_after_s or 0, LONGEST_HINT.total_seconds()))
    if hint > wait:  # never earlier than the other side asked
        wait, jitter = hint, abs(jitter)
    wait *= 1 + JITTER * jitter
    if age + wait > ladder.max_age:
        return GiveUp("max_age")
    return RetryIn(wait)
