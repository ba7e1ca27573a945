"""Acceptance over HTTP: accepted, replayed and rejected requests."""

import asyncio
import base64
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.support.http import Browser, open_browser

from postroom.db.room import Room
from postroom.delivery.shapes import DeliveryBody
from postroom.http.asgi import build_app

MAIL: dict[str, Any] = {"to": ["ann@example.org"], "subject": "Hello", "text": "Hello Ann"}
TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.fixture
async def browser(room: Room) -> Browser:
    return await open_browser(room, name="shop")


@pytest.fixture(scope="module")
async def refused(shared_room: Room) -> Browser:
    """For requests that store nothing."""
    return await open_browser(shared_room, name="shop")


async def _count(room: Room) -> int:
    count: int = await room.pool.fetchval("SELECT count(*) FROM deliveries")
    return count


async def test_accepting_answers_202_after_the_commit(browser: Browser, room: Room) -> None:
    """The response names the committed delivery; its source is the key's name."""
    response = await browser.post("/v1/deliveries", json=MAIL, headers={"traceparent": TRACE})
    assert response.status == 202
    assert response.json == {"id": response.json["id"], "status": "queued", "replayed": False}
    row = await room.pool.fetchrow("SELECT source, traceparent FROM deliveries WHERE id = $1", response.json["id"])
    assert (row["source"], row["traceparent"]) == ("shop", TRACE)


async def test_a_broken_trace_is_left_out(browser: Browser, room: Room) -> None:
    """An invalid traceparent is neither stored nor an error."""
    response = await browser.post("/v1/deliveries", json=MAIL, headers={"traceparent": "nonsense"})
    assert response.status == 202
    assert await room.pool.fetchval("SELECT traceparent FROM deliveries") is None


async def test_the_same_key_and_body_is_answered_again(browser: Browser, room: Room) -> None:
    """A replay is 200 with the first id; another body with the key is 409; another source has its own keys."""
    headers = {"idempotency-key": "order-7"}
    first = await browser.post("/v1/deliveries", json=MAIL, headers=headers)
    again = await browser.post("/v1/deliveries", json=MAIL, headers={**headers, "x-request-id": "other"})
    assert (again.status, again.json) == (200, {**first.json, "replayed": True})
    other_body = await browser.post("/v1/deliveries", json={**MAIL, "subject": "Bye"}, headers=headers)
    assert (other_body.status, other_body.json["code"]) == (409, "idempotency_conflict")
    other_source = await open_browser(room, name="crm", app=browser.app)
    assert (await other_source.post("/v1/deliveries", json=MAIL, headers=headers)).status == 202
    assert await _count(room) == 2


async def test_many_at_once_with_one_key_make_one_delivery(browser: Browser, room: Room) -> None:
    """Thirty-two requests with the same key: one row, one 202, thirty-one replays of it."""
    posts = (browser.post("/v1/deliveries", json=MAIL, headers={"idempotency-key": "k"}) for _ in range(32))
    responses = await asyncio.gather(*posts)
    assert sorted(response.status for response in responses) == [200] * 31 + [202]
    assert len({response.json["id"] for response in responses}) == 1
    assert await _count(room) == 1


async def test_two_processes_at_once_with_one_key_make_one_delivery(room: Room) -> None:
    """The database enforces idempotency between processes that share nothing else."""
    one = await open_browser(room, name="shop")
    two = Browser(build_app(room), one.key)
    headers = {"idempotency-key": "k"}
    posts = (b.post("/v1/deliveries", json=MAIL, headers=headers) for _ in range(10) for b in (one, two))
    responses = await asyncio.gather(*posts)
    assert {response.status for response in responses} == {200, 202}
    assert await _count(room) == 1


async def test_a_conflict_does_not_disturb_its_neighbours(browser: Browser, room: Room) -> None:
    """A conflict rejects only its own request among those accepted together."""
    await browser.post("/v1/deliveries", json=MAIL, headers={"idempotency-key": "taken"})
    keys = ["a", "taken", "b", "c"]
    bodies = [{**MAIL, "subject": f"Number {key}"} for key in keys]
    posts = (
        browser.post("/v1/deliveries", json=body, headers={"idempotency-key": key})
        for key, body in zip(keys, bodies, strict=True)
    )
    assert [response.status for response in await asyncio.gather(*posts)] == [202, 409, 202, 202]
    assert await _count(room) == 4


@pytest.mark.parametrize("batch", [False, True])
async def test_a_delivery_has_limits_of_its_own(browser: Browser, batch: bool) -> None:  # noqa: FBT001 - a case
    """Retry limits are accepted alone and in a batch, and shown by the delivery and the listing."""
    body = {**MAIL, "max_retries": 2, "give_up_after": 3600}
    made = await browser.post("/v1/deliveries/batch" if batch else "/v1/deliveries", json=[body] if batch else body)
    assert made.status == 202, made.body
    [line] = (await browser.get("/v1/deliveries")).json["items"]
    shown = (await browser.get(f"/v1/deliveries/{line['id']}")).json
    assert [(each["max_retries"], each["give_up_after"]) for each in (line, shown)] == [(2, 3600)] * 2


@pytest.mark.parametrize(
    "field, value", [("max_retries", -1), ("max_retries", 101), ("give_up_after", 0), ("give_up_after", 2_592_001)]
)
async def test_limits_have_limits(browser: Browser, field: str, value: int) -> None:
    """Retry limits out of range are rejected by name, and nothing is stored."""
    refused = await browser.post("/v1/deliveries", json={**MAIL, field: value})
    assert refused.status in (400, 422)
    assert refused.fields == [field]


async def test_everything_a_delivery_may_hold_is_accepted(browser: Browser) -> None:
    """The whole documented body is accepted."""
    body = {
        "to": ["Ann <ann@example.org>", "bob@example.org"],
        "cc": [],
        "bcc": ["carol@example.org"],
        "reply_to": "desk@example.org",
        "from": "Shop <shop@example.org>",
        "subject": "Grüße 🎉",
        "text": "t",
        "html": "<img src='cid:logo'>",
        "template": None,
        "variables": {},
        "locale": "fr-FR",
        "lane": "bulk",
        "send_at": "2030-01-31T09:00:00Z",
        "expires_at": "2030-02-01T09:00:00Z",
        "attachments": [
            {"filename": "l.png", "content_type": "image/png", "content": "aGVsbG8=", "content_id": "logo"}
        ],
        "headers": {"X-Campaign": "spring"},
        "tags": {"kind": "newsletter"},
        "custom_data": {"nested": [1, {"a": None}]},
    }
    assert (await browser.post("/v1/deliveries", json=body)).status == 202


@pytest.mark.parametrize(
    "send_at,status", [("9998-12-31T23:00:00Z", 202), ("9999-01-01T00:00:00Z", 400), ("1969-12-31T23:59:59Z", 400)]
)
async def test_the_years_of_a_time_are_those_of_sql(browser: Browser, send_at: str, status: int) -> None:
    """HTTP accepts the years 1970 to 9998, as `send(…)` does in SQL and in Python."""
    assert (await browser.post("/v1/deliveries", json={**MAIL, "send_at": send_at})).status == status


@pytest.mark.parametrize(
    "changes,field",
    [
        ({"to": []}, "to"),
        ({"to": "nonsense"}, "to"),
        ({"to": ["ann@example.org", "nonsense"]}, "to[1]"),
        ({"to": ["ann@example.org\r\nBcc: eve@example.org"]}, "to[0]"),
        ({"to": 1}, "to"),
        ({"to": ["ann@example.org"] * 101}, "to"),
        ({"cc": ["@"]}, "cc[0]"),
        ({"bcc": [""]}, "bcc[0]"),
        ({"reply_to": "x"}, "reply_to"),
        ({"from": "a@b@c"}, "from"),
        ({"from": "Eve\n <eve@example.org>"}, "from"),
        ({"subject": "Hello\r\nBcc: eve@example.org"}, "subject"),
        ({"subject": "x" * 999}, "subject"),
        ({"subject": 7}, "subject"),
        ({"subject": None}, "subject"),
        ({"text": None}, "text"),
        ({"text": "a\x00b"}, "text"),
        ({"html": ["<p>"]}, "html"),
        ({"text": "x" * (5 * 2**20 + 1)}, "text"),
        ({"template": "welcome"}, "subject"),
        ({"template": "../etc/passwd", "subject": None, "text": None}, "template"),
        ({"variables": []}, "variables"),
        ({"variables": {"a": "\x00"}}, "variables"),
        ({"locale": "../fr"}, "locale"),
        ({"lane": "express"}, "lane"),
        ({"send_at": "tomorrow"}, "send_at"),
        ({"send_at": "2030-01-31T09:00:00"}, "send_at"),
        ({"send_at": "9999-12-31T23:59:59-12:00"}, "send_at"),
        ({"expires_at": 1700000000}, "expires_at"),
        ({"headers": {"X-A": "b\r\nX-Evil: 1"}}, "headers.X-A"),
        ({"headers": {"Bcc": "eve@example.org"}}, "headers.Bcc"),
        ({"headers": {"X A": "b"}}, "headers.X A"),
        ({"headers": {"X-A": 1}}, "headers"),
        ({"tags": {"a": 1}}, "tags"),
        ({"tags": {str(n): "x" for n in range(51)}}, "tags"),
        ({"custom_data": "text"}, "custom_data"),
        ({"attachments": [{"filename": "a", "content_type": "text/plain"}]}, "attachments[0].content"),
        (
            {"attachments": [{"filename": "a", "content_type": "text/plain", "content": "not base64!"}]},
            "attachments[0].content",
        ),
        (
            {"attachments": [{"filename": "a\r\n", "content_type": "text/plain", "content": ""}]},
            "attachments[0].filename",
        ),
        (
            {"attachments": [{"filename": "a", "content_type": "text\r\n", "content": ""}]},
            "attachments[0].content_type",
        ),
        (
            {"attachments": [{"filename": "a", "content_type": "a/b", "content": "", "path": "/etc"}]},
            "attachments[0].path",
        ),
        ({"subject": None, "text": None, "template": "welcome", "variables": {"x": "x" * 2**18}}, "variables"),
        ({"headers": {"X-A": "x" * 2**16}}, "headers"),
        ({"tags": {"x": "x" * 2**16}}, "tags"),
        ({"custom_data": {"x": "x" * 2**16}}, "custom_data"),
        ({"idempotency_key": "k"}, "idempotency_key"),
        ({"source": "somebody-else"}, "source"),
        ({"channel": "webhook"}, "channel"),
        ({"colour": "red"}, "colour"),
    ],
)
async def test_bad_input_names_the_field_and_stores_nothing(
    refused: Browser, shared_room: Room, changes: dict[str, Any], field: str
) -> None:
    """Invalid input is 400 with the field's name, and no row is stored."""
    response = await refused.post("/v1/deliveries", json={**MAIL, **changes})
    assert response.status == 400
    assert response.headers["content-type"] == "application/problem+json"
    assert response.fields[0] == field
    assert await _count(shared_room) == 0


async def test_attachments_are_limited_together(browser: Browser, room: Room) -> None:
    """More than 25 MB of attachments is rejected by name."""
    content = base64.b64encode(b"x" * (13 * 2**20)).decode()
    files = [{"filename": f"{n}.bin", "content_type": "a/b", "content": content} for n in range(2)]
    response = await browser.post("/v1/deliveries", json={**MAIL, "attachments": files})
    assert (response.status, response.fields) == (400, ["attachments"])
    assert await _count(room) == 0


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"{",
        b"null",
        b"[]",
        b'"text"',
        b'{"to":"\xff"}',
        b'{"to":"\\ud800"}',
        b'{"to":"a@example.org"} trailing',
        b'{"variables":' + b'{"a":' * 5000 + b"1" + b"}" * 5000 + b"}",
        b'{"to":"a@example.org","template":"t","variables":' + b'{"a":' * 600 + b"1" + b"}" * 600 + b"}",
        b'{"to":"a@example.org","template":"t","variables":{"n":' + b"9" * 400 + b"}}",
        b'{"to":"a@example.org","template":"t","custom_data":{"n":' + b"9" * 30 + b"}}",
    ],
)
async def test_invalid_documents_are_refused(refused: Browser, shared_room: Room, raw: bytes) -> None:
    """Invalid, endless and unstorable documents return 400, never 500."""
    response = await refused.post("/v1/deliveries", content=raw, headers={"content-type": "application/json"})
    assert response.status == 400
    assert response.fields
    assert await _count(shared_room) == 0


@pytest.mark.parametrize("wrapped", [False, True])
async def test_a_batch_is_accepted_in_one_go(browser: Browser, room: Room, wrapped: bool) -> None:  # noqa: FBT001 - a case
    """An array or an object with `deliveries`: one answer each, in order; the header's key covers every place."""
    mails = [{**MAIL, "subject": f"Number {n}"} for n in range(3)]
    body = {"deliveries": mails} if wrapped else mails
    headers = {"idempotency-key": "night-run"}
    first = await browser.post("/v1/deliveries/batch", json=body, headers=headers)
    assert first.status == 202
    assert [(item["status"], item["replayed"]) for item in first.json["items"]] == [("queued", False)] * 3
    mails[1]["subject"] = "Changed"
    again = await browser.post("/v1/deliveries/batch", json=body, headers=headers)
    ids = [item["id"] for item in first.json["items"]]
    assert again.json["items"] == [
        {"id": ids[0], "status": "queued", "replayed": True},
        {"id": None, "status": "conflict", "replayed": False},
        {"id": ids[2], "status": "queued", "replayed": True},
    ]
    assert await _count(room) == 3


async def test_one_bad_delivery_refuses_its_batch(browser: Browser, room: Room) -> None:
    """All invalid fields of all items are named, and nothing is stored."""
    mails = [MAIL, {**MAIL, "to": ["x"]}, {**MAIL, "subject": ""}]
    listed = await browser.post("/v1/deliveries/batch", json=mails)
    assert (listed.status, listed.fields) == (400, ["[1].to[0]", "[2].subject"])
    wrapped = await browser.post("/v1/deliveries/batch", json={"deliveries": mails})
    assert wrapped.fields == ["deliveries[1].to[0]", "deliveries[2].subject"]
    single = await browser.post("/v1/deliveries/batch", json=[{**MAIL, "colour": "red"}])
    assert single.fields == ["[0].colour"]
    assert await _count(room) == 0


async def test_a_batch_has_a_size_and_its_key_a_length(browser: Browser, room: Room) -> None:
    """A batch has at most 1000 items and may be empty; its key leaves room for the position."""
    assert (await browser.post("/v1/deliveries/batch", json=[MAIL] * 1001)).status == 400
    assert (await browser.post("/v1/deliveries/batch", json=[])).json == {"items": []}
    long_key = {"idempotency-key": "k" * 251}
    refused = await browser.post("/v1/deliveries/batch", json=[MAIL], headers=long_key)
    assert (refused.status, refused.fields) == (400, ["Idempotency-Key"])
    assert await _count(room) == 0
    taken = await browser.post("/v1/deliveries/batch", json=[MAIL] * 1000)
    assert len(taken.json["items"]) == 1000


async def test_login_code_uses_lane_auth_and_expires(browser: Browser, room: Room) -> None:
    """A login code uses lane auth, template login-code, an expiry and idempotency."""
    body = {"email": "ann@example.org", "code": "123456", "locale": "fr-FR", "expires_in": 120}
    headers = {"idempotency-key": "login-1"}
    before = datetime.now(UTC)
    first = await browser.post("/v1/login-codes", json=body, headers=headers)
    after = datetime.now(UTC)
    assert (first.status, first.json["status"]) == (202, "queued")
    assert (await browser.post("/v1/login-codes", json=body, headers=headers)).status == 200
    assert (await browser.post("/v1/login-codes", json={**body, "code": "9"}, headers=headers)).status == 409
    row = await room.pool.fetchrow(
        "SELECT lane::text, template_id, locale, ladder, expires_at, "
        "variables->>'code' AS code, variables->>'minutes' AS minutes "
        "FROM deliveries JOIN delivery_payloads ON delivery_id = id"
    )
    assert (row["lane"], row["template_id"], row["locale"], row["ladder"]) == ("auth", "login-code", "fr-FR", "auth")
    assert (row["code"], row["minutes"]) == ("123456", "2")
    assert before <= row["expires_at"] - timedelta(seconds=120) <= after


@pytest.mark.parametrize(
    "changes,field",
    [
        ({"email": "nobody"}, "email"),
        ({"email": ["ann@example.org"]}, "email"),
        ({"code": ""}, "code"),
        ({"code": 123456}, "code"),
        ({"expires_in": 0}, "expires_in"),
        ({"expires_in": 86_401}, "expires_in"),
        ({"locale": "no locale"}, "locale"),
        ({"variables": {"x": "\x00"}}, "variables"),
        ({"template": "mine"}, "template"),
    ],
)
async def test_a_bad_login_code_names_its_field(
    refused: Browser, shared_room: Room, changes: dict[str, Any], field: str
) -> None:
    """Invalid fields are named as in the request, and nothing is stored."""
    body = {"email": "ann@example.org", "code": "123456", **changes}
    response = await refused.post("/v1/login-codes", json=body)
    assert (response.status, response.fields) == (400, [field])
    assert await _count(shared_room) == 0


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)
FIELDS = [*DeliveryBody.__struct_encode_fields__, "idempotency_key"]


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(changes=st.dictionaries(st.sampled_from(FIELDS) | st.text(max_size=5), JSON, min_size=1, max_size=3))
async def test_whatever_is_posted_is_stored_or_refused_by_name(
    browser: Browser, room: Room, changes: dict[str, Any]
) -> None:
    """Any JSON returns 202 with one row, or 400 with a field and no row; never 500."""
    before = await _count(room)
    response = await browser.post("/v1/deliveries", json={**MAIL, **changes})
    grown = await _count(room) - before
    assert (response.status, grown) in ((202, 1), (400, 0))
    assert response.status == 202 or response.fields
