"""The outbox and webhooks at the command line."""

import asyncio
import json
from collections.abc import Callable, Iterator

import pytest
import structlog
import typer
from tests.support.outbox import append
from typer.testing import CliRunner, Result

from postroom.db.pool import open_pool
from postroom.errors import BadInput, NotNext, ProgressNotFound
from postroom.events import EventStore
from postroom.outbox.cli import outbox
from postroom.outbox.webhooks.cli import webhooks

Run = Callable[..., Result]


@pytest.fixture
def run(database_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Run]:
    """Runs `outbox …` or `webhooks …` in the test's room."""
    monkeypatch.setenv("POSTROOM_DATABASE_URL", database_url)
    monkeypatch.setenv("POSTROOM_SECRET_KEY", "00" * 32)
    groups: dict[str, typer.Typer] = {"outbox": outbox, "webhooks": webhooks}

    def command(group: str, *arguments: str) -> Result:
        return CliRunner().invoke(groups[group], arguments)

    yield command
    structlog.reset_defaults()  # a command logs to its own standard error, which is gone now


async def _append(url: str, count: int) -> list[int]:
    pool = await open_pool(url, "postroom", size=1)
    try:
        return await append(EventStore(pool), count)
    finally:
        await pool.close()


def test_an_operator_s_day(run: Run, database_url: str) -> None:
    """Make a topic, see it lag, pause, resume, reset, skip, and remove it."""
    saved = run("outbox", "topics", "save", "money", "--publisher", "log", "--start", "beginning", "--key", "wallet")
    assert saved.output == "saved\n", saved.output
    assert run("outbox", "topics", "save", "money").exit_code == 0
    first, second = asyncio.run(_append(database_url, 2))
    (line,) = json.loads(run("outbox", "list", "--json").output)["items"]
    assert (line["topic"], line["publisher"], line["status"], line["lag_events"]) == ("money", "log", "ACTIVE", 2)
    assert "money" in run("outbox", "list").output
    assert run("outbox", "pause", "money", "log").output == "paused\n"
    assert run("outbox", "resume", "money", "log").output == "resumed\n"
    assert run("outbox", "skip", "money", "log", "--position", str(first)).output == (
        f"skipped Deposited at position {first}\n"
    )
    assert isinstance(run("outbox", "skip", "money", "log", "--position", str(first)).exception, NotNext)
    assert "nothing will be published twice" in run("outbox", "reset", "money", "log", "--to", str(second)).output
    assert "published again" in run("outbox", "reset", "money", "log", "--to", "0").output
    assert run("outbox", "topics", "remove-publisher", "money", "log").output == "removed\n"
    assert isinstance(run("outbox", "pause", "money", "log").exception, ProgressNotFound)
    assert json.loads(run("outbox", "topics", "list", "--json").output)["items"][0]["name"] == "money"
    assert run("outbox", "topics", "delete", "money").output == "deleted\n"


def test_rules(run: Run) -> None:
    """Added, listed, forgotten."""
    run("outbox", "topics", "save", "money")
    added = run("outbox", "rules", "add", "money", "--type", "Paid", "--template", "welcome", "--recipient", "a.b")
    assert added.output == "1\n", added.output
    assert json.loads(run("outbox", "rules", "list", "--json").output)["items"][0]["recipient_path"] == "a.b"
    assert "welcome" in run("outbox", "rules", "list").output
    assert run("outbox", "rules", "delete", "1").output == "deleted\n"


def test_webhooks(run: Run) -> None:
    """Registered with a secret shown once, rotated, disabled, forgotten."""
    run("outbox", "topics", "save", "money")
    made = json.loads(run("webhooks", "register", "https://example.org/h", "--topic", "money", "--json").output)
    assert made["secret"].startswith("whsec_")
    rotated = run("webhooks", "rotate", "1", "--overlap", "1h").output.split()
    assert rotated[1].startswith("whsec_")
    assert rotated[1] != made["secret"]
    listed = run("webhooks", "list", "--json").output
    assert made["secret"] not in listed
    assert [item["id"] for item in json.loads(listed)["items"]] == [1]
    assert run("webhooks", "disable", "1").output == "disabled\n"
    assert "disabled" in run("webhooks", "list").output
    assert run("webhooks", "enable", "1").output == "enabled\n"
    assert json.loads(run("webhooks", "deliveries", "1", "--json").output)["items"] == []
    assert run("webhooks", "rotate", "1", "--overlap", "soon").exit_code == 2
    assert run("webhooks", "delete", "1").output == "deleted\n"


def test_a_webhook_is_changed(run: Run) -> None:
    """What is given changes, the rest stays; the listing shows the format."""
    run("outbox", "topics", "save", "money")
    arguments = ("register", "https://example.org/h", "--topic", "money", "--format")
    assert run("webhooks", *arguments, "cloudevents").exit_code == 0
    assert "cloudevents" in run("webhooks", "list").output
    assert run("webhooks", "change", "1", "--url", "https://example.org/i").output == "changed\n"
    (item,) = json.loads(run("webhooks", "list", "--json").output)["items"]
    assert [item[name] for name in ("url", "topics", "format")] == ["https://example.org/i", ["money"], "cloudevents"]
    run("webhooks", "change", "1", "--format", "standard")
    assert json.loads(run("webhooks", "list", "--json").output)["items"][0]["format"] == "standard"
    for refused in (run("webhooks", *arguments, "xml"), run("webhooks", "change", "1", "--format", "xml")):
        assert isinstance(refused.exception, BadInput)
        assert "format" in str(refused.exception)
