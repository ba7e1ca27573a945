"""Wrong keys, counted by address."""

from postroom.runtime.peers import GUESS_WINDOW_S, GUESSES, WrongKeyCounter


class Seconds:
    """A clock that moves when it is told to."""

    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


def test_guessing_is_slowed_down_per_address() -> None:
    """After so many wrong keys an address waits; others do not, and time forgives."""
    clock = Seconds()
    guesses = WrongKeyCounter(monotonic=clock)
    for _ in range(GUESSES):
        assert guesses.wait_s("192.0.2.1") == 0
        guesses.failed("192.0.2.1")
    assert 0 < guesses.wait_s("192.0.2.1") <= GUESS_WINDOW_S + 1
    assert guesses.wait_s("192.0.2.2") == 0
    clock.now += GUESS_WINDOW_S
    assert guesses.wait_s("192.0.2.1") == 0


def test_one_network_of_ipv6_is_one_guesser() -> None:
    """Another address of the same /64 gets no new tries."""
    guesses = WrongKeyCounter(monotonic=Seconds())
    for number in range(GUESSES):
        guesses.failed(f"2001:db8::{number:x}")
    assert guesses.wait_s("2001:db8::ffff") > 0
    assert guesses.wait_s("2001:db8:0:1::1") == 0


def test_the_memory_of_guesses_is_bounded() -> None:
    """No number of addresses makes it grow without end."""
    guesses = WrongKeyCounter(monotonic=Seconds())
    for number in range(10_050):
        guesses.failed(f"host-{number}")
    assert len(guesses._tried) <= 10_000
