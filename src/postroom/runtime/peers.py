"""Network peers as limits see them: an address, or the network of 2^64 addresses that one IPv6 host has."""

import ipaddress
import time
from collections.abc import Callable, Iterable

Network = ipaddress.IPv4Network | ipaddress.IPv6Network

LOOPBACK: tuple[Network, ...] = (ipaddress.IPv4Network("127.0.0.0/8"), ipaddress.IPv6Network("::1/128"))

GUESSES = 10
GUESS_WINDOW_S = 60.0

_MOST_REMEMBERED = 10_000
_IPV6 = 6


def network_of(address: str) -> str:
    """The address that limits count: of IPv6 the /64, of anything that is no address the text itself."""
    found = _read(address)
    if found is None:
        return address
    return str(ipaddress.ip_network((found, 64), strict=False)) if found.version == _IPV6 else str(found)


def is_within(address: str, networks: Iterable[Network]) -> bool:
    """True if the address belongs to one of the networks; a Unix socket has no address and counts as local."""
    found = _read(address)
    return address == "" if found is None else any(found in network for network in networks)


def _read(address: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return None
    mapped = found.ipv4_mapped if isinstance(found, ipaddress.IPv6Address) else None
    return mapped or found


class Guesses:
    """Wrong keys by address: after `most` within `GUESS_WINDOW_S` seconds, an address waits.

    A key has 256 bits and cannot be guessed; this limits the queries and log lines that guessing costs.
    """

    def __init__(self, *, most: int = GUESSES, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._most, self._monotonic = most, monotonic
        self._tried: dict[str, list[float]] = {}

    def wait_s(self, address: str) -> int:
        """Seconds until this address may try again; 0 if it may now."""
        now = self._monotonic()
        recent = [at for at in self._tried.get(network_of(address), ()) if at > now - GUESS_WINDOW_S]
        return 0 if len(recent) < self._most else max(1, int(recent[-self._most] + GUESS_WINDOW_S - now) + 1)

    def failed(self, address: str) -> None:
        """Count a wrong key."""
        now, who = self._monotonic(), network_of(address)
        if len(self._tried) >= _MOST_REMEMBERED:
            self._tried = {each: when for each, when in self._tried.items() if when[-1] > now - GUESS_WINDOW_S}
        if len(self._tried) >= _MOST_REMEMBERED:
            self._tried.clear()
        self._tried[who] = [*self._tried.get(who, ()), now][-self._most :]
