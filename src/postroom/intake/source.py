"""The interface to streams of commands: fetch, acknowledge, give back.

A source delivers entries and keeps them until they are acknowledged; unacknowledged entries are redelivered to this
consumer or another (at least once). Idempotency keys remove the duplicates.
"""

from collections.abc import Sequence
from enum import StrEnum
from typing import Protocol

from postroom.errors import SettingInvalid
from postroom.intake.model import StreamEntry
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


def open_sources(settings: Settings) -> list[StreamSource]:
    """Open a source for each stream in the settings."""
    named = ((StreamKind.REDIS, settings.redis_url), (StreamKind.NATS, settings.nats_url))
    return [open_source(kind, settings) for kind, url in named if url is not None]


def open_source(kind: StreamKind, settings: Settings) -> StreamSource:
    """Open one consumer of a stream. `SettingInvalid` names a missing variable."""
    return _open_redis(settings.redis_url) if kind is StreamKind.REDIS else _open_nats(settings)


def _open_redis(url: str | None) -> StreamSource:
    if url is None:
        raise SettingInvalid("POSTROOM_REDIS_URL", "is required to read commands from Redis or Valkey")
    try:
        from postroom.intake.redis import RedisSource
    except ImportError:
        raise SettingInvalid("POSTROOM_REDIS_URL", "needs the client: pip install 'postroom[redis]'") from None
    return RedisSource(url)


def _open_nats(settings: Settings) -> StreamSource:
    if settings.nats_url is None:
        raise SettingInvalid("POSTROOM_NATS_URL", "is required to read commands from NATS JetStream")
    try:
        from postroom.intake.nats import NatsOptions, NatsSource
    except ImportError:
        raise SettingInvalid("POSTROOM_NATS_URL", "needs the client: pip install 'postroom[nats]'") from None
    return NatsSource(settings.nats_url, NatsOptions(replicas=settings.nats_replicas))
