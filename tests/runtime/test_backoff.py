"""Back-off: pauses double up to a limit and start again after a success."""

from hypothesis import given
from hypothesis import strategies as st

from postroom.runtime.backoff import Backoff


def test_pauses_double_up_to_the_longest() -> None:
    backoff = Backoff(1, 10, jitter=0)
    assert [backoff.fail() for _ in range(6)] == [1, 2, 4, 8, 10, 10]


def test_a_success_starts_again_with_the_first_pause() -> None:
    backoff = Backoff(1, 10, jitter=0)
    backoff.fail()
    backoff.fail()
    backoff.reset()
    assert backoff.fail() == 1


@given(failures=st.integers(min_value=0, max_value=10**6), jitter=st.floats(min_value=0, max_value=1))
def test_a_pause_is_never_longer_than_the_longest(failures: int, jitter: float) -> None:
    """Jitter only shortens a pause, however many failures came before."""
    full = Backoff(0.2, 30, jitter=0, failures=failures).pause_s
    assert (1 - jitter) * full <= Backoff(0.2, 30, jitter=jitter, failures=failures).pause_s <= full <= 30
