"""A Redis or Valkey stream as a source of commands.

Entries are read through a consumer group. Each process is a consumer with its own name; the others claim the entries of
a dead consumer after an idle time. Acknowledged entries are deleted if no other group reads the stream, because nothing
else trims it; the script checks the groups in the same step. A missing group is created at the beginning of the
stream: after a server lost its data the stream is read from the start, and idempotency keys recognise repetitions.
"""

import os
import secrets
import socket
import time
from collections.abc import Mapping, Sequence
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

# One atomic script: a group created concurrently either prevents the deletion or starts after it.
_ACKNOWLEDGE = """
redis.call('XACK', KEYS[1], ARGV[1], unpack(ARGV, 2))
local groups = redis.pcall('XINFO', 'GROUPS', KEYS[1])
if groups.err == nil and #groups == 1 then
    redis.call('XDEL', KEYS[1], unpack(ARGV, 2))
end
"""

_log = structlog.get_logger()


def stream_of(room: str) -> str:
    """The stream of one of many rooms."""
    return f"{STREAM}:{room}"


def consumer_name() -> str:
    """A unique consumer name that shows the host and the process."""
    return f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(3)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class RedisOptions:
    """Options of the consumer of a stream."""

    stream: str = STREAM
    group: str = GROUP
    consumer: str = field(default_factory=consumer_name)
    batch: int = 200  # one transaction accepts them, and a crash repeats at most these
    block: timedelta = timedelta(seconds=1)  # timeout of a read without new entries
    claim_after: timedelta = timedelta(seconds=60)  # idle time after which an entry is claimed from its consumer
    forget_after: timedelta = timedelta(hours=1)  # idle time after which a consumer without entries is deleted


class RedisSource:
    """Reads one stream for one consumer of its group."""

    interruptions = (redis.exceptions.RedisError,)

    def __init__(self, url: str, options: RedisOptions | None = None) -> None:
        self._options = options or RedisOptions()
        patience_s = self._options.block.total_seconds() + 10
        self._client: Any = open_redis(url, protocol=2, socket_timeout=patience_s, socket_connect_timeout=5)
        self._acknowledge: Any = self._client.register_script(_ACKNOWLEDGE)
        self._is_ready = False  # the group is known to exist
        self._holds_some = True  # this consumer may have unacknowledged entries
        self._claim_at = 0.0

    async def fetch(self) -> Sequence[StreamEntry]:
        """Read our unacknowledged entries, then those of dead consumers, then new ones."""
        try:
            if not self._is_ready:
                await self._prepare()
            return await self._held() or await self._abandoned() or await self._new()
        except ResponseError as error:
            if not str(error).startswith("NOGROUP"):
                raise
            self._is_ready = False  # the server lost its data, or the stream was deleted
            return []

    async def acknowledge(self, entries: Sequence[StreamEntry]) -> None:
        ids = [_id_of(entry) for entry in entries]
        await self._acknowledge(keys=[self._options.stream], args=[self._options.group, *ids])

    async def give_back(self, entries: Sequence[StreamEntry]) -> None:  # noqa: ARG002 - the server knows the unacknowledged entries
        """Keep the entries pending; the next fetch reads them first."""
        self._holds_some = True

    async def close(self) -> None:
        options = self._options
        with suppress(redis.exceptions.RedisError, OSError):
            held = await self._client.xpending_range(
                options.stream, options.group, min="-", max="+", count=1, consumername=options.consumer
            )
            if not held:  # deleting a consumer would delete its pending entries
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
        """Claim entries of dead consumers; checked at intervals, and again at once while there are some."""
        if time.monotonic() < self._claim_at:
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
            self._claim_at = time.monotonic() + options.claim_after.total_seconds() / 2
            await self._forget_the_gone()
        return entries

    async def _forget_the_gone(self) -> None:
        """Delete consumers that have been idle for long and have no pending entries."""
        options = self._options
        for consumer in await self._client.xinfo_consumers(options.stream, options.group):
            idle = timedelta(milliseconds=consumer["idle"])
            if consumer["pending"] == 0 and idle > options.forget_after:
                await self._client.xgroup_delconsumer(options.stream, options.group, consumer["name"])

    async def _entries(self, found: Sequence[tuple[bytes, Mapping[bytes, bytes] | None]]) -> list[StreamEntry]:
        gone = [entry_id for entry_id, fields in found if not fields]
        if gone:  # entries deleted by an operator while pending have no fields; skip them
            await self._client.xack(self._options.stream, self._options.group, *gone)
        return [
            StreamEntry(f"redis {self._options.stream} {entry_id.decode()}", pack_fields(fields), "redis")
            for entry_id, fields in found
            if fields
        ]


def _id_of(entry: StreamEntry) -> str:
    return entry.place.rpartition(" ")[2]
