"""People over HTTP."""

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest
from tests.support.http import Browser, open_browser

from postroom.db.room import Room
from postroom.http.asgi import build_app
from postroom.schedule.api import ENDPOINTS

ADA = {
    "first_name": "Ada",
    "last_name": "Lovelace",
    "date_of_birth": "1815-12-10",
    "timezone": "Europe/London",
}


@pytest.fixture
async def browser(room: Room) -> Browser:
    bare = build_app(room)
    is_wired = any(endpoint.path == "/v1/users" for endpoint in bare.endpoints)
    return await open_browser(room, app=bare if is_wired else build_app(room, more=ENDPOINTS))


async def made(browser: Browser, **fields: Any) -> Any:
    response = await browser.post("/v1/users", json=ADA | fields)
    assert response.status == 201
    return response.json


async def test_creating_answers_with_the_person(browser: Browser) -> None:
    """The response is 201 with the person, an ETag and a Location."""
    response = await browser.post("/v1/users", json=ADA | {"email": "ada@example.org"})
    assert response.status == 201
    user = response.json
    assert {**ADA, "email": "ada@example.org", "webhook_url": None, "version": 1}.items() <= user.items()
    assert {"id", "created_at", "updated_at"} <= set(user)
    assert (response.headers["etag"], response.headers["location"]) == ('"1"', f"/v1/users/{user['id']}")
    assert (await browser.get(f"/v1/users/{user['id']}")).json == user


WRONG: list[tuple[str, Any]] = [
    ("timezone", "EST"),
    ("timezone", "Foo+3"),
    ("timezone", 3),
    ("date_of_birth", "10.12.1815"),
    ("date_of_birth", "1815-02-30"),
    ("date_of_birth", "2999-01-01"),
    ("first_name", ""),
    ("first_name", "  "),
    ("last_name", "x" * 101),
    ("email", "nobody"),
    ("webhook_url", "javascript:alert(1)"),
    ("nickname", "Countess"),
]


async def test_a_wrong_field_is_named(browser: Browser) -> None:
    """An invalid field is 400 with its name, for create and change."""
    user = await made(browser)
    for field, value in WRONG:
        for method, path, body in (("POST", "", ADA | {field: value}), ("PUT", f"/{user['id']}", {field: value})):
            response = await browser.ask(method, f"/v1/users{path}", json=body)
            assert (response.status, response.fields) == (400, [field]), (method, field, value)


async def test_a_missing_field_is_named(browser: Browser) -> None:
    """Each of the four required fields is named if it is missing."""
    for field in ADA:
        response = await browser.post("/v1/users", json={name: value for name, value in ADA.items() if name != field})
        assert (response.status, response.fields) == (400, [field])


async def test_change_counts_moved_events(browser: Browser) -> None:
    """All fields are optional; the response counts moved and skipped events."""
    user = await made(browser, email="ada@example.org")
    response = await browser.ask("PUT", f"/v1/users/{user['id']}", json={"timezone": "Asia/Tokyo", "email": None})
    assert response.status == 200
    changed = response.json
    assert (changed["timezone"], changed["email"], changed["version"]) == ("Asia/Tokyo", None, 2)
    assert (changed["events_moved"], changed["events_skipped"]) == (1, 0)
    nothing = await browser.ask("PUT", f"/v1/users/{user['id']}", json={})
    assert (nothing.status, nothing.json["version"], nothing.json["events_moved"]) == (200, 2, 0)


VERSIONS: list[tuple[dict[str, Any], dict[str, str], int]] = [
    ({"version": 1}, {}, 200),
    ({"version": 2}, {}, 409),
    ({}, {"if-match": '"1"'}, 200),
    ({}, {"if-match": "1"}, 200),
    ({}, {"if-match": "*"}, 200),
    ({}, {"if-match": '"7"'}, 409),
    ({}, {"if-match": "seven"}, 400),
    ({"version": 0}, {}, 400),
]


async def test_a_version_guards_a_change(browser: Browser) -> None:
    """An old version in the body or in If-Match is a conflict."""
    for body, headers, status in VERSIONS:
        user = await made(browser)
        change = {"first_name": "A", **body}
        response = await browser.ask("PUT", f"/v1/users/{user['id']}", json=change, headers=headers)
        assert response.status == status, (body, headers)
        assert status != 409 or response.json["code"] == "version_conflict"


async def test_events_are_listed_latest_first(browser: Browser) -> None:
    """Planned events have a local time without a zone."""
    tomorrow = datetime.now(UTC) + timedelta(days=1)
    day = "2000-03-01" if (tomorrow.month, tomorrow.day) == (2, 29) else tomorrow.strftime("2000-%m-%d")
    user = await made(browser, date_of_birth=day, timezone="UTC")
    page = (await browser.get(f"/v1/users/{user['id']}/events")).json
    [event] = page["items"]
    assert page["next_cursor"] is None
    assert (event["kind"], event["status"], event["retry_count"], event["late"]) == ("BIRTHDAY", "PENDING", 0, False)
    assert event["target_local"].endswith("T09:00:00")
    assert event["target_utc"].endswith("T09:00:00Z")
    assert event["idempotency_key"].startswith(f"birthday:{user['id']}:")


async def test_deleted_person_is_not_found(browser: Browser) -> None:
    """Delete is 204 without a body; then the person and their events are 404."""
    user = await made(browser)
    response = await browser.ask("DELETE", f"/v1/users/{user['id']}")
    assert (response.status, response.body) == (204, b"")
    for method, path in (("GET", ""), ("DELETE", ""), ("GET", "/events")):
        assert (await browser.ask(method, f"/v1/users/{user['id']}{path}")).status == 404


async def test_unknown_or_invalid_id_is_404(browser: Browser) -> None:
    """An unknown id and an invalid id are both 404."""
    assert (await browser.get(f"/v1/users/{uuid4()}")).json["code"] == "user_not_found"
    assert (await browser.get("/v1/users/42")).status == 404


async def test_people_are_listed_in_pages(browser: Browser) -> None:
    """Pages are newest first and have every person once."""
    made_ids = [(await made(browser))["id"] for _ in range(3)]
    first = (await browser.get("/v1/users?limit=2")).json
    rest = (await browser.get(f"/v1/users?limit=2&cursor={first['next_cursor']}")).json
    assert [user["id"] for user in (*first["items"], *rest["items"])] == made_ids[::-1]
    assert (await browser.get("/v1/users?cursor=nonsense")).status == 400


async def test_paths_are_in_the_openapi_document(browser: Browser) -> None:
    """The OpenAPI document has every path of people."""
    paths = (await browser.get("/openapi.json")).json["paths"]
    assert {"/v1/users", "/v1/users/{user_id}", "/v1/users/{user_id}/events"} <= set(paths)


async def test_occasions_are_added_listed_and_removed(browser: Browser) -> None:
    """An anniversary is planned at once; removing it deletes its events."""
    user = await made(browser)
    path = f"/v1/users/{user['id']}/occasions"
    added = await browser.post(path, json={"kind": "ANNIVERSARY", "rule": {"date": "2020-06-01"}, "message": "Hurrah"})
    assert (added.status, added.json["kind"], added.json["message"]) == (201, "ANNIVERSARY", "Hurrah")
    assert (await browser.get(path)).json["items"] == [added.json]
    kinds = [event["kind"] for event in (await browser.get(f"/v1/users/{user['id']}/events")).json["items"]]
    assert sorted(kinds) == ["ANNIVERSARY", "BIRTHDAY"]
    assert (await browser.ask("DELETE", f"{path}/{added.json['id']}")).status == 204
    assert (await browser.get(path)).json["items"] == []
    assert (await browser.ask("DELETE", f"{path}/{added.json['id']}")).status == 404


@pytest.mark.parametrize(
    "body,field",
    [
        ({"kind": "WEDDING", "rule": {}}, "kind"),
        ({"kind": "REMINDER", "rule": {}}, "rule"),
        ({"kind": "REMINDER", "rule": {"at": "2027-01-31T09:00:00Z"}}, "rule"),
        ({"kind": "REMINDER", "rule": {"at": "9999-12-31T23:59:00"}}, "rule"),
        ({"kind": "RECURRING", "rule": {"every": "year", "start": "2026-01-01"}}, "rule"),
        ({"kind": "ANNIVERSARY", "rule": {"date": "2020-06-01"}, "message": "x" * 2001}, "message"),
    ],
)
async def test_invalid_occasion_is_400_with_its_field(browser: Browser, body: object, field: str) -> None:
    """An invalid occasion is rejected with its field, and not stored."""
    user = await made(browser)
    answer = await browser.post(f"/v1/users/{user['id']}/occasions", json=body)
    assert (answer.status, answer.fields) == (400, [field])
    assert (await browser.get(f"/v1/users/{user['id']}/occasions")).json["items"] == []


async def test_occasions_of_an_unknown_person_are_404(browser: Browser) -> None:
    """Listing the occasions of an unknown person is 404."""
    assert (await browser.get(f"/v1/users/{uuid4()}/occasions")).status == 404


async def test_an_event_is_listed_moved_and_cancelled(browser: Browser) -> None:
    """Changes need the current version: a stale or ended event is 409, an unknown one 404."""
    user = await made(browser)
    [event] = (await browser.ask("GET", "/v1/scheduled-events?status=PENDING&kind=birthday&order=soonest")).json[
        "items"
    ]
    assert (event["user_id"], event["version"], event["moved_from"]) == (user["id"], 1, None)
    path = f"/v1/scheduled-events/{event['id']}"
    assert (await browser.ask("GET", path)).json == event
    body = {"at": "2100-02-03T04:05:00", "version": 1}
    moved = await browser.ask("POST", f"{path}/move", json=body)
    assert (moved.status, moved.json["target_local"], moved.json["version"]) == (200, "2100-02-03T04:05:00", 2)
    assert moved.json["moved_from"] == event["target_local"]
    stale = await browser.ask("POST", f"{path}/move", json=body)
    assert (stale.status, stale.json["code"]) == (409, "version_conflict")
    cancelled = await browser.ask("POST", f"{path}/cancel", json={"version": 2})
    assert cancelled.status == 200
    assert cancelled.json["failure_reason"].startswith("cancelled: by key:")
    assert (await browser.ask("POST", f"{path}/cancel", json={})).status == 409
    listed = (await browser.ask("GET", f"/v1/users/{user['id']}/events")).json["items"]
    assert sorted(each["status"] for each in listed) == ["FAILED", "PENDING"]
    assert (await browser.ask("GET", "/v1/scheduled-events?status=FAILED&late=true")).json["items"] == []
    unknown = await browser.ask("GET", f"/v1/scheduled-events/{uuid4()}")
    assert (unknown.status, unknown.json["code"]) == (404, "scheduled_event_not_found")


WRONG_REQUESTS = [
    ("at", {"at": "2100-02-03T04:05:00Z", "version": 1}),
    ("at", {"at": "2000-02-03T04:05:00", "version": 1}),
    ("version", {"at": "2100-02-03T04:05:00"}),
]


@pytest.mark.parametrize("field, body", WRONG_REQUESTS)
async def test_a_wrong_move_names_its_field(browser: Browser, field: str, body: dict[str, Any]) -> None:
    """A time with a zone, a time in the past and a missing version are rejected with the field."""
    await made(browser)
    [event] = (await browser.ask("GET", "/v1/scheduled-events")).json["items"]
    refused = await browser.ask("POST", f"/v1/scheduled-events/{event['id']}/move", json=body)
    assert refused.status == 400
    assert [error["field"] for error in refused.json["errors"]] == [field]
