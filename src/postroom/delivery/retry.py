"""When to try again, and when to stop: pure arithmetic on ladders.

A ladder is the waits between attempts and the age at which patience ends. A hint from the other side ("try again in
300 seconds") takes the place of the ladder's wait when it is longer, within bounds. Every wait is moved by up to a
quarter in either direction, so that what failed together does not return together.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta

from postroom.delivery.outcome import Outcome, Verdict


@dataclass(frozen=True, slots=True)
class Ladder:
    """Waits between attempts; after the last the `repeat` wait goes on, if there is one, until `max_age`."""

    waits: tuple[timedelta, ...]
    max_age: timedelta
    repeat: timedelta | None = None

    def wait_after(self, attempts: int) -> timedelta | None:
        """The wait after this many attempts; None when the ladder has no further step."""
        return self.waits[attempts - 1] if attempts <= len(self.waits) else self.repeat


def _seconds(*values: int) -> tuple[timedelta, ...]:
    return tuple(timedelta(seconds=value) for value in values)


_MINUTE, _HOUR, _DAY = 60, 3600, 86400

LADDERS: dict[str, Ladder] = {
    "auth": Ladder(_seconds(5, 15, 45, 2 * _MINUTE, 5 * _MINUTE), max_age=timedelta(hours=1)),
    "generic": Ladder(
        _seconds(_MINUTE, 5 * _MINUTE, 15 * _MINUTE, _HOUR, 2 * _HOUR, 4 * _HOUR, 8 * _HOUR, 16 * _HOUR),
        max_age=timedelta(days=4),
        repeat=timedelta(days=1),
    ),
    "webhook": Ladder(
        _seconds(5, 5 * _MINUTE, 30 * _MINUTE, 2 * _HOUR, 5 * _HOUR, 10 * _HOUR, 14 * _HOUR, 20 * _HOUR, _DAY),
        max_age=timedelta(days=5),
    ),
    # old enough for three hints, each as long as is followed: here the number of retries ends patience, not the age
    "greeting": Ladder(_seconds(1, 2, 4), max_age=timedelta(days=4)),
}

JITTER = 0.25
LONGEST_HINT = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class RetryIn:
    """Try again after this long."""

    wait: timedelta


@dataclass(frozen=True, slots=True)
class GiveUp:
    """Stop trying: a `dead_letter_reason`."""

    reason: str


def next_step(
    outcome: Outcome, *, ladder: str, attempts: int, age: timedelta, jitter: float, hold_unknown: bool
) -> RetryIn | GiveUp:
    """What follows an attempt that neither succeeded nor was refused.

    `attempts` counts those of this budget, `jitter` is a random number in [-1, 1), `hold_unknown` is the lane's policy
    for a message that may already have been delivered.
    """
    if outcome.verdict is Verdict.UNKNOWN and hold_unknown:
        return GiveUp("ambiguous")
    steps = LADDERS.get(ladder, LADDERS["generic"])  # a later version may have named one that we do not know
    wait = steps.wait_after(attempts)
    if wait is None:
        return GiveUp("attempts_exhausted")
    hint = timedelta(seconds=outcome.retry_after_s or 0)
    if hint > wait:  # never earlier than the other side asked for
        wait, jitter = min(hint, LONGEST_HINT), abs(jitter)
    wait *= 1 + JITTER * jitter
    if age + wait > steps.max_age:
        return GiveUp("max_age")
    return RetryIn(wait)


def age_of(retry_since: datetime, now: datetime) -> timedelta:
    return max(now - retry_since, timedelta())
