"""Webhooks from event to receiver: signed with the endpoint's secret, with a constant id, disabled by 410."""

import base64
import hashlib
import hmac
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any

import asyncpg
import msgspec
import pytest
from tests.outbox.conftest import MakeRelay, MakeTopic
from tests.support.cloudevents import read_cloud_event
from tests.support.outbox import settled
from tests.support.webhook_server import Receiver, Request, receiving

from postroom.db.pool import Pool
from postroom.delivery.check import check_request
from postroom.delivery.errors import DeliveryNotFound
from postroom.delivery.model import Channel, DeliveryRequest, DeliveryState, Lane, RecipientOutcome
from postroom.delivery.service import accept, get_delivery
from postroom.delivery.worker import Worker, WorkerOptions
from postroom.errors import BadInput, ConfigurationError, SecretKeyMissing
from postroom.events import Event, EventStore
from postroom.outbox.errors import EndpointNotFound, TopicNotFound
from postroom.outbox.model import Subscription
from postroom.outbox.relay import PublishStep
from postroom.outbox.webhooks import service
from postroom.outbox.webhooks import store as endpoints
from postroom.outbox.webhooks.model import EndpointStatus, WebhookEndpoint, purpose_of
from postroom.outbox.webhooks.publisher import WebhookPublisher
from postroom.outbox.webhooks.writer import WebhookWriter
from postroom.post.address import Address
from postroom.runtime.secrets import Sealed, SecretBox
from postroom.transports.webhook.transport import WebhookTransport

BOX = SecretBox([bytes(range(32))])
INSTALLATION = "whsec_" + base64.b64encode(bytes(32)).decode()


@dataclass(slots=True)
class Scene:
    """A receiver, its endpoint, and the steps from an event to a request."""

    pool: Pool
    store: EventStore
    receiver: Receiver
    endpoint: WebhookEndpoint
    secret: str
    transport: WebhookTransport
    make_relay: MakeRelay

    async def happen(self, *types: str) -> None:
        """Append events, publish and deliver them."""
        for type_ in types:
            await self.store.append(Event.of(type_, {"amount": 5}, wallet=1))
        await settled(self.pool)
        publisher = WebhookPublisher(base_url="https://mail.example.org")
        relay = await self.make_relay(Subscription("money", "webhook"), publisher)
        while await relay.run_once() is PublishStep.MOVED:
            pass
        await self.deliver()

    async def deliver(self) -> None:
        worker = Worker(
            self.pool,
            writers={Channel.WEBHOOK: WebhookWriter(self.pool, BOX, [INSTALLATION])},
            routes={Channel.WEBHOOK: dict.fromkeys(Lane, self.transport)},
            options=WorkerOptions(until_empty=True),
        )
        await worker.run()


@pytest.fixture
async def scene(pool: Pool, store: EventStore, make_topic: MakeTopic, make_relay: MakeRelay) -> AsyncIterator[Scene]:
    await make_topic("money", "webhook", types=("Paid", "Refunded"))
    async with receiving(Receiver()) as receiver:
        endpoint, secret = await service.register(pool, BOX, url=receiver.url, topics=["money"], actor="tests")
        transport = WebhookTransport(allow_private=True, on_gone=partial(service.disable_gone, pool))
        yield Scene(pool, store, receiver, endpoint, secret, transport, make_relay)
        await transport.close()


def signatures(request: Request) -> list[str]:
    return request.headers["webhook-signature"].split(" ")


def expected_signature(secret: str, request: Request) -> str:
    key = base64.b64decode(secret.removeprefix("whsec_"))
    signed = f"{request.headers['webhook-id']}.{request.headers['webhook-timestamp']}.".encode() + request.body
    return "v1," + base64.b64encode(hmac.digest(key, signed, hashlib.sha256)).decode()


async def test_an_event_is_posted_signed_and_shaped(scene: Scene) -> None:
    """Standard Webhooks: type, timestamp and data; the message id; a signature of the endpoint's secret only."""
    await scene.happen("Paid", "Ignored")
    (request,) = scene.receiver.requests
    body = msgspec.json.decode(request.body)
    assert (set(body), body["type"], body["data"]) == ({"type", "timestamp", "data"}, "Paid", {"amount": 5})
    assert datetime.fromisoformat(body["timestamp"]).tzinfo is not None
    assert request.headers["webhook-id"] == "postroom:0:1"
    assert request.headers["Content-Type"] == "application/json"
    assert signatures(request) == [expected_signature(scene.secret, request)]
    assert not [name for name in request.headers if name.lower().startswith("postroom-")]


async def test_an_event_is_posted_as_a_cloud_event(scene: Scene) -> None:
    """Structured mode with the same id, signed over the exact bytes; internal headers are not sent."""
    await service.change(scene.pool, scene.endpoint.id, format="cloudevents", actor="tests")
    await scene.happen("Paid")
    (request,) = scene.receiver.requests
    event = read_cloud_event(request.body)
    assert request.headers["Content-Type"] == "application/cloudevents+json; charset=utf-8"
    assert event["id"] == request.headers["webhook-id"] == "postroom:0:1"
    assert (event["source"], event["subject"]) == ("https://mail.example.org/postroom", "wallet=1")
    assert (event["type"], event["data"]) == ("Paid", {"amount": 5})
    assert signatures(request) == [expected_signature(scene.secret, request)]
    assert not [name for name in request.headers if name.lower().startswith("postroom-")]


async def test_each_endpoint_has_its_own_format(scene: Scene) -> None:
    """One event is posted in two envelopes; a replay keeps the format of the first delivery."""
    other, _secret = await service.register(
        scene.pool, BOX, url=scene.receiver.url + "/two", topics=["money"], format="cloudevents", actor="tests"
    )
    await scene.happen("Paid")
    (first,), _cursor = await service.list_deliveries(scene.pool, other.id)
    await service.change(scene.pool, other.id, format="standard", actor="tests")
    await service.replay(scene.pool, other.id, first.id, actor="tests")
    await scene.happen("Paid")
    types: dict[bool, list[str]] = {False: [], True: []}
    for request in scene.receiver.requests:
        is_cloud = "specversion" in msgspec.json.decode(request.body)
        assert is_cloud == ("cloudevents" in request.headers["Content-Type"])
        types[is_cloud].append(request.path.rpartition("/")[2])
    assert (sorted(types[False]), types[True]) == (["greet", "greet", "two"], ["two", "two"])


async def test_each_event_goes_to_each_endpoint(scene: Scene) -> None:
    """Each event and endpoint gives one delivery, signed with the endpoint's secret."""
    _other, secret = await service.register(
        scene.pool, BOX, url=scene.receiver.url + "/two", topics=["money"], actor="tests"
    )
    await scene.happen("Paid", "Refunded")
    two = [request for request in scene.receiver.requests if request.path.endswith("/two")]
    assert (len(scene.receiver.requests), len(two)) == (4, 2)
    assert all(signatures(request) == [expected_signature(secret, request)] for request in two)


async def test_both_secrets_sign_during_a_rotation(scene: Scene) -> None:
    """Both secrets sign until the old one expires; then only the new one does."""
    _endpoint, fresh = await service.rotate(scene.pool, BOX, scene.endpoint.id, actor="tests")
    await scene.happen("Paid")
    (request,) = scene.receiver.requests
    assert signatures(request) == [expected_signature(secret, request) for secret in (fresh, scene.secret)]
    await scene.pool.execute("UPDATE webhook_endpoints SET previous_until = now() - interval '1 s'")
    await scene.happen("Paid")
    last = scene.receiver.requests[-1]
    assert signatures(last) == [expected_signature(fresh, last)]


async def test_410_disables_the_endpoint(scene: Scene) -> None:
    """410 disables the endpoint: no new deliveries, queued ones are refused, and an operator can enable it again."""
    scene.receiver.status = 410
    await scene.happen("Paid")
    endpoint = await service.get_endpoint(scene.pool, scene.endpoint.id)
    assert (endpoint.status, endpoint.disabled_reason) == (EndpointStatus.DISABLED, "gone")
    await scene.happen("Paid")
    assert len(scene.receiver.requests) == 1
    scene.receiver.status = 200
    await service.set_status(scene.pool, endpoint.id, EndpointStatus.ENABLED, actor="tests")
    await scene.happen("Paid")
    assert len(scene.receiver.requests) == 2


@pytest.mark.parametrize("is_deleted", [True, False])
async def test_queued_deliveries_of_a_closed_endpoint_are_refused(scene: Scene, is_deleted: bool) -> None:  # noqa: FBT001 - a case
    """Nothing is posted to an endpoint disabled or deleted after the delivery was queued; the ledger has the reason."""
    await scene.store.append(Event.of("Paid"))
    await settled(scene.pool)
    await (await scene.make_relay(Subscription("money", "webhook"), WebhookPublisher())).run_once()
    if is_deleted:
        await service.delete(scene.pool, scene.endpoint.id, actor="tests")
    else:
        await service.set_status(
            scene.pool, scene.endpoint.id, EndpointStatus.DISABLED, reason="operator", actor="tests"
        )
    await scene.deliver()
    delivery = await get_delivery(scene.pool, 1)
    assert (delivery.state, scene.receiver.requests) == (DeliveryState.FAILED, [])
    assert ("deleted" if is_deleted else "disabled") in (delivery.detail or "")


async def test_a_replay_has_the_same_id(scene: Scene) -> None:
    """A replay is a new delivery with the same id, so that the receiver recognises it."""
    await scene.happen("Paid")
    (first,), _cursor = await service.list_deliveries(scene.pool, scene.endpoint.id)
    again = await service.replay(scene.pool, scene.endpoint.id, first.id, actor="tests")
    await scene.deliver()
    ids = [request.headers["webhook-id"] for request in scene.receiver.requests]
    assert (again != first.id, ids) == (True, ["postroom:0:1"] * 2)


async def test_a_replay_goes_to_the_current_url(scene: Scene) -> None:
    """A replay goes to the current URL of the endpoint."""
    await scene.happen("Paid")
    await service.change(scene.pool, scene.endpoint.id, url=scene.receiver.url + "/new", actor="tests")
    await service.replay(scene.pool, scene.endpoint.id, 1, actor="tests")
    await scene.deliver()
    before, after = scene.receiver.requests
    assert (before.path.endswith("/new"), after.path.endswith("/new")) == (False, True)


@pytest.mark.parametrize("name", ["Content-Type", "Postroom-Endpoint"])
def test_only_webhooks_of_an_endpoint_set_its_headers(name: str) -> None:
    """An application can set neither an endpoint nor the headers that the outbox sets."""
    webhook = DeliveryRequest(
        to=(Address("https://a.example/"),), text="{}", headers={name: "1"}, channel=Channel.WEBHOOK
    )
    with pytest.raises(BadInput, match=f"headers.{name}"):
        check_request(webhook)
    mail = replace(
        webhook, to=(Address("ada@example.org"),), subject="Hi", headers={}, channel=Channel.EMAIL, endpoint_id=1
    )
    with pytest.raises(BadInput, match="endpoint_id"):
        check_request(mail)


async def test_an_endpoint_s_signature_goes_to_no_other_url(scene: Scene) -> None:
    """A delivery goes to the endpoint's URL, whatever URL its row has; the row's recipient gets the result."""
    request = DeliveryRequest(
        to=(Address(f"{scene.receiver.url}/mallory"),),
        text="{}",
        headers={"webhook-id": "msg_1"},
        channel=Channel.WEBHOOK,
        endpoint_id=scene.endpoint.id,
    )
    async with scene.pool.acquire() as connection:
        accepted = await accept(connection, check_request(request))
    await scene.deliver()
    (posted,) = scene.receiver.requests
    assert (posted.path.endswith("/mallory"), posted.headers["webhook-id"]) == (False, "msg_1")
    delivery = await get_delivery(scene.pool, accepted.id)
    assert (delivery.state, delivery.recipients[0].outcome) == (DeliveryState.SENT, RecipientOutcome.DELIVERED)


async def test_a_claim_reads_its_endpoints_in_one_statement(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """The number of endpoints and deliveries in the claim does not matter."""
    await service.register(scene.pool, BOX, url=scene.receiver.url + "/two", topics=["money"], actor="tests")
    asked: list[list[int]] = []
    list_signing = endpoints.list_signing

    async def count(connection: Any, *, ids: list[int]) -> list[WebhookEndpoint]:
        asked.append(ids)
        return await list_signing(connection, ids=ids)

    monkeypatch.setattr(endpoints, "list_signing", count)
    await scene.happen("Paid", "Paid")
    assert (len(scene.receiver.requests), len(asked), len(asked[0])) == (4, 1, 2)


async def test_delivery_is_deferred_without_the_sealing_key(scene: Scene) -> None:
    """If the sealing key is not configured in this process, the delivery is deferred, not refused."""
    await scene.pool.execute("UPDATE webhook_endpoints SET secret_key_id = 'another'")
    await scene.happen("Paid")
    delivery = await get_delivery(scene.pool, 1)
    assert (delivery.state, scene.receiver.requests) == (DeliveryState.QUEUED, [])


async def test_a_secret_copied_from_another_endpoint_signs_nothing(scene: Scene) -> None:
    """A copied secret cannot be opened: the delivery is deferred, and the attempt has the reason."""
    other, _ = await service.register(scene.pool, BOX, url="https://example.org/", topics=["money"], actor="tests")
    await service.set_status(scene.pool, other.id, EndpointStatus.DISABLED, actor="tests")
    await scene.pool.execute(
        "UPDATE webhook_endpoints SET secret = $1 WHERE id = $2", other.secret.data, scene.endpoint.id
    )
    await scene.happen("Paid")
    assert ((await get_delivery(scene.pool, 1)).state, scene.receiver.requests) == (DeliveryState.QUEUED, [])
    [said] = await scene.pool.fetch("SELECT reply_text FROM attempts")
    assert f"secret of webhook endpoint {scene.endpoint.id} does not open" in said["reply_text"]
    assert "copied from another row" in said["reply_text"]


async def test_replay_of_another_endpoints_delivery_is_refused(scene: Scene) -> None:
    """An endpoint can replay only its own deliveries."""
    await scene.happen("Paid")
    other, _secret = await service.register(
        scene.pool, BOX, url="https://example.org/", topics=["money"], actor="tests"
    )
    with pytest.raises(DeliveryNotFound):
        await service.replay(scene.pool, other.id, 1, actor="tests")
    with pytest.raises(EndpointNotFound):
        await service.replay(scene.pool, 99, 1, actor="tests")


async def test_a_webhook_without_an_endpoint_is_signed_by_the_installation(scene: Scene) -> None:
    """Such a webhook has one signature and its own id."""
    request = DeliveryRequest(to=(Address(scene.receiver.url),), text="{}", channel=Channel.WEBHOOK)
    async with scene.pool.acquire() as connection:
        await accept(connection, check_request(request))
    await scene.deliver()
    (posted,) = scene.receiver.requests
    assert posted.headers["webhook-id"].startswith("msg_")
    assert signatures(posted) == [expected_signature(INSTALLATION, posted)]


async def test_secrets_are_never_stored_in_plain_text(scene: Scene) -> None:
    """Neither the row nor the audit log nor a delivery contains the secret; another key cannot open it."""
    await scene.happen("Paid")
    for table in ("webhook_endpoints", "audit_log", "delivery_payloads", "deliveries"):
        rows = [str(row) for row in await scene.pool.fetch(f"SELECT t::text FROM {table} AS t")]
        key = scene.secret.removeprefix("whsec_")
        assert not any(key in row or base64.b64decode(key).hex() in row for row in rows)
    assert scene.secret not in repr(scene.endpoint)
    with pytest.raises(ConfigurationError):
        SecretBox([bytes(32)]).open(scene.endpoint.secret, purpose=purpose_of(scene.endpoint.id))


async def test_bad_endpoints_are_refused(pool: Pool, make_topic: MakeTopic) -> None:
    """An invalid URL, no topic, an unknown format or topic, and a missing sealing key are rejected."""
    await make_topic("money", "log")
    with pytest.raises(BadInput, match="url"):
        await service.register(pool, BOX, url="ftp://example.org", topics=["money"], actor="tests")
    with pytest.raises(BadInput, match="topics"):
        await service.register(pool, BOX, url="https://example.org", topics=[], actor="tests")
    with pytest.raises(BadInput, match="format"):
        await service.register(pool, BOX, url="https://example.org", topics=["money"], format="xml", actor="tests")
    with pytest.raises(TopicNotFound):
        await service.register(pool, BOX, url="https://example.org", topics=["none"], actor="tests")
    with pytest.raises(SecretKeyMissing):
        await service.register(pool, SecretBox([]), url="https://example.org", topics=["money"], actor="tests")


async def test_database_rejects_invalid_formats(scene: Scene) -> None:
    """Existing endpoints have the default format; an invalid format cannot be stored."""
    columns = "url, topics, secret_key_id, secret"
    row = await scene.pool.fetchrow(
        f"INSERT INTO webhook_endpoints ({columns}) SELECT {columns} FROM webhook_endpoints RETURNING format"
    )
    assert row["format"] == "standard"
    with pytest.raises(asyncpg.CheckViolationError, match="webhook_endpoints_format"):
        await scene.pool.execute("UPDATE webhook_endpoints SET format = 'xml'")


async def test_rotation_without_overlap_removes_the_old_secret(scene: Scene) -> None:
    """A rotation with no overlap, for a leaked secret, removes the old one."""
    _endpoint, fresh = await service.rotate(scene.pool, BOX, scene.endpoint.id, overlap=timedelta(), actor="tests")
    await scene.happen("Paid")
    (request,) = scene.receiver.requests
    assert signatures(request) == [expected_signature(fresh, request)]


def test_a_sealed_secret_cannot_be_changed_or_misused() -> None:
    """A changed bit or another purpose prevents opening."""
    sealed = BOX.seal(b"quiet", purpose="one")
    assert BOX.open(sealed, purpose="one") == b"quiet"
    assert BOX.seal(b"quiet", purpose="one").data != sealed.data
    bent = Sealed(sealed.key_id, sealed.data[:-1] + bytes([sealed.data[-1] ^ 1]))
    for wrong, purpose in ((sealed, "two"), (bent, "one")):
        with pytest.raises(ConfigurationError):
            BOX.open(wrong, purpose=purpose)


def test_an_old_key_still_opens() -> None:
    """During a key change both keys open; the first one seals."""
    old, both = SecretBox([b"old" * 11]), SecretBox([b"new" * 11, b"old" * 11])
    assert both.open(old.seal(b"quiet", purpose="x"), purpose="x") == b"quiet"
    assert both.seal(b"quiet", purpose="x").key_id != old.seal(b"quiet", purpose="x").key_id
