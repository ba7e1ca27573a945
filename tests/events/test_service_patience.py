"""An open transaction delays only the appends that need its locks."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from tests.events.conftest import Opener, set_lock_timeout
from tests.support.events import until_waiting
from tests.support.http import Browser, Response, open_browser

from postroom.db.pool import Pool
from postroom.db.room import Room, open_room
from postroom.events import AppendCondition, CombiningWriter, Command, Event, EventSession, EventStore, Query
from postroom.events.errors import EventsBusy
from postroom.settings import Settings

HELD = Query.of(tags=["st=1"])
UNDER = {"events": [{"type": "Moved", "tags": ["st=1"]}]}
MANY = {"events": [{"type": "Moved", "tags": ["st=1"]}] * 20}
ELSEWHERE = {"events": [{"type": "Moved", "tags": ["st=2"]}]}
MAIL = {"to": ["ann@example.org"], "subject": "Hello", "text": "Hello Ann"}


@pytest.fixture
async def browser(room: Room) -> Browser:
    return await open_browser(room)


@pytest.fixture
async def hasty(database_url: str) -> AsyncIterator[Pool]:
    """A pool of two connections with a lock timeout of 0.2 seconds."""
    await set_lock_timeout(database_url, 200)
    async with open_room(Settings(database_url=database_url, pool_size=2)) as room:
        yield room.pool


async def answered(browser: Browser) -> list[int]:
    """Requests to other endpoints while appends wait."""
    async with asyncio.timeout(60):
        answers = [
            await browser.post("/v1/events", json=ELSEWHERE),
            await browser.post("/v1/events", json=ELSEWHERE, headers={"Idempotency-Key": "free"}),
            await browser.post("/v1/deliveries", json=MAIL),
            await browser.get("/v1/events?tag=st%3D2"),
        ]
    return [answer.status for answer in answers]


@pytest.mark.parametrize("kind", ["few", "many", "keyed", "one key"])
async def test_waiting_appends_leave_connections_free(browser: Browser, opened: Opener, kind: str) -> None:
    """However many appends of any size wait for an open transaction, other requests are answered."""
    stranger, observer = await opened(), await opened()
    waiting: list[asyncio.Task[Response]] = []
    async with stranger.transaction():
        await EventSession(stranger).append(Event.of("Held", st=1), AppendCondition(HELD))
        for number in range(40):
            headers = {"Idempotency-Key": f"key-{number if kind == 'keyed' else 0}"} if "key" in kind else {}
            body = MANY if kind == "many" else UNDER
            waiting.append(asyncio.create_task(browser.post("/v1/events", json=body, headers=headers)))
        await until_waiting(observer, None)
        assert await answered(browser) == [201, 201, 202, 200]
        assert not any(task.done() for task in waiting)
    statuses = sorted({answer.status for answer in await asyncio.gather(*waiting)})
    assert statuses == ([200, 201] if kind == "one key" else [201])


async def test_lock_wait_times_out(hasty: Pool, opened: Opener) -> None:
    """After the timeout the caller gets `EventsBusy`, and nothing is stored."""
    store, stranger = EventStore(hasty), await opened()

    async def handle(session: EventSession) -> int:
        return (await session.append(Event.of("Moved", st=1))).position

    async with stranger.transaction():
        await EventSession(stranger).append(Event.of("Held", st=1), AppendCondition(HELD))
        for append in (
            store.append(Event.of("Moved", st=1)),
            store.append([Event.of("Moved", st=1)] * 20),
            CombiningWriter(hasty).append(Event.of("Moved", st=1), AppendCondition(HELD)),
            store.execute(Command("Move", "move-1"), handle),
        ):
            with pytest.raises(EventsBusy):
                await append
    assert (await store.execute(Command("Move", "move-1"), handle)).replayed is False
    assert [event.type for event in (await store.read(Query.all())).events] == ["Held", "Moved"]


async def test_lock_timeout_is_503(hasty: Pool, opened: Opener, database_url: str) -> None:
    """The response has the reason and a Retry-After header."""
    stranger = await opened()
    async with open_room(Settings(database_url=database_url)) as room, stranger.transaction():
        await EventSession(stranger).append(Event.of("Held", st=1), AppendCondition(HELD))
        browser = await open_browser(room)
        for headers in ({}, {"Idempotency-Key": "key"}):
            answer = await browser.post("/v1/events", json=UNDER, headers=headers)
            assert (answer.status, answer.json["code"], answer.headers["retry-after"]) == (503, "events_busy", "10")
