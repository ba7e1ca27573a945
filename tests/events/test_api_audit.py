"""The audit log over HTTP and at the command line."""

import asyncio
import json
from collections.abc import Callable, Iterator

import pytest
import structlog
from tests.support.http import Browser, open_browser
from typer.testing import CliRunner, Result

from postroom.db.pool import Pool, open_pool
from postroom.db.room import Room
from postroom.events.api import ENDPOINTS
from postroom.events.audit import record_audit
from postroom.events.cli import audit
from postroom.http.asgi import HttpApplication
from postroom.http.auth import Authenticator


async def record(pool: Pool) -> None:
    async with pool.acquire() as connection:
        for actor, action, subject in (
            ("cli:ada", "delivery.cancel", "delivery:1"),
            ("key:ci", "delivery.cancel", "delivery:2"),
            ("cli:ada", "delivery.retry", "delivery:2"),
            ("cli:ada", "deliverance.begin", "delivery:3"),
        ):
            await record_audit(connection, actor=actor, action=action, subject=subject, after={"n": 1})


@pytest.fixture
async def browser(room: Room) -> Browser:
    await record(room.pool)
    return await open_browser(room, app=HttpApplication(room, ENDPOINTS, auth=Authenticator(room.pool)))


async def test_entries_are_listed_newest_first_page_by_page(browser: Browser) -> None:
    """A page names the cursor of the next one; the last page names none."""
    first = (await browser.get("/v1/audit?limit=3&actor=cli:ada&action=delivery")).json
    assert [(item["action"], item["subject"]) for item in first["items"]] == [
        ("delivery.retry", "delivery:2"),
        ("delivery.cancel", "delivery:1"),
    ]
    assert first["next_cursor"] is None
    page = (await browser.get("/v1/audit?limit=3")).json
    rest = (await browser.get(f"/v1/audit?limit=3&cursor={page['next_cursor']}")).json
    assert [item["id"] for item in page["items"] + rest["items"]][-4:] == [4, 3, 2, 1]
    assert rest["items"][-1] == {
        "id": 1,
        "at": rest["items"][-1]["at"],
        "actor": "cli:ada",
        "action": "delivery.cancel",
        "subject": "delivery:1",
        "before": None,
        "after": {"n": 1},
    }


@pytest.mark.parametrize(
    "question, found",
    [
        ("subject=delivery:2", [3, 2]),
        ("actor=key:ci", [2]),
        ("action=delivery.cancel", [2, 1]),
        ("recorded_before=2020-01-01T00:00:00Z", []),
        ("recorded_from=2020-01-01T00:00:00Z&subject=delivery:3", [4]),
    ],
)
async def test_entries_are_filtered(browser: Browser, question: str, found: list[int]) -> None:
    """Entries are filtered by actor, action, subject and time."""
    items = (await browser.get(f"/v1/audit?{question}")).json["items"]
    assert [item["id"] for item in items if item["action"].startswith("deliver")] == found


async def test_a_key_needs_the_scope(room: Room) -> None:
    """A key that may operate deliveries cannot read the audit log."""
    app = HttpApplication(room, ENDPOINTS, auth=Authenticator(room.pool))
    browser = await open_browser(room, "deliveries:operate", app=app)
    assert (await browser.get("/v1/audit")).status == 403


@pytest.fixture
def run(database_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Result]]:
    monkeypatch.setenv("POSTROOM_DATABASE_URL", database_url)
    yield lambda *arguments: CliRunner().invoke(audit, arguments)
    structlog.reset_defaults()  # a command logs to its own standard error, which is closed by now


def test_the_command_lists_what_the_api_lists(run: Callable[..., Result], database_url: str) -> None:
    """A table, or JSON with the names of the API."""

    async def fill() -> None:
        async with await open_pool(database_url, "postroom", size=1) as pool:
            await record(pool)

    asyncio.run(fill())
    listed = json.loads(run("list", "--actor", "cli:ada", "--action", "delivery", "--limit", "1", "--json").output)
    assert [item["action"] for item in listed["items"]] == ["delivery.retry"]
    more = json.loads(
        run("list", "--actor", "cli:ada", "--action", "delivery", "--cursor", listed["next_cursor"], "--json").output
    )
    assert [item["subject"] for item in more["items"]] == ["delivery:1"]
    assert "delivery.retry" in run("list", "--since", "2020-01-01T00:00:00Z").output
    assert "delivery.retry" not in run("list", "--before", "2020-01-01T00:00:00Z").output
