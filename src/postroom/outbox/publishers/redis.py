"""Events in a Redis or Valkey stream per topic: `XADD <prefix>:<topic> MAXLEN ~ <length> * id … type … body …`.

A batch is one transaction on the server: all of it is in the stream, in order, or nothing. If the reply is lost the
batch is repeated, so readers should recognise a message by its `id`. The stream is trimmed to about its configured
length; a reader that falls further behind loses messages, and a reset of the publisher publishes them again.
"""

from datetime import timedelta
from typing import Any

from redis.exceptions import RedisError

from postroom.outbox.errors import PublishFailed
from postroom.outbox.publisher import Batch, Encode, encode_json
from postroom.runtime.redis import open_redis

PREFIX = "postroom:events"
LENGTH = 100_000  # entries of a stream, trimmed approximately; about 100 MB at 1 kB each
PATIENCE = timedelta(seconds=10)
"""Timeout of one request; well below the publish timeout of a relay, one minute, so that its error names Redis."""


class RedisPublisher:
    """One connection pool for all topics."""

    name = "redis"
    is_local = False

    def __init__(
        self, url: str, *, length: int = LENGTH, patience: timedelta = PATIENCE, encode: Encode = encode_json
    ) -> None:
        self._length, self._encode = length, encode
        patience_s = patience.total_seconds()
        self._client: Any = open_redis(
            url, protocol=2, socket_timeout=patience_s, socket_connect_timeout=patience_s / 2
        )

    async def publish(self, batch: Batch) -> None:
        stream = f"{PREFIX}:{batch.topic}"
        pipeline = self._client.pipeline(transaction=True)
        for message in batch.messages:
            fields = {"id": message.id, "type": message.type, "body": self._encode(message)}
            pipeline.xadd(stream, fields, maxlen=self._length, approximate=True)
        try:
            await pipeline.execute()
        except (RedisError, OSError) as error:
            raise PublishFailed(f"Redis: {type(error).__name__}: {error}") from error

    async def close(self) -> None:
        await self._client.aclose()
