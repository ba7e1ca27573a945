"""Commands from a Redis or Valkey stream: `mail:delivery_commands`, a consumer group, any number of consumers.

Among many rooms each has a stream of its own: `mail:delivery_commands:<room>`.
"""

from postroom.intake.redis.source import RedisOptions, RedisSource, stream_of
from postroom.intake.redis.watch import RedisWatch

__all__ = ["RedisOptions", "RedisSource", "RedisWatch", "stream_of"]
