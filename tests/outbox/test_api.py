"""The outbox and webhooks over HTTP."""

from dataclasses import replace

import pytest
from tests.outbox.conftest import MakeRelay, MakeTopic
from tests.support.http import Browser, open_browser
from tests.support.outbox import Recorder, append

from postroom.db.pool import Pool
from postroom.db.room import Room
from postroom.events import EventStore
from postroom.http.asgi import HttpApplication
from postroom.http.auth import Authenticator
from postroom.http.openapi import describe
from postroom.outbox.api import ENDPOINTS
from postroom.outbox.relay import PublishStep
from postroom.outbox.webhooks.api import ENDPOINTS as WEBHOOK_ENDPOINTS
from postroom.outbox.webhooks.publisher import WebhookPublisher

BOTH = [*ENDPOINTS, *WEBHOOK_ENDPOINTS]


@pytest.fixture
async def browser(room: Room) -> Browser:
    keyed = replace(room, settings=replace(room.settings, secret_key=bytes(32)))
    return await open_browser(room, app=HttpApplication(keyed, BOTH, auth=Authenticator(room.pool)))


async def test_topics_are_created_changed_listed_and_deleted(browser: Browser) -> None:
    """A topic is created, replaced, shown, listed and deleted."""
    body = {"name": "money", "types": ["Paid"], "exact_tags": ["currency=EUR"], "publishers": ["log", "webhook"]}
    made = await browser.post("/v1/outbox/topics", json=body)
    assert (made.status, made.json["types"], made.json["publishers"]) == (201, ["Paid"], ["log", "webhook"])
    changed = await browser.ask("PUT", "/v1/outbox/topics/money", json={"required_keys": ["wallet"]})
    assert (changed.status, changed.json["types"], changed.json["required_keys"]) == (200, [], ["wallet"])
    assert [topic["name"] for topic in (await browser.get("/v1/outbox/topics")).json["items"]] == ["money"]
    assert (await browser.get("/v1/outbox/topics/money")).json == changed.json
    assert (await browser.ask("DELETE", "/v1/outbox/money/log")).status == 200
    assert (await browser.ask("DELETE", "/v1/outbox/topics/money")).status == 200
    assert (await browser.get("/v1/outbox/topics/money")).json["code"] == "topic_not_found"


async def test_post_does_not_replace_an_existing_topic(browser: Browser) -> None:
    """POST only creates topics; PUT replaces one, but removes the last condition only with `everything`."""
    body = {"name": "money", "types": ["Paid"]}
    assert (await browser.post("/v1/outbox/topics", json=body)).status == 201
    again = await browser.post("/v1/outbox/topics", json={**body, "types": []})
    assert (again.status, again.json["code"]) == (409, "topic_exists")
    widened = await browser.ask("PUT", "/v1/outbox/topics/money", json={"publishers": ["redis"]})
    assert (widened.status, widened.fields) == (400, ["everything"])
    assert (await browser.get("/v1/outbox/topics/money")).json["types"] == ["Paid"]
    meant = await browser.ask("PUT", "/v1/outbox/topics/money", json={"everything": True})
    assert (meant.status, meant.json["types"]) == (200, [])


async def test_a_publisher_is_added_to_a_topic(browser: Browser) -> None:
    """The topic's conditions stay the same; repeating has no effect; an unknown topic is not created."""
    await browser.post("/v1/outbox/topics", json={"name": "money", "types": ["Paid"]})
    for _ in range(2):
        added = await browser.ask("PUT", "/v1/outbox/money/redis", json={"start": "beginning"})
        assert (added.status, added.json["publisher"], added.json["last_position"]) == (200, "redis", 0)
    topic = (await browser.get("/v1/outbox/topics/money")).json
    assert (topic["types"], topic["publishers"]) == (["Paid"], ["redis"])
    assert (await browser.ask("PUT", "/v1/outbox/none/redis", json={})).status == 404
    assert (await browser.ask("PUT", "/v1/outbox/money/Redis", json={})).fields == ["publisher"]


async def test_used_topic_is_deleted_only_by_force(browser: Browser, make_topic: MakeTopic) -> None:
    """409 names the users; after a forced removal the endpoint lists the topic as silent, as for a paused publisher."""
    await make_topic("money")
    rule = {"topic": "money", "event_type": "Paid", "template": "welcome", "recipient_path": "email"}
    await browser.post("/v1/outbox/rules", json=rule)
    endpoint = (await browser.post("/v1/webhooks", json={"url": "https://example.org/h", "topics": ["money"]})).json
    refused = await browser.ask("DELETE", "/v1/outbox/topics/money")
    assert (refused.status, refused.json["code"]) == (409, "topic_needed")
    assert "webhook endpoint 1, mail rule 1" in refused.json["detail"]
    assert "mail rule" not in (await browser.ask("DELETE", "/v1/outbox/money/webhook")).json["detail"]
    assert (await browser.ask("DELETE", "/v1/outbox/money/intake")).status == 409
    assert (await browser.ask("DELETE", "/v1/outbox/money/recorder")).status == 200
    await browser.post("/v1/outbox/money/webhook/pause")
    assert (await browser.get(f"/v1/webhooks/{endpoint['id']}")).json["silent_topics"] == ["money"]
    await browser.post("/v1/outbox/money/webhook/resume")
    assert (await browser.get(f"/v1/webhooks/{endpoint['id']}")).json["silent_topics"] == []
    assert (await browser.ask("DELETE", "/v1/outbox/money/webhook?force=true")).status == 200
    assert (await browser.get("/v1/webhooks")).json["items"][0]["silent_topics"] == ["money"]
    assert (await browser.ask("DELETE", "/v1/outbox/topics/money?force=true")).status == 200


async def test_a_publisher_is_paused_resumed_and_reset(
    browser: Browser, store: EventStore, make_topic: MakeTopic, make_relay: MakeRelay
) -> None:
    """Each response shows the new state."""
    pair = await make_topic()
    positions = await append(store, 3)
    await (await make_relay(pair, Recorder())).run_once()
    assert (await browser.post("/v1/outbox/all/recorder/pause")).json["status"] == "PAUSED"
    assert (await browser.post("/v1/outbox/all/recorder/resume")).json["status"] == "ACTIVE"
    reset = await browser.post("/v1/outbox/all/recorder/reset", json={"position": positions[0]})
    assert reset.json == {"from_position": positions[2], "to_position": positions[0], "rewinds": True}
    (line,) = (await browser.get("/v1/outbox")).json["items"]
    assert (line["lag_events"], line["last_position"], line["stall"]) == (2, positions[0], None)


async def test_only_the_next_event_can_be_skipped(browser: Browser, store: EventStore, make_topic: MakeTopic) -> None:
    """Skipping any other event gives 409, and the error names the next one."""
    await make_topic()
    first, second = await append(store, 2)
    refused = await browser.post("/v1/outbox/all/recorder/skip", json={"position": second})
    assert (refused.status, refused.json["code"]) == (409, "not_next")
    assert str(first) in refused.json["detail"]
    skipped = await browser.post("/v1/outbox/all/recorder/skip", json={"position": first})
    assert skipped.json == {"position": first, "type": "Deposited"}


@pytest.mark.parametrize(
    "step,body", [("pause", None), ("resume", None), ("reset", {"position": 0}), ("skip", {"position": 1})]
)
async def test_an_unknown_publisher_is_404(browser: Browser, step: str, body: object) -> None:
    """An unknown publisher is an error and is not created."""
    options = {} if body is None else {"json": body}
    assert (await browser.post(f"/v1/outbox/no/body/{step}", **options)).json["code"] == "progress_not_found"


async def test_rules_are_created_listed_and_deleted(browser: Browser, make_topic: MakeTopic) -> None:
    """A rule subscribes `intake` to its topic; a duplicate rule is rejected."""
    await make_topic("money")
    body = {"topic": "money", "event_type": "Paid", "template": "welcome", "recipient_path": "payer.email"}
    made = await browser.post("/v1/outbox/rules", json=body)
    assert (made.status, made.json["lane"]) == (201, "transactional")
    assert (await browser.post("/v1/outbox/rules", json=body)).status == 400
    assert (await browser.post("/v1/outbox/rules", json={**body, "recipient_path": "a b"})).fields == ["recipient_path"]
    assert (await browser.post("/v1/outbox/rules", json={**body, "template": "wellcome"})).fields == ["template"]
    assert (await browser.post("/v1/outbox/rules", json={**body, "topic": "none"})).status == 404
    assert [rule["id"] for rule in (await browser.get("/v1/outbox/rules")).json["items"]] == [made.json["id"]]
    publishers = [line["publisher"] for line in (await browser.get("/v1/outbox")).json["items"]]
    assert publishers == ["intake", "recorder"]
    assert (await browser.ask("DELETE", f"/v1/outbox/rules/{made.json['id']}")).status == 200
    assert (await browser.ask("DELETE", f"/v1/outbox/rules/{made.json['id']}")).json["code"] == "rule_not_found"


async def test_a_webhook_s_secret_is_shown_once(browser: Browser, make_topic: MakeTopic) -> None:
    """Only the responses to registration and rotation contain a secret."""
    await make_topic("money")
    made = await browser.post("/v1/webhooks", json={"url": "https://example.org/h", "topics": ["money"]})
    assert (made.status, made.headers["cache-control"]) == (201, "no-store")
    assert made.json["secret"].startswith("whsec_")
    shown = await browser.get(f"/v1/webhooks/{made.json['id']}")
    listed = await browser.get("/v1/webhooks")
    assert b"secret" not in shown.body + listed.body
    rotated = await browser.post(f"/v1/webhooks/{made.json['id']}/rotate", json={"overlap_s": 60})
    assert rotated.json["secret"] != made.json["secret"]
    assert rotated.json["previous_until"] is not None


async def test_a_webhook_is_changed_disabled_and_deleted(browser: Browser, make_topic: MakeTopic) -> None:
    """Omitted fields stay the same."""
    await make_topic("money")
    await make_topic("other")
    made = await browser.post("/v1/webhooks", json={"url": "https://example.org/h", "topics": ["money"]})
    path = f"/v1/webhooks/{made.json['id']}"
    changed = await browser.ask("PATCH", path, json={"topics": ["other"], "enabled": False})
    assert changed.json["url"] == "https://example.org/h"
    assert [changed.json[key] for key in ("topics", "status", "disabled_reason")] == [["other"], "disabled", "operator"]
    assert (await browser.ask("PATCH", path, json={"enabled": True})).json["status"] == "enabled"
    twice = await browser.ask("PATCH", path, json={"topics": ["other", "money", "other"]})
    assert twice.json["topics"] == ["other", "money"]
    assert (await browser.ask("DELETE", path)).status == 200
    assert (await browser.get(path)).json["code"] == "endpoint_not_found"


async def test_a_webhook_s_format_is_chosen_and_changed(browser: Browser, make_topic: MakeTopic) -> None:
    """The format is set at registration or later and always shown; an invalid one is rejected by name."""
    await make_topic("money")
    body = {"url": "https://example.org/h", "topics": ["money"]}
    assert (await browser.post("/v1/webhooks", json=body)).json["format"] == "standard"
    made = await browser.post("/v1/webhooks", json={**body, "format": "cloudevents"})
    path = f"/v1/webhooks/{made.json['id']}"
    assert (made.status, made.json["format"]) == (201, "cloudevents")
    assert (await browser.ask("PATCH", path, json={"description": "x"})).json["format"] == "cloudevents"
    listed = (await browser.get("/v1/webhooks")).json["items"]
    assert [endpoint["format"] for endpoint in listed] == ["standard", "cloudevents"]
    assert (await browser.ask("PATCH", path, json={"format": "standard"})).json["format"] == "standard"
    assert (await browser.get(path)).json["format"] == "standard"
    assert (await browser.post("/v1/webhooks", json={**body, "format": "xml"})).fields == ["format"]
    assert (await browser.ask("PATCH", path, json={"format": "xml"})).fields == ["format"]


async def test_a_webhook_s_deliveries_are_listed_and_replayed(
    browser: Browser, store: EventStore, pool: Pool, make_topic: MakeTopic, make_relay: MakeRelay
) -> None:
    """A delivery that has not ended cannot be replayed."""
    pair = await make_topic("money", "webhook")
    made = await browser.post("/v1/webhooks", json={"url": "https://example.org/h", "topics": ["money"]})
    path = f"/v1/webhooks/{made.json['id']}"
    await append(store, 1)
    relay = await make_relay(pair, WebhookPublisher())
    while await relay.run_once() is PublishStep.MOVED:
        pass
    (posted,) = (await browser.get(f"{path}/deliveries")).json["items"]
    early = await browser.post(f"{path}/replay", json={"delivery_id": posted["id"]})
    assert (posted["status"], early.status) == ("queued", 409)
    await pool.execute(
        "UPDATE deliveries SET state = 'cancelled', finished_at = now(), reason = 'x', next_attempt_at = NULL"
    )
    again = await browser.post(f"{path}/replay", json={"delivery_id": posted["id"]})
    assert (again.status, again.json["delivery_id"] > posted["id"]) == (202, True)
    assert (await browser.post(f"{path}/replay", json={"delivery_id": 99})).status == 404


async def test_read_scope_cannot_operate(room: Room) -> None:
    """A key with the read scope cannot operate publishers."""
    app = HttpApplication(room, BOTH, auth=Authenticator(room.pool))
    reader = await open_browser(room, "deliveries:read", name="reader", app=app)
    assert (await reader.get("/v1/outbox")).status == 403
    assert (await reader.get("/v1/webhooks")).status == 403


def test_openapi_schemas_have_unique_names() -> None:
    """Every schema in the OpenAPI document has a unique name."""
    paths = describe(BOTH)["paths"]
    assert "/v1/outbox/{topic}/{publisher}/skip" in paths
    assert {"get", "patch", "delete"} == set(paths["/v1/webhooks/{endpoint_id}"])
