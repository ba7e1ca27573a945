"""Finds the rooms whose streams in Redis or Valkey have entries."""

from collections.abc import Collection
from typing import Any

import redis.exceptions

from postroom.intake.redis.source import stream_of
from postroom.runtime.redis import open_redis

BLOCK_MS = 1000  # new rooms are watched after this time


class RedisWatch:
    """Waits for entries of many streams by one command.

    Consumers delete the entries that they have acknowledged, so a stream with entries has commands. An entry that
    another group also reads is not deleted by us, and its room stays awake until that group or a trim removes it.
    """

    interruptions = (redis.exceptions.RedisError,)

    def __init__(self, url: str) -> None:
        self._client: Any = open_redis(url, protocol=2, socket_timeout=BLOCK_MS / 1000 + 10, socket_connect_timeout=5)

    async def rooms_with_commands(self, rooms: Collection[str]) -> set[str]:
        streams = {stream_of(room): room for room in rooms}
        if not streams:
            return set()
        found = await self._client.xread(dict.fromkeys(streams, "0"), count=1, block=BLOCK_MS)
        return {streams[name.decode()] for name, _entries in found}

    async def close(self) -> None:
        await self._client.aclose()
