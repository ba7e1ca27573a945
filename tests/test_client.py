"""`postroom.Client` against the real API on loopback."""

from collections.abc import AsyncIterator

import pytest
from tests.support.served import served

import postroom
from postroom.db.room import Room
from postroom.delivery.errors import DeliveryNotFound, WrongState
from postroom.errors import BadInput, IdempotencyConflict, Unauthenticated
from postroom.http.asgi import build_app
from postroom.http.service import create_key


@pytest.fixture
async def url(room: Room) -> AsyncIterator[str]:
    async with served(build_app(room)) as address:
        yield address


@pytest.fixture
async def client(room: Room, url: str) -> AsyncIterator[postroom.Client]:
    key, _row = await create_key(room.pool, "client", scopes=["*"], actor="test")
    async with postroom.Client(url, key, timeout_s=60) as opened:
        yield opened


MAIL = {"to": ["ada@example.org"], "subject": "Hello", "text": "Hello, Ada."}


async def test_a_mail_is_sent_once_per_key(client: postroom.Client) -> None:
    """The same key and body answer the first delivery again."""
    first = await client.send(**MAIL, idempotency_key="one")
    again = await client.send(**MAIL, idempotency_key="one")
    assert (again["id"], first["replayed"], again["replayed"]) == (first["id"], False, True)


async def test_refusals_are_the_service_s_own_errors(client: postroom.Client) -> None:
    """A program catches the same conditions on either side of HTTP."""
    await client.send(**MAIL, idempotency_key="one")
    with pytest.raises(IdempotencyConflict):
        await client.send(**{**MAIL, "text": "Other."}, idempotency_key="one")
    with pytest.raises(DeliveryNotFound):
        await client.get_delivery(4711)
    with pytest.raises(BadInput) as caught:
        await client.send(to=["nobody"], subject="Hello", text="Hello.")
    assert caught.value.errors[0].field == "to[0]"


async def test_a_wrong_key_is_refused(url: str) -> None:
    """Without a key there is nothing to see."""
    async with postroom.Client(url, "pr_wrong", timeout_s=60) as stranger:
        with pytest.raises(Unauthenticated):
            await stranger.get_delivery(1)


async def test_batches_listings_and_operators(client: postroom.Client) -> None:
    """Everything an operator does by hand can be done by a program."""
    answers = await client.send_batch([MAIL, MAIL, MAIL])
    ids = [answer["id"] for answer in answers]
    assert [item["id"] async for item in client.list_deliveries(limit=2)] == sorted(ids, reverse=True)
    await client.cancel(ids[0])
    with pytest.raises(WrongState):
        await client.retry(ids[0])
    clone = await client.resend(ids[0])
    assert (await client.get_delivery(clone))["resend_of"] == ids[0]
    assert await client.list_attempts(clone) == []


async def test_a_batch_with_a_key_is_accepted_once(client: postroom.Client) -> None:
    """The second time the answers are those of the first, and say so."""
    first = await client.send_batch([MAIL, MAIL], idempotency_key="night-7")
    again = await client.send_batch([MAIL, MAIL], idempotency_key="night-7")
    assert [answer["id"] for answer in again] == [answer["id"] for answer in first]
    assert [answer["status"] for answer in again] == [answer["status"] for answer in first]
