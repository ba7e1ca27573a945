"""A Redis or Valkey stream as a source of commands.

Entries are read through a consumer group. Each process is a consumer with a name of its own; what a dead one held is
claimed by the others once it has been idle for a while. Acknowledged entries are deleted as long as no other group
reads the stream, because nobody else would ever make room; whether one does is asked in the same step. The group is
made when it is missing, from the beginning of the stream: a server that lost its memory is simply read from the start,
and keys recognise what came before.
"""

import os
import secrets
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import redis.exceptions
import structlog
from redis.exceptions import ResponseError

from postroom.intake.command import pack_fields
from postroom.intake.model import StreamEntry
from postroom.runtime.redis import open_redis

STREAM = "mail:delivery_commands"
GROUP = "postroom"

# One step for the server: a group that is made meanwhile either stops the deletion or comes after it.
_ACKNOWLEDGE = """
redis.call('XACK', KEYS[1], ARGV[1], unpack(ARGV, 2))
local groups = redis.pcall('XINFO', 'GROUPS', KEYS[1])
if groups.err == nil and #groups == 1 then
    redis.call('XDEL', KEYS[1], unpack(ARGV, 2))
end
"""

_log = structlog.get_logger()


def consumer_name() -> str:
    """A name no other consumer has, and that says where to look for it."""
    return f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(3)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class RedisOptions:
    """How a stream is read."""

    stream: str = STREAM
    group: str = GROUP
    consumer: str = field(default_factory=consumer_name)
    batch: int = 200
    block: timedelta = timedelta(seconds=1)  # how long a read waits for something new
    claim_after: timedelta = timedelta(seconds=60)  # idle this long, an entry's consumer is taken for dead
    forget_after: timedelta = timedelta(hours=1)  # idle this long and holding nothing, a consumer is struck off


class RedisSource:
    """Reads one stream for one consumer of its group."""

    interruptions = (redis.exceptions.RedisError,)

    def __init__(
        self, url: str, options: RedisOptions | None = None, *, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._options = options or RedisOptions()
        patience_s = self._options.block.total_seconds() + 10
        self._client: Any = open_redis(url, protocol=2, socket_timeout=patience_s, socket_connect_timeout=5)
        self._acknowledge: Any = self._client.register_script(_ACKNOWLEDGE)
        self._monotonic = monotonic
        self._is_ready = False  # the group is known to exist
        self._holds_some = True  # entries may have been handed to us that we did not acknowledge
        self._claim_at = 0.0

    async def fetch(self) -> Sequence[StreamEntry]:
        """What we hold, then what the dead held, then what is new."""
        try:
            if not self._is_ready:
                await self._prepare()
            return await self._held() or await self._abandoned() or await self._new()
        except ResponseError as error:
            if not str(error).startswith("NOGROUP"):
                raise
            self._is_ready = False  # the server lost its memory, or somebody deleted the stream
            return []

    async def acknowledge(self, entries: Sequence[StreamEntry]) -> None:
        ids = [_id_of(entry) for entry in entries]
        await self._acknowledge(keys=[self._options.stream], args=[self._options.group, *ids])

    async def give_back(self, entries: Sequence[StreamEntry]) -> None:  # noqa: ARG002 - the server knows which they are
        """They are still ours; the next fetch begins with them."""
        self._holds_some = True

    async def close(self) -> None:
        options = self._options
        with suppress(redis.exceptions.RedisError, OSError):
            held = await self._client.xpending_range(
                options.stream, options.group, min="-", max="+", count=1, consumername=options.consumer
            )
            if not held:  # striking off a consumer would strike off what it holds
                await self._client.xgroup_delconsumer(options.stream, options.group, options.consumer)
        await self._client.aclose()

    async def _prepare(self) -> None:
        options = self._options
        try:
            await self._client.xgroup_create(options.stream, options.group, id="0", mkstream=True)
        except ResponseError as error:
            if not str(error).startswith("BUSYGROUP"):
                raise
        self._is_ready, self._holds_some, self._claim_at = True, True, 0.0

    async def _held(self) -> list[StreamEntry]:
        if not self._holds_some:
            return []
        entries = await self._read("0")
        self._holds_some = bool(entries)
        return entries

    async def _new(self) -> list[StreamEntry]:
        return await self._read(">", block=max(1, int(self._options.block.total_seconds() * 1000)))

    async def _read(self, position: str, *, block: int | None = None) -> list[StreamEntry]:
        options = self._options
        answer = await self._client.xreadgroup(
            options.group, options.consumer, {options.stream: position}, count=options.batch, block=block
        )
        return await self._entries(answer[0][1] if answer else [])

    async def _abandoned(self) -> list[StreamEntry]:
        """Take over what dead consumers held; looked for now and then, and again at once while there is some."""
        if self._monotonic() < self._claim_at:
            return []
        options = self._options
        idle_ms = int(options.claim_after.total_seconds() * 1000)
        claimed = await self._client.xautoclaim(
            options.stream, options.group, options.consumer, min_idle_time=idle_ms, count=options.batch
        )
        entries = await self._entries(claimed[1])
        if entries:
            _log.warning("commands_taken_over", entries=len(entries))
        else:
            self._claim_at = self._monotonic() + options.claim_after.total_seconds() / 2
            await self._forget_the_gone()
        return entries

    async def _forget_the_gone(self) -> None:
        """Strike off consumers that nobody has heard of for long."""
        options = self._options
        for consumer in await self._client.xinfo_consumers(options.stream, options.group):
            idle = timedelta(milliseconds=consumer["idle"])
            if consumer["pending"] == 0 and idle > options.forget_after:
                await self._client.xgroup_delconsumer(options.stream, options.group, consumer["name"])

    async def _entries(self, found: Sequence[tuple[bytes, Mapping[bytes, bytes] | None]]) -> list[StreamEntry]:
        gone = [entry_id for entry_id, fields in found if not fields]
        if gone:  # deleted by hand while somebody held them: there is nothing left to do
            await self._client.xack(self._options.stream, self._options.group, *gone)
        return [
            StreamEntry(f"redis {self._options.stream} {entry_id.decode()}", pack_fields(fields), "redis")
            for entry_id, fields in found
            if fields
        ]


def _id_of(entry: StreamEntry) -> str:
    return entry.place.rpartition(" ")[2]
