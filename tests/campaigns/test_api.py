"""HTTP endpoints of campaigns."""

from collections.abc import AsyncIterator

import aiohttp
import pytest
from tests.support.builders import Recording
from tests.support.campaigns import HTML, SECRET, a_campaign_worker, csv_of
from tests.support.http import Browser, open_browser
from tests.support.served import served

from postroom.campaigns.api import ENDPOINTS
from postroom.campaigns.worker import Feeder
from postroom.db.room import Room, open_room
from postroom.delivery.model import Lane
from postroom.http.asgi import build_app
from postroom.runtime.endpoint import Endpoint
from postroom.settings import Settings

NEWS = {
    "name": "Spring",
    "from": "News <news@example.org>",
    "subject": "News for {{ first_name }}",
    "html": HTML,
}
CSV = {"content-type": "text/csv; charset=utf-8"}


def _wired(room: Room) -> list[Endpoint]:
    """The application with the endpoints of campaigns."""
    from postroom.http import asgi

    return [] if hasattr(asgi, "campaigns_api") else ENDPOINTS


@pytest.fixture
async def keyed_room(database_url: str) -> AsyncIterator[Room]:
    """A room with a secret key, which signs the links of campaigns."""
    async with open_room(Settings(database_url=database_url, secret_key=SECRET)) as opened:
        yield opened


@pytest.fixture
async def browser(keyed_room: Room) -> Browser:
    return await open_browser(keyed_room, app=build_app(keyed_room, more=_wired(keyed_room)))


async def created(browser: Browser, **fields: object) -> int:
    answer = await browser.post("/v1/campaigns", json={**NEWS, **fields})
    assert answer.status == 201, answer.body
    campaign_id: int = answer.json["id"]
    return campaign_id


async def test_campaign_lifecycle_over_http(browser: Browser, keyed_room: Room) -> None:
    """A campaign is created, filled, previewed, started, sent and reported."""
    answer = await browser.post("/v1/campaigns", json=NEWS)
    assert (answer.status, answer.json["status"], answer.json["from"]) == (201, "draft", "News <news@example.org>")
    path = answer.headers["location"]
    uploaded = await browser.post(f"{path}/recipients", content=csv_of(3) + b"wrong\n", headers=CSV)
    assert uploaded.json == {
        "total": 4, "added": 3, "duplicate": 0, "invalid": 1, "suppressed": 0, "fields": ["first_name"],
        "refused": [{"line": 5, "field": "line", "message": "has 1 fields; the header has 2", "value": ""}],
    }  # fmt: skip
    shown = await browser.get(f"{path}/preview?email=p1@example.org")
    assert shown.json["subject"] == "News for Name1"
    shown = await browser.post(f"{path}/preview", json={"variables": {"first_name": "Eve"}})
    assert shown.json["subject"] == "News for Eve"
    assert [item["code"] for item in (await browser.get(f"{path}/lint")).json["items"]] == ["no_text"]
    tested = await browser.post(f"{path}/test", json={"to": ["me@example.org"]})
    assert (tested.status, len(tested.json["delivery_ids"])) == (202, 1)

    started = await browser.post(f"{path}/start")
    assert started.status == 200
    told = {name: started.json[name] for name in ("status", "total", "suppressed", "duplicate", "invalid", "queued")}
    assert told == {"status": "active", "total": 3, "suppressed": 0, "duplicate": 0, "invalid": 1, "queued": 3}
    assert started.json["estimate"]["seconds"] >= 0
    await Feeder(keyed_room.pool).run_once()
    await a_campaign_worker(keyed_room.pool, Recording()).run_once(Lane.BULK)
    whole = (await browser.get(path)).json
    assert whole["counts"] == {
        "total": 3, "queued": 0, "sent": 3, "bounced": 0, "failed": 0, "cancelled": 0, "suppressed": 0,
    }  # fmt: skip
    assert whole["opens"] == whole["clicks"] == {"total": 0, "unique": 0, "machine": 0}
    assert (whole["unsubscribes"], whole["complaints"]) == (0, 0)
    listed = (await browser.get(f"{path}/recipients?state=fed&limit=2")).json
    assert [item["email"] for item in listed["items"]] == ["p0@example.org", "p1@example.org"]
    assert listed["next_cursor"] is not None
    [item] = (await browser.get("/v1/campaigns?status=active")).json["items"]
    assert item["counts"]["sent"] == 3


async def test_upload_accepts_json_lines_by_media_type(browser: Browser) -> None:
    """JSON lines are accepted by their media type; an unknown type is rejected."""
    campaign = await created(browser)
    lines = b'{"email":"ann@example.org","first_name":"Ann"}\n'
    path = f"/v1/campaigns/{campaign}/recipients"
    answer = await browser.post(path, content=lines, headers={"content-type": "application/x-ndjson"})
    assert (answer.status, answer.json["added"]) == (200, 1)
    assert (await browser.post(path, content=lines, headers={"content-type": "application/json"})).status == 415


async def test_invalid_transitions_return_409(browser: Browser) -> None:
    """Pause, resume and cancel return the campaign; an invalid transition returns 409, an unknown campaign 404."""
    campaign = await created(browser)
    path = f"/v1/campaigns/{campaign}"
    assert (await browser.post(f"{path}/start")).status == 400  # it has no recipients
    await browser.post(f"{path}/recipients", content=csv_of(2), headers=CSV)
    assert (await browser.post(f"{path}/pause")).status == 409
    for step, status in (("start", "active"), ("pause", "paused"), ("resume", "active"), ("cancel", "cancelled")):
        answer = await browser.post(f"{path}/{step}")
        assert (answer.status, answer.json["status"]) == (200, status)
    assert (await browser.ask("PATCH", path, json={"subject": "x"})).status == 409
    assert (await browser.ask("DELETE", path)).status == 409
    assert (await browser.post("/v1/campaigns/404/start")).status == 404


async def test_patch_keeps_absent_fields_and_clears_null(browser: Browser) -> None:
    """A patch keeps fields that are absent and clears those that are null; a draft can be deleted."""
    campaign = await created(browser, text="plain", reply_to="help@example.org")
    path = f"/v1/campaigns/{campaign}"
    changes = {"text": None, "reply_to": None, "tracking": False, "local_time": "09:30", "from": "a@example.org"}
    changed = await browser.ask("PATCH", path, json=changes)
    found = {name: changed.json[name] for name in ("text", "reply_to", "tracking", "local_time", "from", "html")}
    assert found == {
        "text": None, "reply_to": None, "tracking": False, "local_time": "09:30", "from": "a@example.org", "html": HTML,
    }  # fmt: skip
    assert (await browser.ask("DELETE", path)).status == 204
    assert (await browser.get(path)).status == 404


@pytest.mark.parametrize(
    "wrong, field",
    [
        ({"from": "nobody"}, "from"),
        ({"local_time": "nine"}, "local_time"),
        ({"html": "{{ a"}, "html"),
        ({"time_zone": "Moon"}, "time_zone"),
        ({"nonsense": 1}, "nonsense"),
    ],
)
async def test_invalid_fields_are_named(browser: Browser, wrong: dict[str, object], field: str) -> None:
    """The error names the invalid field."""
    answer = await browser.post("/v1/campaigns", json={**NEWS, **wrong})
    assert answer.status == 400
    assert field in answer.fields


async def test_read_and_write_need_separate_scopes(keyed_room: Room) -> None:
    """A key with a read scope cannot start a campaign."""
    app = build_app(keyed_room, more=_wired(keyed_room))
    reader = await open_browser(keyed_room, "campaigns:read", app=app)
    assert (await reader.get("/v1/campaigns")).status == 200
    assert (await reader.post("/v1/campaigns", json=NEWS)).status == 403


async def test_large_chunked_upload_is_streamed(browser: Browser) -> None:
    """An upload beyond the body limit is streamed in chunks without a Content-Length."""
    campaign = await created(browser)

    async def pieces() -> AsyncIterator[bytes]:
        yield b"email,first_name,note\n"
        for start in range(0, 20_000, 500):
            yield b"".join(b"p%d@example.org,Ann,%s\n" % (n, b"x" * 1500) for n in range(start, start + 500))

    async with served(browser.app) as url, aiohttp.ClientSession() as session:
        headers = {**CSV, "authorization": f"Bearer {browser.key}"}
        async with session.post(f"{url}/v1/campaigns/{campaign}/recipients", data=pieces(), headers=headers) as answer:
            assert answer.status == 200
            assert (await answer.json())["added"] == 20_000
