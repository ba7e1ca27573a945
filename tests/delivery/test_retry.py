"""Retry schedules: ladders, hints, jitter, limits."""

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from postroom.delivery.outcome import Disposition, Outcome
from postroom.delivery.retry import JITTER, LADDERS, LONGEST_HINT, GiveUp, RetryIn, find_ladder, next_step

DAY = timedelta(days=1)


def step(
    *,
    ladder: str = "generic",
    attempts: int = 1,
    age: timedelta = timedelta(),
    jitter: float = 0,
    hint: float | None = None,
    verdict: Disposition = Disposition.DEFERRED,
    hold: bool = False,
    max_retries: int | None = None,
    give_up_after: timedelta | None = None,
) -> RetryIn | GiveUp:
    steps = find_ladder(ladder, max_retries=max_retries, give_up_after=give_up_after)
    return next_step(
        Outcome(verdict, (), hint), ladder=steps, attempts=attempts, age=age, jitter=jitter, hold_unknown=hold
    )


@pytest.mark.parametrize(
    "ladder, seconds",
    [
        ("generic", [60, 300, 900, 3600, 7200, 14400, 28800, 57600, 86400, 86400]),
        ("auth", [5, 15, 45, 120, 300]),
        ("greeting", [1, 2, 4]),
    ],
)
def test_waits_are_those_of_the_ladder(ladder: str, seconds: list[int]) -> None:
    """The n-th wait follows the n-th attempt."""
    waits = [step(ladder=ladder, attempts=n) for n in range(1, len(seconds) + 1)]
    assert waits == [RetryIn(timedelta(seconds=each)) for each in seconds]


@pytest.mark.parametrize("ladder, steps", [("auth", 5), ("greeting", 3), ("webhook", 9)])
def test_a_ladder_without_a_further_step_gives_up(ladder: str, steps: int) -> None:
    """A ladder allows one attempt more than it has waits."""
    assert isinstance(step(ladder=ladder, attempts=steps), RetryIn)
    assert step(ladder=ladder, attempts=steps + 1) == GiveUp("attempts_exhausted")


def test_patience_ends_with_age() -> None:
    """A wait that would exceed the age limit is not started."""
    assert step(attempts=9, age=3 * DAY) == RetryIn(DAY)
    assert step(attempts=9, age=3 * DAY + timedelta(seconds=1)) == GiveUp("max_age")


def test_an_unknown_ladder_is_the_generic_one() -> None:
    """A delivery of a later version is retried with the generic ladder."""
    assert step(ladder="of the future") == step(ladder="generic")


@pytest.mark.parametrize(
    "hint, wait",
    [(30, timedelta(minutes=1)), (600, timedelta(minutes=10)), (10 * 86400, LONGEST_HINT), (1e300, LONGEST_HINT)],
)
def test_a_longer_hint_takes_the_place_of_the_wait(hint: float, wait: timedelta) -> None:
    """A hint is followed if it is longer than the ladder's wait, up to a day."""
    assert step(hint=hint) == RetryIn(wait)


def test_a_hint_is_never_shortened_by_chance() -> None:
    """Jitter moves a hinted wait only later."""
    taken = step(hint=600, jitter=-1)
    assert isinstance(taken, RetryIn)
    assert taken.wait >= timedelta(seconds=600)


@given(jitter=st.floats(-1, 1), attempts=st.integers(1, 5), ladder=st.sampled_from(sorted(LADDERS)))
def test_chance_moves_a_wait_by_a_quarter_at_most(jitter: float, attempts: int, ladder: str) -> None:
    """Jitter separates retries and changes a wait by at most a quarter."""
    taken = step(ladder=ladder, attempts=attempts, jitter=jitter)
    plain = LADDERS[ladder].wait_after(attempts)
    if plain is None:
        assert taken == GiveUp("attempts_exhausted")
    else:
        assert isinstance(taken, RetryIn)
        assert plain * (1 - JITTER) <= taken.wait <= plain * (1 + JITTER)


def test_an_unknown_end_is_held_where_the_lane_says_so() -> None:
    """An ambiguous mail is a dead letter in lanes that hold it, and retried in others."""
    assert step(verdict=Disposition.UNKNOWN, hold=True) == GiveUp("ambiguous")
    assert isinstance(step(verdict=Disposition.UNKNOWN), RetryIn)
    assert isinstance(step(verdict=Disposition.DEFERRED, hold=True), RetryIn)


@pytest.mark.parametrize("most", [0, 1, 12])
@pytest.mark.parametrize("ladder", ["auth", "generic"])
def test_a_request_limits_its_retries(ladder: str, most: int) -> None:
    """Fewer or more than the ladder has: beyond its end the last wait repeats."""
    for attempts in range(1, most + 1):
        assert isinstance(step(ladder=ladder, attempts=attempts, max_retries=most), RetryIn)
    assert step(ladder=ladder, attempts=most + 1, max_retries=most) == GiveUp("attempts_exhausted")


def test_a_request_limits_its_age() -> None:
    """Shorter or longer than the ladder's: an auth mail may be retried for a day, a generic one for two minutes."""
    assert step(attempts=1, give_up_after=timedelta(minutes=1)) == RetryIn(timedelta(minutes=1))
    assert step(attempts=2, give_up_after=timedelta(minutes=2)) == GiveUp("max_age")
    assert step(ladder="auth", attempts=50, give_up_after=DAY) == RetryIn(timedelta(minutes=5))
    assert step(ladder="auth", attempts=50, give_up_after=DAY, age=DAY) == GiveUp("max_age")
