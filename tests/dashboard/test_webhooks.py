"""Webhook endpoints: answers, test, recovery, secrets that are shown once, changes, and the audit log."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from tests.support.dashboard import Guest, hidden_fields, open_guest, text_of
from tests.support.webhook_server import Receiver, receiving

from postroom.db.room import Room
from postroom.delivery.filter import DeliveryFilter
from postroom.delivery.model import Channel, DeliveryState, Lane
from postroom.delivery.service import list_deliveries
from postroom.delivery.worker import Worker, WorkerOptions
from postroom.outbox import topics
from postroom.outbox.model import Topic
from postroom.outbox.webhooks import service
from postroom.outbox.webhooks.model import EndpointStatus, WebhookEndpoint
from postroom.outbox.webhooks.writer import WebhookWriter
from postroom.runtime.secrets import SecretBox
from postroom.transports.webhook.transport import WebhookTransport

URL = "https://shop.example/hooks"
KEY = bytes(32)
BOX = SecretBox([KEY])


@pytest.fixture
async def sealed(room: Room) -> Room:
    return replace(room, settings=replace(room.settings, secret_key=KEY))


@pytest.fixture
async def guest(sealed: Room) -> Guest:
    return await open_guest(sealed)


async def an_endpoint(room: Room, url: str = URL) -> WebhookEndpoint:
    await topics.create_topic(room.pool, Topic(name="orders"), publishers=["webhook"], actor="tests")
    endpoint, _secret = await service.register(room.pool, BOX, url=url, topics=["orders"], actor="tests")
    return endpoint


async def deliver(room: Room) -> None:
    transport = WebhookTransport(allow_private=True)
    worker = Worker(
        room.pool,
        writers={Channel.WEBHOOK: WebhookWriter(room.pool, BOX)},
        routes={Channel.WEBHOOK: dict.fromkeys(Lane, transport)},
        options=WorkerOptions(until_empty=True),
    )
    await worker.run()
    await transport.close()


async def posted(room: Room, endpoint: WebhookEndpoint) -> int:
    """A test event that was posted once; returns its delivery."""
    delivery_id = await service.send_test(room.pool, endpoint.id, actor="tests")
    await deliver(room)
    return delivery_id


async def actions_of(room: Room) -> list[str]:
    rows = await room.pool.fetch(
        "SELECT action FROM audit_log WHERE action LIKE 'webhook.%' AND actor <> 'tests' ORDER BY id"
    )
    return [row["action"] for row in rows]


async def test_an_endpoint_is_added_and_its_secret_shown_once(room: Room, guest: Guest) -> None:
    """The answer to the form has the secret, and no later page has it; invalid fields are explained."""
    assert "No endpoint is registered." in text_of(await guest.get("/webhooks"))
    await topics.create_topic(room.pool, Topic(name="orders"), actor="tests")
    new = "/webhooks/new"
    made = await guest.submit(new, new, url=URL, topics="orders", description="the shop")
    assert "whsec_" in text_of(made)
    assert "Copy it now" in text_of(made)
    [endpoint], _more = await service.list_endpoints(room.pool)
    path = f"/webhooks/{endpoint.id}"
    for later in ("/webhooks", path, f"{path}/change", "/audit"):
        page = await guest.get(later)
        assert (later, page.status, b"whsec_" in page.body) == (later, 200, False)
    for wrong in (
        {"url": "ftp://x"},
        {"topics": ""},
        {"topics": "none"},
        {"format": "xml"},
        {"description": "x" * 501},
    ):
        given = {"url": URL, "topics": "orders", **wrong}
        assert (wrong, (await guest.submit(new, new, **given)).status) == (wrong, 400)
    await guest.submit(path, f"{path}/change", url="https://new.example/", topics="orders", format="cloudevents")
    assert (await service.get_endpoint(room.pool, endpoint.id)).url == "https://new.example/"
    assert (await guest.submit(path, f"{path}/change", url="nonsense", topics="orders")).status == 400
    rotated = await guest.submit(path, f"{path}/rotate")
    assert "The old secret signs too until" in text_of(rotated)
    assert "whsec_" in text_of(rotated)
    await guest.submit(path, f"{path}/delete")
    assert (await guest.get(path)).status == 404
    assert await actions_of(room) == ["webhook.register", "webhook.change", "webhook.rotate", "webhook.delete"]


async def test_an_endpoint_shows_its_last_answers(room: Room, guest: Guest) -> None:
    """Status, duration and words of the last answer; a disabled endpoint gets no test event."""
    async with receiving(Receiver(status=400, body=b"unknown tenant")) as receiver:
        endpoint = await an_endpoint(room, receiver.url)
        path = f"/webhooks/{endpoint.id}"
        done = await guest.submit(path, f"{path}/test")
        assert "The test event is delivery" in text_of(await guest.get(done.headers["location"]))
        await deliver(room)
    assert b'"type":"postroom.test"' in receiver.requests[0].body
    page = text_of(await guest.get(path))
    assert "failed HTTP 400" in page
    assert " ms " in page
    assert "unknown tenant" in page
    await guest.submit(path, f"{path}/disable")
    assert (await service.get_endpoint(room.pool, endpoint.id)).status is EndpointStatus.DISABLED
    assert (await guest.submit(path, f"{path}/test")).status == 409
    assert "Send a test event" not in text_of(await guest.get(path))
    await guest.submit(path, f"{path}/enable")
    await room.pool.execute("UPDATE outbox_topic_progress SET status = 'PAUSED'")
    assert "Nothing is posted of orders" in text_of(await guest.get(path))
    assert await actions_of(room) == ["webhook.test", "webhook.disabled", "webhook.enabled"]


async def test_lost_webhooks_are_recovered_since_a_time(room: Room, guest: Guest) -> None:
    """The count comes first; dead letters and failed webhooks are posted again, delivered ones are not."""
    async with receiving(Receiver()) as receiver:
        endpoint = await an_endpoint(room, receiver.url)
        path = f"/webhooks/{endpoint.id}"
        good = await posted(room, endpoint)
    lost = [await service.send_test(room.pool, endpoint.id, actor="tests") for _ in range(2)]
    await service.set_status(room.pool, endpoint.id, EndpointStatus.DISABLED, actor="tests")
    await deliver(room)
    await service.set_status(room.pool, endpoint.id, EndpointStatus.ENABLED, actor="tests")
    await room.pool.execute("UPDATE deliveries SET created_at = now() - interval '3 days' WHERE id = $1", lost[0])
    since = (datetime.now(UTC) - timedelta(hours=1)).strftime("%Y-%m-%dT%H:%M")
    ask = f"{path}/recover?since={since}"
    page = await guest.get(ask)
    assert "0 dead letters return to the queue, and 1 failed webhook is posted again" in text_of(page)
    given = {"since": f"{since}:00+00:00", "key": "once"}
    for _ in range(2):  # a form that is sent twice recovers once
        done = await guest.submit(ask, f"{path}/recover", **given)
        assert "The recovery is started" in text_of(await guest.get(done.headers["location"]))
    found, _more = await list_deliveries(room.pool, DeliveryFilter(endpoint_id=endpoint.id))
    states: dict[int, DeliveryState] = {each.id: each.state for each in found}
    assert states.pop(good) is DeliveryState.SENT
    assert [states.pop(each) for each in lost] == [DeliveryState.FAILED] * 2
    assert list(states.values()) == [DeliveryState.QUEUED]
    assert "Posted" not in text_of(await guest.get(f"{path}/recover"))
    for wrong in ({"since": "soon", "key": "x"}, {"since": "2026-01-01T00:00", "key": "x"}, {**given, "key": ""}):
        assert (wrong, (await guest.submit(ask, f"{path}/recover", **wrong)).status) == (wrong, 400)
    assert (await guest.get(f"{path}/recover?since=soon")).status == 400


async def test_dead_webhooks_are_recovered_once(room: Room, guest: Guest) -> None:
    """Dead letters return to the queue and arrive with their own webhook-id; a second recovery repeats nothing."""
    since = datetime.now(UTC) - timedelta(hours=1)
    async with receiving(Receiver(status=503)) as receiver:
        endpoint = await an_endpoint(room, receiver.url)
        path = f"/webhooks/{endpoint.id}"
        old, dead = [await service.send_test(room.pool, endpoint.id, actor="tests") for _ in range(2)]
        await room.pool.execute("UPDATE deliveries SET max_retries = 0")
        await room.pool.execute("UPDATE deliveries SET created_at = now() - interval '3 days' WHERE id = $1", old)
        await deliver(room)
        receiver.status = 400
        failed = await posted(room, endpoint)
        before = [request.headers["webhook-id"] for request in receiver.requests]
        receiver.status = 200
        ask = f"{path}/recover?since={since:%Y-%m-%dT%H:%M}"
        expected = "1 dead letter returns to the queue, and 1 failed webhook is posted again"
        page = await guest.get(ask)
        assert expected in text_of(page)
        await guest.post(f"{path}/recover", hidden_fields(page))
        await deliver(room)
        assert [request.headers["webhook-id"] for request in receiver.requests[3:]] == before[1:]
        again = await guest.get(ask)
        assert "0 dead letters return to the queue, and 0 failed webhooks are posted again" in text_of(again)
        assert "Post them again" not in text_of(again)
    found, _more = await list_deliveries(room.pool, DeliveryFilter(endpoint_id=endpoint.id))
    states: dict[int, DeliveryState] = {each.id: each.state for each in found}
    assert [states[each] for each in (old, dead, failed)] == [
        DeliveryState.DEAD_LETTER,
        DeliveryState.SENT,
        DeliveryState.FAILED,
    ]


async def test_webhooks_need_their_scope(room: Room) -> None:
    endpoint = await an_endpoint(room)
    path = f"/webhooks/{endpoint.id}"
    reader = await open_guest(room, "deliveries:read", "outbox:read", name="reader")
    for each in ("/webhooks", path, "/webhooks/new", f"{path}/recover", f"{path}/change"):
        assert (each, (await reader.get(each)).status) == (each, 403)
    posts = [f"{path}/{verb}" for verb in ("test", "enable", "disable", "rotate", "delete", "change", "recover")]
    operator = await open_guest(room, name="all")
    token = {"token": await reader.token("/")}
    for each in [*posts, "/webhooks/new"]:
        assert (each, (await reader.post(each, token)).status) == (each, 403)
        assert (each, (await operator.post(each, {"token": "forged"})).status) == (each, 403)
