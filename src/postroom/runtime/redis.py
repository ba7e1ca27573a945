"""Clients of Redis and Valkey by URL, also where the primary can change.

| URL                                                        | connects to                                         |
|------------------------------------------------------------|-----------------------------------------------------|
| `redis://host:6379/0`, `rediss://…`, `unix:///path`        | this server                                         |
| `redis://a:6379,b:6379/0`                                  | the first of these that says it is the primary      |
| `redis+sentinel://a:26379,b:26379/name/0`                  | the primary that Sentinel has under this name       |

`rediss` and `rediss+sentinel` use TLS. User name and password are those of the data servers; `?sentinel_password=` is
the password of the Sentinels. A connection to a server that became a replica is closed, and the next one finds the
new primary.
"""

from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import redis.asyncio
from redis.asyncio.connection import Connection, ConnectionPool, SSLConnection
from redis.asyncio.sentinel import Sentinel
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import ReadOnlyError

REDIS_PORT, SENTINEL_PORT = 6379, 26379  # the defaults of their servers

Address = tuple[str, int]


def open_redis(url: str, **options: Any) -> Any:
    """A client whose connections go to the primary. `options` go to redis-py."""
    parts = urlsplit(url)
    if parts.scheme.endswith("+sentinel"):
        return _through_sentinel(url, options)
    if "," not in parts.netloc:
        return redis.asyncio.Redis.from_url(url, **options)
    database = parts.path.strip("/")
    pool = ConnectionPool(
        connection_class=_PrimaryTls if parts.scheme == "rediss" else _Primary,
        addresses=_addresses(parts.netloc, REDIS_PORT),
        db=int(database or 0),
        **_login(parts.netloc),
        **options,
    )
    return redis.asyncio.Redis.from_pool(pool)


def _through_sentinel(url: str, options: dict[str, Any]) -> Any:
    parts = urlsplit(url)
    name, _, database = parts.path.strip("/").partition("/")
    password = parse_qs(parts.query).get("sentinel_password", [None])[0]
    patience = {key: value for key, value in options.items() if key.startswith("socket_")}
    sentinel = Sentinel(  # type: ignore[no-untyped-call] # redis-py has no types here
        _addresses(parts.netloc, SENTINEL_PORT),
        sentinel_kwargs={**patience, **({"password": password} if password else {})},
        ssl=parts.scheme.startswith("rediss"),
        db=int(database or 0),
        **_login(parts.netloc),
        **options,
    )
    client = sentinel.master_for(name, redis_class=_SentinelClient)
    client.sentinel = sentinel
    return client


def _addresses(netloc: str, port: int) -> list[Address]:
    found = []
    for each in netloc.rpartition("@")[2].split(","):
        one = urlsplit(f"//{each}")
        found.append((one.hostname or "localhost", one.port or port))
    return found


def _login(netloc: str) -> dict[str, Any]:
    user, _, password = netloc.rpartition("@")[0].partition(":")
    given = {"username": unquote(user), "password": unquote(password)}
    return {name: value for name, value in given.items() if value}


class _SentinelClient(redis.asyncio.Redis):
    """A client that closes its connections to the Sentinels too."""

    sentinel: Any

    async def aclose(self, close_connection_pool: bool | None = None) -> None:  # noqa: FBT001 - the library's own
        await super().aclose(close_connection_pool)
        for each in self.sentinel.sentinels:
            await each.aclose()


class _Primary(Connection):
    """A connection to the one of several servers that is the primary."""

    def __init__(self, *, addresses: list[Address], **options: Any) -> None:
        self._addresses = addresses
        super().__init__(**options)

    async def connect(self) -> None:
        if self.is_connected:
            return
        failed: Exception | None = None
        for host, port in self._addresses:
            self.host, self.port = host, port
            try:
                await super().connect()  # type: ignore[no-untyped-call] # redis-py has no types here
                await self.send_command("ROLE")
                if (await self.read_response())[0] in (b"master", "master"):
                    return
            except (RedisConnectionError, OSError) as error:
                failed = error
            await self.disconnect()
        raise RedisConnectionError("None of the servers is the primary.") from failed

    async def read_response(self, *arguments: Any, **options: Any) -> Any:
        try:
            return await super().read_response(*arguments, **options)
        except ReadOnlyError:
            await self.disconnect()
            raise RedisConnectionError("The server has become a replica.") from None


class _PrimaryTls(_Primary, SSLConnection):
    """The same under TLS."""
