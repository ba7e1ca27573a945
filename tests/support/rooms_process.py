"""A process that moves a room and can kill itself: `python -m tests.support.rooms_process '{…}'`.

With `die_at` it kills itself with SIGKILL at that step; otherwise it exits 0 when the room has moved.
"""

import asyncio
import sys
from dataclasses import dataclass

import msgspec
from tests.support.doom import Doom

from postroom.embedded import binaries
from postroom.rooms.moving import move_room
from postroom.rooms.service import open_servers
from postroom.settings import Settings


@dataclass(frozen=True)
class Orders:
    """The task of the process."""

    servers: tuple[tuple[str, str], ...]
    name: str
    to: str
    die_at: str | None = None

    def encode(self) -> str:
        return msgspec.json.encode(self).decode()


async def work(orders: Orders) -> None:
    binaries.VERSION_TIMEOUT_S = 60
    async with open_servers(Settings(servers=orders.servers)) as servers:
        await move_room(servers, orders.name, to=orders.to, actor="cli:tests", signal=Doom(orders.die_at))


if __name__ == "__main__":
    asyncio.run(work(msgspec.json.decode(sys.argv[1], type=Orders)))
