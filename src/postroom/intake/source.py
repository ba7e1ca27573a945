"""The interface to streams of commands: fetch, acknowledge, give back.

A source delivers entries and keeps them until they are acknowledged; unacknowledged entries are redelivered to this
consumer or another (at least once). Idempotency keys remove the duplicates.
"""

from collections.abc import Collection, Sequence
from dataclasses import replace
from enum import StrEnum
from typing import Protocol

from postroom.errors import SettingInvalid
from postroom.intake.model import StreamEntry
from postroom.runtime.extra import extra_needed
from postroom.settings import Settings


class StreamKind(StrEnum):
    """The supported stream servers."""

    REDIS = "redis"
    NATS = "nats"


class StreamSource(Protocol):
    """Entries of one stream, for one consumer of a group."""

    @property
    def interruptions(self) -> tuple[type[Exception], ...]:
        """Errors after which the consumer retries: the server is unreachable or busy."""

    async def fetch(self) -> Sequence[StreamEntry]:
        """Fetch the next entries; empty if none arrive within the timeout."""

    async def acknowledge(self, entries: Sequence[StreamEntry]) -> None:
        """Acknowledge committed entries."""

    async def give_back(self, entries: Sequence[StreamEntry]) -> None:
        """Return entries that were not committed, to be redelivered."""

    async def close(self) -> None:
        """Disconnect; unacknowledged entries go to other consumers."""


class CommandWatch(Protocol):
    """Finds the rooms whose streams have commands, without reading them: a room that sleeps has no consumer."""

    @property
    def interruptions(self) -> tuple[type[Exception], ...]:
        """Errors after which the watch goes on: the server is unreachable or busy."""

    async def rooms_with_commands(self, rooms: Collection[str]) -> set[str]:
        """Those of these rooms that have commands; empty if none arrive within a second."""

    async def close(self) -> None:
        """Disconnect."""


def open_sources(settings: Settings) -> list[StreamSource]:
    """Open a source for each stream in the settings."""
    named = ((StreamKind.REDIS, settings.redis_url), (StreamKind.NATS, settings.nats_url))
    return [open_source(kind, settings) for kind, url in named if url is not None]


def open_source(kind: StreamKind, settings: Settings) -> StreamSource:
    """Open one consumer of a stream. `SettingInvalid` names a missing variable."""
    return _open_redis(settings) if kind is StreamKind.REDIS else _open_nats(settings)


def open_watches(settings: Settings) -> list[CommandWatch]:
    """Open a watch of the rooms' streams for each server in the settings."""
    watches: list[CommandWatch] = []
    if settings.redis_url is not None:
        with extra_needed("POSTROOM_REDIS_URL", "redis"):
            from postroom.intake.redis import RedisWatch
        watches.append(RedisWatch(settings.redis_url))
    if settings.nats_url is not None:
        with extra_needed("POSTROOM_NATS_URL", "nats"):
            from postroom.intake.nats import NatsWatch
        watches.append(NatsWatch(settings.nats_url, replicas=settings.nats_replicas))
    return watches


def _open_redis(settings: Settings) -> StreamSource:
    if settings.redis_url is None:
        raise SettingInvalid("POSTROOM_REDIS_URL", "is required to read commands from Redis or Valkey")
    with extra_needed("POSTROOM_REDIS_URL", "redis"):
        from postroom.intake.redis import RedisOptions, RedisSource, stream_of
    options = RedisOptions(stream=stream_of(settings.schema)) if settings.room_commands else RedisOptions()
    return RedisSource(settings.redis_url, options)


def _open_nats(settings: Settings) -> StreamSource:
    if settings.nats_url is None:
        raise SettingInvalid("POSTROOM_NATS_URL", "is required to read commands from NATS JetStream")
    with extra_needed("POSTROOM_NATS_URL", "nats"):
        from postroom.intake.nats import NatsOptions, NatsSource, options_of
    options = options_of(settings.schema) if settings.room_commands else NatsOptions()
    return NatsSource(settings.nats_url, replace(options, replicas=settings.nats_replicas))
