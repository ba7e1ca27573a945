"""The archive and erasure over HTTP."""

from dataclasses import replace
from pathlib import Path

import pytest
from tests.support.archive import FEBRUARY, JANUARY, add_attempts, options_for, run
from tests.support.http import Browser, open_browser

from postroom.archive import api
from postroom.archive.service import archive_session
from postroom.db.room import Room
from postroom.http.asgi import HttpApplication
from postroom.http.auth import Authenticator


def application(room: Room, tmp_path: Path) -> HttpApplication:
    settled = replace(room, settings=replace(room.settings, archive_url=str(tmp_path / "archive")))
    return HttpApplication(settled, api.ENDPOINTS, auth=Authenticator(room.pool))


@pytest.fixture
async def browser(room: Room, tmp_path: Path) -> Browser:
    return await open_browser(room, app=application(room, tmp_path))


async def test_archive_pieces_are_listed_in_pages(browser: Browser, room: Room, tmp_path: Path) -> None:
    """The list has the order in which pieces were begun."""
    for month in (JANUARY, FEBRUARY):
        await add_attempts(room.pool, month, month.month)
    await run(room, options_for(tmp_path / "archive"))
    first = await browser.get("/v1/archive?limit=1")
    assert [(item["month"], item["rows"], item["state"]) for item in first.json["items"]] == [
        ("2030-01", 1, "archived")
    ]
    second = await browser.get(f"/v1/archive?limit=1&cursor={first.json['next_cursor']}")
    assert [item["month"] for item in second.json["items"]] == ["2030-02"]
    assert second.json["next_cursor"] is None
    assert (await browser.get("/v1/archive?table=open_events")).json["items"] == []


async def test_erasure_returns_counts_without_the_address(browser: Browser, room: Room) -> None:
    """The response is 200 with changed rows per table; response and list do not contain the address."""
    await room.pool.execute("INSERT INTO accounts (email, login) VALUES ('Ann@example.org', 'ann')")
    answer = await browser.post("/v1/erasures", json={"email": "ann@example.org"})
    assert (answer.status, answer.json["status"], answer.json["counts"]) == (200, "done", {"accounts": 1})
    shown = await browser.get(f"/v1/erasures/{answer.json['id']}")
    listed = await browser.get("/v1/erasures")
    assert shown.json == answer.json == listed.json["items"][0]
    assert (await browser.get("/v1/erasures/999")).status == 404


async def test_erasure_is_202_while_the_archive_is_busy(browser: Browser, room: Room) -> None:
    """The database is erased; the files are still to be rewritten."""
    async with archive_session(room):
        answer = await browser.post("/v1/erasures", json={"email": "ann@example.org"})
    assert (answer.status, answer.json["status"]) == (202, "running")


async def test_invalid_address_is_400_and_missing_scope_403(room: Room, tmp_path: Path, browser: Browser) -> None:
    """The error names the invalid field."""
    answer = await browser.post("/v1/erasures", json={"email": "nonsense"})
    assert (answer.status, answer.fields) == (400, ["email"])
    other = await open_browser(room, "deliveries:read", app=application(room, tmp_path), name="other")
    assert (await other.post("/v1/erasures", json={"email": "ann@example.org"})).status == 403
    assert (await other.get("/v1/archive")).status == 403
