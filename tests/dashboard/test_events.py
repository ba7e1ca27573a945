"""Events and commands: search, one event, the command behind it, and the newest events live."""

import asyncio
from datetime import UTC, datetime

import aiohttp
import msgspec
import pytest
from tests.support.builders import a_mail
from tests.support.dashboard import Guest, dashboard_app, open_guest, text_of, tried
from tests.support.http import served

from postroom.db.room import Room
from postroom.events import Command, Event, EventSession, EventStore


@pytest.fixture
async def guest(room: Room) -> Guest:
    return await open_guest(room)


async def test_events_are_found_by_type_tag_and_time(room: Room, guest: Guest) -> None:
    """Filters combine; facts about deliveries are among the events; invalid filters are explained."""
    assert "No event has been appended yet." in text_of(await guest.get("/events"))
    store = EventStore(room.pool)
    march = datetime(2026, 3, 1, 12, tzinfo=UTC)
    await store.append(Event.of("OrderPlaced", {"total": 12.5}, order=41, region="north"), occurred_at=march)
    await store.append(Event.of("OrderShipped", {}, order=41))
    [delivery_id] = await tried(room.pool, a_mail())
    everything = await guest.get("/events")
    for type_ in ("OrderPlaced", "OrderShipped", "DeliveryAccepted", "DeliverySent"):
        assert type_ in text_of(everything)
    assert f'href="/deliveries/{delivery_id}"'.encode() in everything.body
    assert b'href="/events?tag=order%3D41"' in everything.body

    async def shows(query: str) -> list[str]:
        text = text_of(await guest.get(f"/events?{query}"))
        return [type_ for type_ in ("OrderPlaced", "OrderShipped", "DeliverySent") if f" {type_} " in text]

    assert await shows("type=OrderPlaced") == ["OrderPlaced"]
    assert await shows("type=OrderPlaced&or_type=DeliverySent") == ["OrderPlaced", "DeliverySent"]
    assert await shows("tag=order%3D41") == ["OrderPlaced", "OrderShipped"]
    assert await shows("tag=order%3D41&and_tag=region%3Dnorth") == ["OrderPlaced"]
    assert await shows(f"tag=postroom.delivery%3D{delivery_id}") == ["DeliverySent"]
    assert await shows("from=2026-03-01T11:00&before=2026-03-01T13:00") == ["OrderPlaced"]
    assert await shows("before=2026-03-01T11:00") == []
    for wrong in ("tag=nonsense", "from=yesterday", "cursor=x", "type=" + "x" * 65):
        assert (wrong, (await guest.get(f"/events?{wrong}")).status) == (wrong, 400)


async def test_an_event_shows_its_data_and_its_command(room: Room, guest: Guest) -> None:
    """The data is formatted, the command has request and result, and the transaction lists all its events."""
    store = EventStore(room.pool)

    async def handle(session: EventSession) -> dict[str, int]:
        await session.append([Event.of("OrderPlaced", {"lines": [{"sku": "tea"}]}, order=41), Event.of("Counted")])
        return {"order": 41}

    done = await store.execute(Command("PlaceOrder", "order=41", {"sku": "tea"}, {"user": "ada"}), handle)
    listing = await guest.get("/events?type=OrderPlaced")
    assert done.place is not None
    path = f"/events/{done.transaction_id}/{done.place.position - 1}"
    assert f'href="{path}"'.encode() in listing.body
    event = await guest.get(path)
    assert b"{\n  &quot;lines&quot;: [\n    {\n      &quot;sku&quot;: &quot;tea&quot;" in event.body
    for words in ("Appended by the command PlaceOrder", "order=41", '"user": "ada"', '{ "order": 41 }'):
        assert words in text_of(event)
    commands = await guest.get("/events/commands")
    assert "PlaceOrder order=41" in text_of(commands)
    transaction = text_of(await guest.get(f"/events/transactions/{done.transaction_id}"))
    assert "Command PlaceOrder" in transaction
    assert "OrderPlaced" in transaction
    assert "Counted" in transaction
    for gone in (f"/events/{done.transaction_id}/999999", "/events/transactions/1", "/events/1/x"):
        assert (gone, (await guest.get(gone)).status) == (gone, 404)


async def test_long_data_is_cut(room: Room, guest: Guest) -> None:
    """A page stays below 100 KB, whatever the events hold."""
    store = EventStore(room.pool)
    for _ in range(60):
        last = await store.append(Event.of("Long", {"text": "x" * 50_000}))
    listing = await guest.get("/events")
    event = await guest.get(f"/events/{last.transaction_id}/{last.position}")
    assert "more characters" in text_of(event)
    for page in (listing, event):
        assert len(page.body) < 100_000
    assert b'rel="next"' in listing.body


async def test_new_events_arrive_in_the_stream(room: Room) -> None:
    """The stream sends the list again when an event that matches its filters was appended."""
    stop = asyncio.Event()
    app = dashboard_app(room, stop=stop)
    guest = await open_guest(room, app=app)
    store = EventStore(room.pool)
    async with (
        served(app) as url,
        aiohttp.ClientSession(headers={"cookie": guest.cookie or ""}) as client,
        asyncio.timeout(60),
        client.get(f"{url}/events/live?type=OrderPlaced") as response,
    ):

        async def next_rows() -> str:
            line = b""
            while not line.startswith(b"data: "):
                line = await response.content.readline()
            rows: str = msgspec.json.decode(line.removeprefix(b"data: "))["rows"]
            return rows

        assert "Nothing matches" in await next_rows()
        await store.append(Event.of("Other"))
        await store.append(Event.of("OrderPlaced", {}, order=41))
        rows = await next_rows()
        assert "order=41" in rows
        assert "Other" not in rows
        stop.set()


async def test_events_need_their_scope(room: Room) -> None:
    guest = await open_guest(room, "deliveries:read", name="reader")
    for path in ("/events", "/events/live", "/events/commands", "/events/1/1", "/events/transactions/1"):
        assert (path, (await guest.get(path)).status) == (path, 403)
    assert b'href="/events"' not in (await guest.get("/")).body
