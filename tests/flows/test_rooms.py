"""Two rooms in one database: neither sees, claims, wakes or lists what belongs to the other."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from tests.support.builders import Recording, a_checked_mail, a_mail, a_worker, accepted, claimed

from postroom.db.migrate import migrate
from postroom.db.room import Room, open_room
from postroom.delivery import service
from postroom.delivery.errors import DeliveryNotFound
from postroom.delivery.filter import DeliveryFilter
from postroom.delivery.model import Lane
from postroom.settings import Settings


@pytest.fixture
async def annex(room: Room) -> AsyncIterator[Room]:
    """A second room beside the first."""
    await migrate(room.direct_url, "annex")
    async with open_room(Settings(database_url=room.direct_url, schema="annex")) as opened:
        yield opened


async def test_a_delivery_is_in_the_room_that_accepted_it(room: Room, annex: Room) -> None:
    """The other room cannot find it or list it."""
    [delivery] = await accepted(room.pool)
    assert [line.id for line in (await service.list_deliveries(room.pool, DeliveryFilter()))[0]] == [delivery]
    assert await service.list_deliveries(annex.pool, DeliveryFilter()) == ([], None)
    with pytest.raises(DeliveryNotFound):
        await service.get_delivery(annex.pool, delivery)


async def test_a_key_belongs_to_its_room(room: Room, annex: Room) -> None:
    """The same source and key mean different deliveries in different rooms."""
    await accepted(room.pool, a_mail(idempotency_key="k"))
    async with annex.pool.acquire() as connection:
        answer = await service.accept(connection, a_checked_mail(idempotency_key="k", text="Other."))
    assert not answer.replayed


async def test_a_worker_sends_for_its_room_only(room: Room, annex: Room) -> None:
    """A worker does not claim deliveries of another room."""
    await accepted(room.pool, a_mail("here@example.org"))
    await accepted(annex.pool, a_mail("there@example.org"))
    transport = Recording()
    await a_worker(annex.pool, transport).run_once(Lane.TRANSACTIONAL)
    assert [envelope.recipients for envelope in transport.envelopes] == [("there@example.org",)]
    assert len(await claimed(room.pool)) == 1


async def test_a_bell_rings_in_its_room_only(room: Room, annex: Room) -> None:
    """A notification wakes only idle workers of its own room."""
    heard: asyncio.Queue[str] = asyncio.Queue()
    async with annex.listener.hearing("annex_deliveries", heard.put_nowait):
        assert await asyncio.wait_for(heard.get(), 60) == ""
        for each in (room, annex):
            async with each.pool.acquire() as connection:
                await connection.execute("INSERT INTO workers (pid, host, asleep) VALUES (1, 'test', '{bulk,auth}')")
        await accepted(room.pool, a_mail(lane=Lane.BULK))
        await accepted(annex.pool, a_mail(lane=Lane.AUTH))
        assert await asyncio.wait_for(heard.get(), 60) == "auth"


async def test_one_connection_can_serve_two_rooms(room: Room, annex: Room) -> None:
    """An application names the room with each call, in one transaction of its own."""
    async with room.pool.acquire() as connection, connection.transaction():
        first = await service.accept_from_application(connection, a_checked_mail("a@example.org"), room="postroom")
        second = await service.accept_from_application(connection, a_checked_mail("b@example.org"), room="annex")
    assert (await service.get_delivery(room.pool, first)).recipients[0].address == "a@example.org"
    assert (await service.get_delivery(annex.pool, second)).recipients[0].address == "b@example.org"
