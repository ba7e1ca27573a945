"""A worker of many rooms reads the commands of each from a stream or subject with the name of the room."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest
from tests.conftest import TestServer
from tests.support.intake import flat, raw
from tests.support.outbox import until
from tests.support.rooms import fetch_value, servers_with
from tests.support.streams import be_patient_with_nats, nats_server, valkey

from postroom.app import run_fleet
from postroom.settings import Settings

ROOMS = ("tenant_a", "tenant_b")
Publish = Callable[[str, str], Awaitable[None]]
Waiting = Callable[[], Awaitable[int]]


@asynccontextmanager
async def in_valkey() -> AsyncIterator[tuple[dict[str, str], Publish, Waiting]]:
    import redis.asyncio

    async with valkey() as server:
        client = redis.asyncio.Redis.from_url(server.url)

        async def publish(room: str, key: str) -> None:
            await client.xadd(f"mail:delivery_commands:{room}", flat(idempotency_key=key))

        async def waiting() -> int:
            return sum([await client.xlen(f"mail:delivery_commands:{room}") for room in ROOMS])

        yield {"redis_url": server.url}, publish, waiting
        await client.aclose()


@asynccontextmanager
async def in_nats() -> AsyncIterator[tuple[dict[str, str], Publish, Waiting]]:
    import nats

    async with nats_server() as server:
        connection = await nats.connect(server.url)
        stream = connection.jetstream()
        # As the worker creates it; a program that publishes before the first worker needs the stream.
        await stream.add_stream(name="commands", subjects=["mail.delivery_commands.*"], retention="workqueue")

        async def publish(room: str, key: str) -> None:
            await stream.publish(f"mail.delivery_commands.{room}", raw(idempotency_key=key))

        async def waiting() -> int:
            return int((await stream.stream_info("commands")).state.messages)

        yield {"nats_url": server.url}, publish, waiting
        await connection.close()


@asynccontextmanager
async def working(settings: Settings) -> AsyncIterator[None]:
    stop = asyncio.Event()
    task = asyncio.create_task(run_fleet(settings, "tenant_*", stop=stop, ready=lambda: None))
    try:
        yield
    finally:
        stop.set()
        await task


@pytest.mark.parametrize("opened", [in_valkey, in_nats])
async def test_a_command_wakes_its_room_and_is_sent_there(
    server: TestServer, monkeypatch: pytest.MonkeyPatch, opened: Callable[[], AsyncIterator[object]]
) -> None:
    """Commands from before the start and from later reach the room of their stream, on whichever server it is."""
    be_patient_with_nats(monkeypatch)
    monkeypatch.setattr("postroom.intake.nats.source.ANSWER_S", 60)
    async with servers_with(server, *ROOMS, working=True) as found, opened() as (urls, publish, waiting):  # type: ignore[attr-defined]
        settings = replace(found, transport="capture", **urls)
        addresses = dict(zip(ROOMS, (url for _, url in settings.servers), strict=True))
        await publish("tenant_b", "early")
        async with working(settings):
            await until(lambda: _has_sent(addresses["tenant_b"], "tenant_b", "early"))
            await publish("tenant_a", "late")
            await until(lambda: _has_sent(addresses["tenant_a"], "tenant_a", "late"))
            await until(lambda: _is_empty(waiting))
        for room, url in addresses.items():
            assert await fetch_value(url, f"SELECT count(*) FROM {room}.deliveries") == 1


async def _has_sent(url: str, room: str, key: str) -> bool:
    sent = f"""
        SELECT count(*) = 1
        FROM {room}.deliveries
        JOIN {room}.inbox_messages ON delivery_id = deliveries.id
        WHERE idempotency_key = $1
    """
    return bool(await fetch_value(url, sent, key))


async def _is_empty(waiting: Waiting) -> bool:
    return not await waiting()


async def test_a_watch_of_nats_creates_the_stream() -> None:
    """Programs can publish before a room has ever been awake; the classic subject is not part of it."""
    import nats

    from postroom.intake.nats import NatsWatch

    async with nats_server() as server:
        watch = NatsWatch(server.url)
        assert await watch.rooms_with_commands(ROOMS) == set()
        connection = await nats.connect(server.url)
        await connection.jetstream().publish("mail.delivery_commands.tenant_a", b"{}")
        await connection.jetstream().publish("mail.delivery_commands.tenant_c", b"{}")
        assert await watch.rooms_with_commands(ROOMS) == {"tenant_a"}
        await connection.close()
        await watch.close()
