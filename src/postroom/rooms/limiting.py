"""Set and read the limits of a room, wherever it is."""

from collections.abc import Mapping, Sequence
from typing import Any

from postroom.db.pool import open_pool
from postroom.limits.model import ROOM, SENT, MailLimits, Use
from postroom.limits.service import get_room_limits, read_use, set_room_limits
from postroom.rooms.lifecycle import find_room
from postroom.rooms.service import Server, server_named


async def limit_room(
    servers: Sequence[Server], name: str, changes: Mapping[str, Any], *, server: str | None, actor: str
) -> tuple[MailLimits, list[Use]]:
    """Change limits of a room, if there are changes; returns all of them, and their use today."""
    room = await find_room(servers, name, server=server)
    async with await open_pool(server_named(servers, room.server).url, name, size=1) as pool:
        limits = await (set_room_limits(pool, changes, actor=actor) if changes else get_room_limits(pool))
        return limits, list((await read_use(pool, [ROOM, SENT])).values())
