"""Commands from a Redis or Valkey stream: `mail:delivery_commands`, a consumer group, any number of consumers."""

from postroom.intake.redis.source import RedisOptions, RedisSource

__all__ = ["RedisOptions", "RedisSource"]
