"""Hosts of their own on one machine: network namespaces, joined by links that can be cut.

Each host has two links to this namespace, one to the address of the database and one to that of the mail server, so
that a host can lose one of them or both. Both addresses are on loopback of this namespace. Needs root and `ip`.
"""

import asyncio
import os
import shutil
from collections.abc import Sequence
from enum import StrEnum
from itertools import product
from types import TracebackType
from typing import Self

HOSTS = ("a", "b")


class NamespacesDenied(Exception):  # noqa: N818 - read as a sentence
    """Network namespaces are not permitted on this machine."""


class Link(StrEnum):
    """A link of a host."""

    DATABASE = "d"
    MAIL = "m"


class TwoHosts:
    """Two namespaces with two links each. Names and addresses are derived from the process id, so that runs coexist."""

    def __init__(self) -> None:
        block = os.getpid() % 16_384
        self._network = f"10.{192 + (block >> 8)}.{block & 255}"
        self._prefix = f"pr{os.getpid() % 10_000_000}"
        self.addresses = {Link.DATABASE: f"{self._network}.241", Link.MAIL: f"{self._network}.242"}

    @property
    def network(self) -> str:
        """The addresses of both hosts and both links."""
        return f"{self._network}.0/24"

    async def __aenter__(self) -> Self:
        try:
            await self._make()
        except NamespacesDenied:
            await self._remove()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._remove()

    def inside(self, host: str) -> list[str]:
        """The words before a command that make it run on a host."""
        return ["ip", "netns", "exec", self._namespace(host)]

    async def cut(self, host: str, links: Sequence[Link] = tuple(Link)) -> None:
        """Pull out cables: packets are lost, and connections stay open and silent."""
        for link in links:
            await _ip("link", "set", self._end(host, link), "down")

    async def join(self, host: str, links: Sequence[Link] = tuple(Link)) -> None:
        """Put cables back."""
        for link in links:
            await _ip("link", "set", self._end(host, link), "up")

    async def _make(self) -> None:
        if shutil.which("ip") is None:
            raise NamespacesDenied("the program ip (iproute2) is not installed")
        for address in self.addresses.values():
            await _ip("address", "add", f"{address}/32", "dev", "lo")
        for number, host in enumerate(HOSTS):
            await _ip("netns", "add", self._namespace(host))
            await _ip("-n", self._namespace(host), "link", "set", "lo", "up")
            for place, link in enumerate(Link):
                await self._connect(host, link, first=16 * number + 4 * place)

    async def _connect(self, host: str, link: Link, *, first: int) -> None:
        here, there = self._end(host, link), f"eth{link}"
        gateway, own = f"{self._network}.{first + 1}", f"{self._network}.{first + 2}"
        inside = ("-n", self._namespace(host))
        await _ip("link", "add", here, "type", "veth", "peer", "name", there, "netns", self._namespace(host))
        await _ip("address", "add", f"{gateway}/30", "dev", here)
        await _ip("link", "set", here, "up")
        await _ip(*inside, "address", "add", f"{own}/30", "dev", there)
        await _ip(*inside, "link", "set", there, "up")
        await _ip(*inside, "route", "add", f"{self.addresses[link]}/32", "via", gateway, "dev", there)

    async def _remove(self) -> None:
        """Delete everything; parts that were not made are skipped.

        Unsent data of a cut host keeps its namespace for minutes, and the links with it, so those are deleted apart:
        the next test of this process uses their names.
        """
        for host, link in product(HOSTS, Link):
            await _run("ip", "link", "delete", self._end(host, link))
        for host in HOSTS:
            await _run("ip", "netns", "delete", self._namespace(host))
        for address in self.addresses.values():
            await _run("ip", "address", "delete", f"{address}/32", "dev", "lo")

    def _namespace(self, host: str) -> str:
        return f"{self._prefix}{host}"

    def _end(self, host: str, link: Link) -> str:
        """The end of a link in this namespace; a name has at most fifteen characters."""
        return f"{self._prefix}{host}{link}"


async def _ip(*arguments: str) -> None:
    code, said = await _run("ip", *arguments)
    if code:
        raise NamespacesDenied(f"ip {' '.join(arguments)}: {said.strip()}")


async def _run(*command: str) -> tuple[int, str]:
    process = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    said, _ = await process.communicate()
    return process.returncode or 0, said.decode()
