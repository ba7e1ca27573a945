"""Redis by several addresses and through Sentinel, with real servers and a real failover."""

import asyncio
import contextlib
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.patience import PATIENCE_S
from tests.support.ports import free_port
from tests.support.streams import StreamServer, _start, valkey_binary

from postroom.errors import SettingInvalid
from postroom.settings import read_settings

OPTIONS: dict[str, Any] = {"protocol": 2, "socket_timeout": PATIENCE_S, "socket_connect_timeout": PATIENCE_S}


async def start(port: int, directory: Path, *options: str) -> StreamServer:
    command = [valkey_binary(), "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", str(directory)]
    process, drain = await _start([*command, *options], "Ready to accept connections")
    return StreamServer(f"redis://127.0.0.1:{port}", process, drain)


@contextlib.asynccontextmanager
async def pair() -> AsyncIterator[tuple[StreamServer, StreamServer, Path]]:
    """A primary and its replica, which has caught up."""
    import redis.asyncio

    with tempfile.TemporaryDirectory() as folder:
        first = await start(free_port(), Path(folder))
        port = first.url.rpartition(":")[2]
        second = await start(free_port(), Path(folder), "--replicaof", "127.0.0.1", port)
        try:
            async with redis.asyncio.Redis.from_url(second.url, **OPTIONS) as replica, asyncio.timeout(PATIENCE_S):
                asked: Any = replica
                while (await asked.execute_command("ROLE"))[3] != b"connected":
                    pass
            yield first, second, Path(folder)
        finally:
            await first.kill()
            await second.kill()


async def test_primary_of_several_servers_is_used() -> None:
    """The replica is skipped, and after a failover the same client writes to the new primary."""
    import redis.asyncio

    from postroom.runtime.redis import open_redis

    async with pair() as (first, second, _folder):
        ports = [server.url.rpartition(":")[2] for server in (second, first)]
        client = open_redis(f"redis://127.0.0.1:{ports[0]},127.0.0.1:{ports[1]}/0", **OPTIONS)
        await client.set("a", "1")
        async with redis.asyncio.Redis.from_url(second.url, **OPTIONS) as promoted:
            await promoted.replicaof("NO", "ONE")
        await first.kill()
        async with asyncio.timeout(PATIENCE_S):
            while not await _written(client, "b"):
                pass
        await client.aclose()
        async with redis.asyncio.Redis.from_url(second.url, **OPTIONS) as promoted:
            assert await promoted.get("b") == b"1"


async def _written(client: Any, key: str) -> bool:
    import redis.exceptions

    try:
        await client.set(key, "1")
    except redis.exceptions.RedisError:
        return False
    return True


async def test_sentinel_names_the_primary() -> None:
    """The client queries Sentinel, and follows when Sentinel promotes the replica."""
    import redis.asyncio

    from postroom.runtime.redis import open_redis

    async with pair() as (first, second, folder):
        port, watched = free_port(), first.url.rpartition(":")[2]
        config = folder / "sentinel.conf"
        config.write_text(
            f"port {port}\nbind 127.0.0.1\nsentinel monitor room 127.0.0.1 {watched} 1\n"
            "sentinel down-after-milliseconds room 200\nsentinel failover-timeout room 1000\n"
        )
        process, drain = await _start([valkey_binary(), str(config), "--sentinel"], "+monitor master room")
        sentinel = StreamServer(f"redis://127.0.0.1:{port}", process, drain)
        try:
            client = open_redis(f"redis+sentinel://127.0.0.1:{port}/room/0", **OPTIONS)
            await client.set("a", "1")
            async with redis.asyncio.Redis.from_url(sentinel.url, **OPTIONS) as asked, asyncio.timeout(PATIENCE_S):
                while not await asked.sentinel_slaves("room"):
                    pass
            await first.kill()
            async with asyncio.timeout(PATIENCE_S):
                while not await _written(client, "b"):
                    pass
            await client.aclose()
            async with redis.asyncio.Redis.from_url(second.url, **OPTIONS) as promoted:
                assert await promoted.get("b") == b"1"
        finally:
            await sentinel.kill()


@pytest.mark.parametrize(
    "url", ["redis://a", "rediss://u:p@a:1,b:2/3", "unix:///run/valkey.sock", "redis+sentinel://a:1,b:2/room/0"]
)
def test_valid_redis_urls_are_accepted(url: str) -> None:
    """One server, several, a socket, or Sentinel."""
    assert read_settings({"POSTROOM_REDIS_URL": url}).redis_url == url


@pytest.mark.parametrize("url", ["http://a", "redis+sentinel://a:1", "redis://", "redis://a/room"])
def test_invalid_redis_urls_are_rejected(url: str) -> None:
    """Sentinel needs the name of its primary, a server a number for its database."""
    with pytest.raises(SettingInvalid, match="POSTROOM_REDIS_URL"):
        read_settings({"POSTROOM_REDIS_URL": url})
