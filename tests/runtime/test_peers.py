"""Wrong keys, counted by address."""

import ipaddress

import pytest

from postroom.runtime import peers
from postroom.runtime.peers import GUESS_WINDOW_S, GUESSES, TrustedProxies, UnlistedProxies, WrongKeyCounter


class Seconds:
    """A manual clock."""

    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


def test_wrong_keys_are_limited_per_address() -> None:
    """After too many wrong keys an address has to wait; others do not, and the wait expires."""
    clock = Seconds()
    guesses = WrongKeyCounter(monotonic=clock)
    for _ in range(GUESSES):
        assert guesses.wait_s("192.0.2.1") == 0
        guesses.failed("192.0.2.1")
    assert 0 < guesses.wait_s("192.0.2.1") <= GUESS_WINDOW_S + 1
    assert guesses.wait_s("192.0.2.2") == 0
    clock.now += GUESS_WINDOW_S
    assert guesses.wait_s("192.0.2.1") == 0


def test_ipv6_network_counts_as_one_address() -> None:
    """Another address of the same /64 gets no new tries."""
    guesses = WrongKeyCounter(monotonic=Seconds())
    for number in range(GUESSES):
        guesses.failed(f"2001:db8::{number:x}")
    assert guesses.wait_s("2001:db8::ffff") > 0
    assert guesses.wait_s("2001:db8:0:1::1") == 0


def test_wrong_key_counter_is_bounded() -> None:
    """The number of stored addresses has a limit."""
    guesses = WrongKeyCounter(monotonic=Seconds())
    for number in range(10_050):
        guesses.failed(f"host-{number}")
    assert len(guesses._tried) <= 10_000


@pytest.mark.parametrize(
    "peer, newest", [("10.0.0.7", "10.0.0.7"), ("::ffff:10.0.0.7", "10.0.0.7"), ("8.8.8.8", None), ("192.0.2.4", None)]
)
def test_a_private_peer_that_forwards_and_is_not_listed_is_noted(
    monkeypatch: pytest.MonkeyPatch, peer: str, newest: str | None
) -> None:
    """A proxy of one's own network is noted unless it is listed; the header of a client on the internet is no news."""
    seen = UnlistedProxies()
    monkeypatch.setattr(peers, "UNLISTED_PROXIES", seen)
    proxies = TrustedProxies([ipaddress.ip_network("192.0.2.0/24")])
    proxies.check_sender({"client": (peer, 1)})
    assert seen.newest == newest
