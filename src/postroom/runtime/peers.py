"""Network peers: the address of a client, also behind trusted proxies, and its form for limits.

Limits count an IPv4 address, or the /64 network of an IPv6 address, because one IPv6 host has 2^64 addresses.
"""

import ipaddress
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import structlog

_log = structlog.get_logger()

Network = ipaddress.IPv4Network | ipaddress.IPv6Network

LOOPBACK: tuple[Network, ...] = (ipaddress.IPv4Network("127.0.0.0/8"), ipaddress.IPv6Network("::1/128"))

GUESSES = 10  # per address and window: allows typing errors
GUESS_WINDOW_S = 60.0  # short enough that a person who mistyped can go on

_MOST_REMEMBERED = 10_000  # addresses; bounds memory under attack
_CACHED_CLIENTS = 8192  # parsing an address takes longer than the look-up
_IPV6 = 6  # version number of ipaddress


def network_of(address: str) -> str:
    """The form of an address that limits count: the /64 of an IPv6 address; an invalid address unchanged."""
    found = _read(address)
    if found is None:
        return address
    return str(ipaddress.ip_network((found, 64), strict=False)) if found.version == _IPV6 else str(found)


def is_within(address: str, networks: Iterable[Network]) -> bool:
    """True if the address belongs to one of the networks; a Unix socket has no address and counts as local."""
    found = _read(address)
    return address == "" if found is None else any(found in network for network in networks)


def local_url(host: str, port: int) -> str:
    """The URL by which a program on this machine reaches an HTTP server that listens there."""
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 - compared, not bound
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _read(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """An address without zone, port and brackets, which proxies add."""
    text = text.strip()
    if text.startswith("["):
        text = text[1:].partition("]")[0]
    elif text.count(":") == 1:
        text = text.partition(":")[0]
    try:
        found = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return None
    mapped = found.ipv4_mapped if isinstance(found, ipaddress.IPv6Address) else None
    return mapped or found


@dataclass(slots=True)
class UnlistedProxies:
    """The newest private address of this process that sent X-Forwarded-For and is no trusted proxy, for the doctor."""

    newest: str | None = None

    def note(self, peer: str) -> None:
        """Only private addresses count: every client on the internet may send the header."""
        found = _read(peer)
        if found is None or not found.is_private or str(found) == self.newest:
            return
        self.newest = str(found)
        _log.warning("forwarded_header_ignored", peer=self.newest, setting="POSTROOM_TRUSTED_PROXIES")


UNLISTED_PROXIES = UnlistedProxies()


class TrustedProxies:
    """Finds the address of a client.

    Behind a proxy the peer is the proxy, and `X-Forwarded-For` names the client; but every client can send that
    header. So it is read from the right, only as far as the proxies that the operator listed.
    """

    def __init__(self, networks: Sequence[Network] = ()) -> None:
        self._trusted = tuple(networks)
        self._find = lru_cache(maxsize=_CACHED_CLIENTS)(self._look_up)

    def find(self, peer: str | None, forwarded_for: bytes | None) -> str | None:
        """The client's address in normal form; None on a Unix socket."""
        return self._find(peer, forwarded_for if self._trusted else None)

    def client_of(self, scope: Mapping[str, Any]) -> str:
        """The client's address of an ASGI request; empty without one."""
        forwarded = None
        if self._trusted:
            forwarded = b",".join(value for name, value in scope["headers"] if name == b"x-forwarded-for") or None
        client = scope.get("client")
        return self._find(client[0] if client else None, forwarded) or ""

    def check_sender(self, scope: Mapping[str, Any]) -> None:
        """Note the peer of a request that has X-Forwarded-For, if the header is ignored."""
        client = scope.get("client")
        if client and not is_within(client[0], self._trusted):
            UNLISTED_PROXIES.note(client[0])

    def _look_up(self, peer: str | None, forwarded_for: bytes | None) -> str | None:
        found = _read(peer or "")
        hops = forwarded_for.decode("latin-1").split(",") if forwarded_for else []
        while found is not None and hops and any(found in network for network in self._trusted):
            before = _read(hops.pop())
            if before is None:
                break
            found = before
        return None if found is None else str(found)


class WrongKeyCounter:
    """Wrong keys by address: after `most` within `GUESS_WINDOW_S` seconds, an address is rejected for a time.

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
