"""The seam to streams: where commands come from, and how one says that they are safe.

A source hands out entries and keeps them until they are acknowledged; what is not acknowledged it hands out again, to
this consumer or another. That is all the safety a stream has to give: the rest is done by idempotency keys.
"""

from collections.abc import Sequence
from enum import StrEnum
from typing import Protocol

from postroom.errors import SettingInvalid
from postroom.intake.model import StreamEntry
from postroom.settings import Settings


class StreamKind(StrEnum):
    """The servers that streams live on."""

    REDIS = "redis"
    NATS = "nats"


class StreamSource(Protocol):
    """Entries of one stream, for one consumer of a group."""

    @property
    def interruptions(self) -> tuple[type[Exception], ...]:
        """Errors that mean that the server is away or busy: the consumer retries."""

    async def fetch(self) -> Sequence[StreamEntry]:
        """The next entries; waits a moment for some, and returns none if there are none."""

    async def acknowledge(self, entries: Sequence[StreamEntry]) -> None:
        """Say that these are committed."""

    async def give_back(self, entries: Sequence[StreamEntry]) -> None:
        """Say that these are not committed and are to be handed out again."""

    async def close(self) -> None:
        """Leave; what is not acknowledged goes to others."""


def open_sources(settings: Settings) -> list[StreamSource]:
    """A source for each stream that the settings name."""
    named = ((StreamKind.REDIS, settings.redis_url), (StreamKind.NATS, settings.nats_url))
    return [open_source(kind, settings) for kind, url in named if url is not None]


def open_source(kind: StreamKind, settings: Settings) -> StreamSource:
    """One more consumer of a stream. `SettingInvalid` names the variable that is missing."""
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
