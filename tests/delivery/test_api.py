"""HTTP endpoints of deliveries: list and operate."""

from typing import Any

import msgspec
import pytest
from tests.support.http import Browser, open_browser

from postroom.db.room import Room
from postroom.delivery.service import accept
from postroom.delivery.shapes import DeliveryBody, request_from
from postroom.events.audit import list_audit

MAIL = {"to": ["ann@example.org"], "subject": "Hello", "text": "Hello Ann"}
WELCOME = {"name": "Ann", "product": "Shop", "url": "https://shop.example/"}


@pytest.fixture
async def browser(room: Room) -> Browser:
    return await open_browser(room, name="shop")


async def _accept(browser: Browser, **changes: Any) -> int:
    response = await browser.post("/v1/deliveries", json={**MAIL, **changes})
    assert response.status == 202
    delivery_id: int = response.json["id"]
    return delivery_id


async def _give_up(room: Room, delivery_id: int, reason: str) -> None:
    await room.pool.execute(
        "UPDATE deliveries SET state = 'sending', claim_id = 1, next_attempt_at = NULL WHERE id = $1",
        delivery_id,
    )
    await room.pool.execute(
        "UPDATE deliveries SET state = 'dead_letter', claim_id = NULL, finished_at = now(), reason = $2 WHERE id = $1",
        delivery_id,
        reason,
    )
    await room.pool.execute(
        "INSERT INTO dead_letters (delivery_id, reason) VALUES ($1, $2::dead_letter_reason)", delivery_id, reason
    )


async def _ids(browser: Browser, query: str) -> list[int]:
    response = await browser.get(f"/v1/deliveries?{query}")
    assert response.status == 200, response.body
    return [item["id"] for item in response.json["items"]]


async def test_a_delivery_that_has_expired_is_refused(room: Room, browser: Browser) -> None:
    """Nothing is stored, and the field of each is named; the repetition of a request that was accepted is answered."""
    late = {**MAIL, "expires_at": "2020-01-01T00:00:00Z"}
    for headers in ({}, {"idempotency-key": "order-7"}):
        refused = await browser.ask("POST", "/v1/deliveries", json=late, headers=headers)
        assert (refused.status, refused.json["errors"]) == (400, [{"field": "expires_at", "message": "is in the past"}])
    for body, field in (([MAIL, late], "[1].expires_at"), ({"deliveries": [late]}, "deliveries[0].expires_at")):
        refused = await browser.post("/v1/deliveries/batch", json=body)
        assert (refused.status, [each["field"] for each in refused.json["errors"]]) == (400, [field])
    assert await room.pool.fetchval("SELECT count(*) FROM deliveries") == 0
    read = msgspec.convert(late, DeliveryBody)
    timely = request_from(read, source="shop", idempotency_key="order-8", traceparent=None)
    async with room.pool.acquire() as connection:
        accepted = await accept(connection, timely)
    again = await browser.ask("POST", "/v1/deliveries", json=late, headers={"idempotency-key": "order-8"})
    assert (again.status, again.json["id"], again.json["replayed"]) == (200, accepted.id, True)


async def test_a_delivery_is_shown_whole(browser: Browser) -> None:
    """Recipients with their outcomes, content, bookkeeping; times in UTC with a Z; no attachment's content."""
    delivery_id = await _accept(
        browser,
        to=["Ann <ann@example.org>"],
        bcc="bob@example.org",
        reply_to=["desk@example.org"],
        html="<p>Hello</p>",
        headers={"X-Order": "7"},
        tags={"kind": "receipt"},
        custom_data={"order": 7},
        attachments=[{"filename": "a.txt", "content_type": "text/plain", "content": "aGVsbG8="}],
        send_at="2030-01-31T10:00:00+01:00",
        **{"from": '"Shop, Inc." <shop@example.org>'},
    )
    shown = (await browser.get(f"/v1/deliveries/{delivery_id}")).json
    assert shown["next_attempt_at"] == "2030-01-31T09:00:00Z"
    assert shown["created_at"].endswith("Z")
    assert shown["from"] == '"Shop, Inc." <shop@example.org>'
    assert [(r["kind"], r["address"], r["name"], r["outcome"]) for r in shown["recipients"]] == [
        ("to", "ann@example.org", "Ann", "pending"),
        ("bcc", "bob@example.org", None, "pending"),
        ("reply_to", "desk@example.org", None, "pending"),
    ]
    assert (shown["subject"], shown["text"], shown["html"]) == ("Hello", "Hello Ann", "<p>Hello</p>")
    assert (shown["headers"], shown["tags"], shown["custom_data"]) == (
        {"X-Order": "7"},
        {"kind": "receipt"},
        {"order": 7},
    )
    [attachment] = shown["attachments"]
    assert attachment == {"filename": "a.txt", "content_type": "text/plain", "content_id": None, "size": 5}
    assert (shown["source"], shown["status"], shown["lane"]) == ("shop", "queued", "transactional")


async def test_a_delivery_names_the_version_of_its_template(browser: Browser, room: Room) -> None:
    """The version that it was accepted with, also after another one became current; other mail has none."""
    noted = await _accept(browser, template="welcome", subject=None, text=None, variables=WELCOME)
    plain = await _accept(browser)
    version = await room.pool.fetchval("SELECT version_id FROM templates WHERE id = 'welcome'")
    await room.pool.execute(
        "UPDATE templates SET version_id = (SELECT min(id) FROM template_versions WHERE id <> $1)", version
    )
    shown = (await browser.get(f"/v1/deliveries/{noted}")).json
    assert (shown["template"], shown["template_version"]) == ("welcome", version)
    files = await browser.get(f"/v1/templates/welcome/versions/{version}")
    assert (files.status, (await browser.get(f"/v1/deliveries/{plain}")).json["template_version"]) == (200, None)


async def test_codes_and_variables_stay_inside(browser: Browser) -> None:
    """No response contains a one-time code or the variables of a template."""
    made = await browser.post("/v1/login-codes", json={"email": "ann@example.org", "code": "SESAME-7"})
    plain = await _accept(
        browser, template="welcome", subject=None, text=None, variables={**WELCOME, "unused": "Hush-8"}
    )
    coded = await _accept(browser, lane="auth", text="Your code is SESAME-7", subject="SESAME-7")
    answers = [
        await browser.get("/v1/deliveries"),
        *[await browser.get(f"/v1/deliveries/{i}") for i in (made.json["id"], plain, coded)],
    ]
    assert all(answer.status == 200 for answer in answers)
    assert all(b"SESAME" not in answer.body and b"Hush" not in answer.body for answer in answers)
    assert answers[3].json["content_hidden"] is True


@pytest.mark.parametrize("path", ["", "/attempts"])
async def test_an_unknown_delivery_is_not_found(browser: Browser, path: str) -> None:
    """The 404 names the missing delivery."""
    response = await browser.get(f"/v1/deliveries/99{path}")
    assert response.status == 404
    assert response.json["code"] == "delivery_not_found"


async def test_attempts_are_listed_first_to_last(browser: Browser, room: Room) -> None:
    """Each attempt is listed with the reply."""
    delivery_id = await _accept(browser)
    assert (await browser.get(f"/v1/deliveries/{delivery_id}/attempts")).json["items"] == []
    for number, code in ((1, 451), (2, 250)):
        await room.pool.execute(
            "INSERT INTO attempts (delivery_id, attempt_no, outcome, lane, code, started_at, finished_at, transport) "
            "VALUES ($1, $2, 'deferred', 'transactional', $3, now(), now(), 'smtp')",
            delivery_id,
            number,
            code,
        )
    items = (await browser.get(f"/v1/deliveries/{delivery_id}/attempts")).json["items"]
    assert [(item["attempt_no"], item["code"], item["transport"]) for item in items] == [
        (1, 451, "smtp"),
        (2, 250, "smtp"),
    ]


async def test_deliveries_are_found_by_each_filter(browser: Browser, room: Room) -> None:
    """Each filter narrows the listing; recipients match in any case."""
    data = {"order": 7, "shop": "a", "campaign": "spring"}
    headers = {"Message-ID": "<own@shop.example>"}
    first = await _accept(browser, to="Ann@Example.org", custom_data=data, tags={"kind": "a=b"}, headers=headers)
    second = await _accept(
        browser, template="welcome", subject=None, text=None, variables=WELCOME, cc=["carol@example.org"]
    )
    other = await open_browser(room, name="crm", app=browser.app)
    keyed = await other.post(
        "/v1/deliveries", json={**MAIL, "to": "dave@example.org"}, headers={"idempotency-key": "order-7"}
    )
    third = keyed.json["id"]
    await browser.post(f"/v1/deliveries/{third}/cancel")
    for query, expected in (
        ("", [third, second, first]),
        ("status=cancelled", [third]),
        ("recipient=ANN@example.ORG", [second, first]),
        ("recipient=carol@example.org", [second]),
        ("recipient_contains=CAROL", [second]),
        ("recipient_domain=Example.org&source=crm", [third]),
        ("recipient_domain=nowhere.example", []),
        ("template=welcome", [second]),
        ("source=crm", [third]),
        ("custom_data=%7B%22order%22%3A7%7D", [first]),
        ("campaign=spring", [first]),
        ("campaign=spring&tag=kind=other", []),
        ("tag=kind=a=b", [first]),
        ("tag=kind=a", []),
        ("idempotency_key=order-7", [third]),
        ("idempotency_key=unknown", []),
        ("message_id=own@shop.example", [first]),
        ("message_id=%3Cown@shop.example%3E", [first]),
        ("message_id=unknown@example.org", []),
        ("created_from=2099-01-01T00:00:00Z", []),
        ("created_before=2099-01-01T00:00:00Z&limit=1", [third]),
    ):
        assert (query, await _ids(browser, query)) == (query, expected)


async def test_pages_are_stable_while_mail_arrives(browser: Browser) -> None:
    """Mail accepted meanwhile does not move the pages: no item is skipped or repeated."""
    ids = [await _accept(browser) for _ in range(5)]
    seen: list[int] = []
    query = "limit=2"
    while query:
        page = (await browser.get(f"/v1/deliveries?{query}")).json
        seen += [item["id"] for item in page["items"]]
        query = f"limit=2&cursor={page['next_cursor']}" if page["next_cursor"] else ""
        await _accept(browser)
    assert seen == ids[::-1]


async def test_cancel_ends_what_waits_and_is_audited(browser: Browser, room: Room) -> None:
    """A waiting delivery is cancelled once; the audit log names the key."""
    delivery_id = await _accept(browser)
    done = await browser.post(f"/v1/deliveries/{delivery_id}/cancel")
    assert (done.status, done.json) == (200, {"id": delivery_id, "status": "cancelled"})
    again = await browser.post(f"/v1/deliveries/{delivery_id}/cancel")
    assert (again.status, again.json["code"]) == (409, "wrong_state")
    [entry], _more = await list_audit(room.pool, subject=f"delivery:{delivery_id}", limit=5)
    assert (entry.actor, entry.action) == ("key:1:shop", "delivery.cancel")


async def test_retry_makes_a_waiting_delivery_due(browser: Browser) -> None:
    """Retry makes a delivery scheduled for later due now."""
    delivery_id = await _accept(browser, send_at="2090-01-01T00:00:00Z")
    done = await browser.post(f"/v1/deliveries/{delivery_id}/retry")
    assert (done.status, done.json["status"]) == (200, "queued")
    shown = (await browser.get(f"/v1/deliveries/{delivery_id}")).json
    assert shown["next_attempt_at"] < "2090"


async def test_resend_makes_a_new_delivery(browser: Browser) -> None:
    """The copy has its own id and no key; the original is unchanged."""
    delivery_id = await _accept(browser)
    early = await browser.post(f"/v1/deliveries/{delivery_id}/resend")
    assert (early.status, early.json["code"]) == (409, "wrong_state")
    await browser.post(f"/v1/deliveries/{delivery_id}/cancel")
    resent = await browser.post(f"/v1/deliveries/{delivery_id}/resend")
    assert resent.status == 202
    assert resent.json["resend_of"] == delivery_id
    clone = (await browser.get(f"/v1/deliveries/{resent.json['id']}")).json
    assert (clone["resend_of"], clone["status"], clone["text"]) == (delivery_id, "queued", "Hello Ann")


@pytest.mark.parametrize("verb", ["cancel", "retry", "resend"])
async def test_operating_an_unknown_delivery_is_404(browser: Browser, verb: str) -> None:
    """Operations on an unknown delivery return 404."""
    assert (await browser.post(f"/v1/deliveries/99/{verb}")).status == 404


async def test_dead_letters_are_listed_by_reason(browser: Browser, room: Room) -> None:
    """Newest first."""
    aged, worn = await _accept(browser), await _accept(browser)
    await _give_up(room, aged, "max_age")
    await _give_up(room, worn, "attempts_exhausted")
    listed = (await browser.get("/v1/dead-letters")).json["items"]
    assert [(item["delivery_id"], item["reason"]) for item in listed] == [
        (worn, "attempts_exhausted"),
        (aged, "max_age"),
    ]
    assert len((await browser.get("/v1/dead-letters?reason=max_age")).json["items"]) == 1


async def test_dead_letters_are_listed_in_pages(browser: Browser, room: Room) -> None:
    """The cursor of one page leads to the next."""
    ids = [await _accept(browser) for _ in range(3)]
    for delivery_id in ids:
        await _give_up(room, delivery_id, "max_age")
    first = (await browser.get("/v1/dead-letters?limit=2")).json
    second = (await browser.get(f"/v1/dead-letters?limit=2&cursor={first['next_cursor']}")).json
    assert [item["delivery_id"] for item in first["items"] + second["items"]] == ids[::-1]
    assert second["next_cursor"] is None


async def test_an_ambiguous_dead_letter_can_be_settled(browser: Browser, room: Room) -> None:
    """An operator can settle an ambiguous dead letter, and no other."""
    ambiguous, aged = await _accept(browser), await _accept(browser)
    await _give_up(room, ambiguous, "ambiguous")
    await _give_up(room, aged, "max_age")
    settled = await browser.post(f"/v1/dead-letters/{ambiguous}/settle")
    assert (settled.status, settled.json) == (200, {"id": ambiguous, "status": "sent"})
    assert (await browser.post(f"/v1/dead-letters/{aged}/settle")).status == 404


async def test_deliveries_are_found_by_their_campaign(browser: Browser, room: Room) -> None:
    """A campaign is found by its id, which each item shows, or by its name in the custom data."""
    first, named = await _accept(browser), await _accept(browser, custom_data={"campaign": "spring", "order": 7})
    await room.pool.execute("UPDATE deliveries SET campaign_id = 7 WHERE id = $1", first)
    assert await _ids(browser, "campaign_id=7") == [first]
    assert await _ids(browser, "campaign_id=8") == []
    assert await _ids(browser, "campaign=spring") == [named]
    assert await _ids(browser, "campaign=spring&custom_data=%7B%22order%22%3A7%7D") == [named]
    assert await _ids(browser, "campaign=spring&custom_data=%7B%22order%22%3A8%7D") == []
    listed = (await browser.get("/v1/deliveries")).json["items"]
    assert [item["campaign_id"] for item in listed] == [None, 7]
    assert (await browser.get(f"/v1/deliveries/{first}")).json["campaign_id"] == 7


@pytest.mark.parametrize(
    "query, field",
    [
        ("campaign_id=spring", "campaign_id"),
        ("campaign_id=-1", "campaign_id"),
        ("campaign_id=9223372036854775808", "campaign_id"),
        ("tag=kind", "tag"),
        ("tag==value", "tag"),
        ("campaign=a&custom_data=%7B%22campaign%22%3A%22b%22%7D", "campaign"),
    ],
)
async def test_a_campaign_that_cannot_be_is_refused_by_name(browser: Browser, query: str, field: str) -> None:
    """An invalid campaign id and a campaign given twice are rejected."""
    refused = await browser.get(f"/v1/deliveries?{query}")
    assert (refused.status, refused.fields) == (400, [field])


async def test_a_resend_says_that_the_content_is_gone(browser: Browser, room: Room) -> None:
    """The 409 names the retention setting and not the state, which would allow a resend."""
    delivery_id = await _accept(browser)
    await browser.post(f"/v1/deliveries/{delivery_id}/cancel")
    await room.pool.execute("DELETE FROM delivery_payloads")
    refused = await browser.post(f"/v1/deliveries/{delivery_id}/resend")
    assert (refused.status, refused.json["code"]) == (409, "body_gone")
    assert "POSTROOM_PAYLOAD_RETENTION" in refused.json["detail"]
