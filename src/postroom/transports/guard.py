"""Guard against requests into our own network (SSRF), for webhooks and sender accounts.

A host name is resolved once, all its addresses are checked, and the connection goes to one of the checked addresses,
so that DNS rebinding has no effect. Mapped, translated and tunnelled notations are checked by the address they lead
to.
"""

import asyncio
import socket
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Any

from aiohttp.abc import AbstractResolver, ResolveResult

_NAT64 = IPv6Network("64:ff9b::/96")
_CLOSED_V4 = tuple(
    IPv4Network(text)
    for text in (
        "0.0.0.0/8",
        "100.64.0.0/10",  # carrier-grade NAT, and the metadata service of some clouds
        "168.63.129.16/32",  # host services of a cloud, under a public address
        "192.0.0.0/24",
        "192.88.99.0/24",
        "198.18.0.0/15",
        "240.0.0.0/4",
    )
)
_CLOSED_V6 = tuple(
    IPv6Network(text)
    for text in (
        "::/96",  # unspecified, loopback, and the deprecated IPv4-compatible notation
        "64:ff9b:1::/48",  # local-use translation
        "100::/64",
        "2001::/23",  # tunnels and tests
        "2001:db8::/32",
        "fec0::/10",
    )
)


_NEVER = tuple(
    ip_network(text)
    for text in (
        "169.254.0.0/16",  # link-local, and the metadata service of most clouds
        "168.63.129.16/32",
        "100.100.100.200/32",
        "fe80::/10",
        "fd00:ec2::/32",
    )
)
"""Addresses that no setting allows: they return credentials of the machine and serve neither mail nor webhooks."""


class AddressForbidden(Exception):  # noqa: N818 - a condition, like the leaves of errors.py
    """The address may not be connected to."""

    def __init__(self, address: str, setting: str | None) -> None:
        way = f"{setting}=1 allows private addresses" if setting else "no setting allows it"
        super().__init__(f"{address} is not a public address; {way}")


def is_public(address: IPv4Address | IPv6Address) -> bool:
    """True for a public internet address."""
    if isinstance(address, IPv6Address):
        inner = _embedded(address)
        if inner is not None:
            return is_public(inner)
        closed = any(address in network for network in _CLOSED_V6)
    else:
        closed = any(address in network for network in _CLOSED_V4)
    return address.is_global and not closed and not (address.is_multicast or address.is_reserved or address.is_private)


def parse_literal(host: str) -> IPv4Address | IPv6Address | None:
    """The address that a URL names directly; None for a host name."""
    try:
        return ip_address(host.strip("[]").partition("%")[0])
    except ValueError:
        return None


def _is_never(address: IPv4Address | IPv6Address) -> bool:
    inner = _embedded(address) if isinstance(address, IPv6Address) else None
    return any((inner or address) in network for network in _NEVER)


def _embedded(address: IPv6Address) -> IPv4Address | None:
    """The IPv4 address that an IPv6 address leads to."""
    if address.ipv4_mapped is not None:
        return address.ipv4_mapped
    if address in _NAT64:
        return IPv4Address(int(address) & 0xFFFFFFFF)
    return address.sixtofour


class GuardedResolver(AbstractResolver):
    """Resolves host names to allowed addresses, or raises `AddressForbidden`."""

    def __init__(
        self,
        *,
        allow_private: bool = False,
        allow_loopback: bool = False,
        setting: str = "POSTROOM_WEBHOOK_ALLOW_PRIVATE",
    ) -> None:
        self._allow_private, self._allow_loopback, self._setting = allow_private, allow_loopback, setting

    def check_host(self, host: str) -> None:
        """Check a host written as an address, which is never resolved."""
        address = parse_literal(host)
        if address is None or is_public(address):
            return
        if _is_never(address):
            raise AddressForbidden(str(address), None)
        if not (self._allow_private or (self._allow_loopback and address.is_loopback)):
            raise AddressForbidden(str(address), self._setting)

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        loop = asyncio.get_running_loop()
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, family=family, flags=socket.AI_ADDRCONFIG)
        return [self._judged(host, port, entry) for entry in found]

    async def close(self) -> None:
        """Do nothing; no resource is held."""

    def _judged(self, host: str, port: int, entry: tuple[Any, ...]) -> ResolveResult:
        family, _type, proto, _name, sockaddr = entry
        address = str(sockaddr[0])
        self.check_host(address)
        return ResolveResult(
            hostname=host,
            host=address.partition("%")[0],
            port=port,
            family=family,
            proto=proto,
            flags=socket.AI_NUMERICHOST | socket.AI_NUMERICSERV,
        )
