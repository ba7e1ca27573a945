"""From where a request came, and in which place of the world that is.

Behind a proxy the peer is the proxy, and `X-Forwarded-For` says who asked it; but anybody can send that header. So it
is read from the right, and only as far as the proxies that the operator named go.
"""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from pathlib import Path
from typing import Any

Network = IPv4Network | IPv6Network

_REMEMBERED = 8192


class Origins:
    """Tells the address of whoever asked."""

    def __init__(self, trusted_proxies: Sequence[Network] = ()) -> None:
        self._trusted = tuple(trusted_proxies)
        self._find = lru_cache(maxsize=_REMEMBERED)(self._look)

    def find(self, peer: str | None, forwarded_for: bytes | None) -> str | None:
        """The client's address in its usual form; None if it has none, as on a Unix socket."""
        return self._find(peer, forwarded_for if self._trusted else None)

    def of(self, scope: Mapping[str, Any]) -> str:
        """The client's address of an ASGI request; empty if it has none."""
        forwarded = b",".join(value for name, value in scope["headers"] if name == b"x-forwarded-for")
        client = scope.get("client")
        return self.find(client[0] if client else None, forwarded or None) or ""

    def _look(self, peer: str | None, forwarded_for: bytes | None) -> str | None:
        found = _read(peer or "")
        hops = forwarded_for.decode("latin-1").split(",") if forwarded_for else []
        while found is not None and hops and any(found in network for network in self._trusted):
            before = _read(hops.pop())
            if before is None:
                break
            found = before
        return None if found is None else str(found)


def _read(text: str) -> IPv4Address | IPv6Address | None:
    """An address without zone, port or brackets, whichever way a proxy wrote it."""
    text = text.strip()
    if text.startswith("["):
        text = text[1:].partition("]")[0]
    elif text.count(":") == 1:
        text = text.partition(":")[0]
    try:
        found = ip_address(text.partition("%")[0])
    except ValueError:
        return None
    mapped = found.ipv4_mapped if isinstance(found, IPv6Address) else None
    return mapped or found


class Places:
    """Country and city of addresses, from a MaxMind database that the operator supplies."""

    def __init__(self, database: Path) -> None:
        import maxminddb

        self._reader = maxminddb.open_database(database)
        self.find = lru_cache(maxsize=_REMEMBERED)(self._look)

    def close(self) -> None:
        self._reader.close()

    def _look(self, address: str) -> tuple[str | None, str | None]:
        try:
            found: Any = self._reader.get(address)
        except ValueError:  # IPv6 asked of a database that knows only IPv4
            return None, None
        if not isinstance(found, dict):
            return None, None
        country = _inside(found, "country", "iso_code")
        return country, _inside(found, "city", "names", "en")


def nowhere(_address: str) -> tuple[str | None, str | None]:
    """Without a database of places."""
    return None, None


def _inside(found: Any, *path: str) -> str | None:
    """The text at a path; databases differ in what they hold."""
    for name in path:
        found = found.get(name) if isinstance(found, dict) else None
    return found if isinstance(found, str) else None
