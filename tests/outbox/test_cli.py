"""The outbox and webhooks at the command line."""

import asyncio
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime

import pytest
import structlog
import typer
from tests.support.outbox import append
from typer.testing import CliRunner, Result

from postroom.db.pool import open_pool
from postroom.errors import BadInput
from postroom.events import EventStore, SequencedEvent
from postroom.outbox.api import ProgressShape
from postroom.outbox.cli import outbox
from postroom.outbox.errors import NotNext, ProgressNotFound, TopicExists, TopicNeeded, TopicNotFound
from postroom.outbox.publisher import make_batch
from postroom.outbox.webhooks.api import WebhookDeliveryShape, WebhookShape, WebhookWithSecret
from postroom.outbox.webhooks.cli import webhooks
from postroom.outbox.webhooks.publisher import WebhookPublisher

Run = Callable[..., Result]


@pytest.fixture
def run(database_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Run]:
    """Run `outbox …` or `webhooks …` in the test's room."""
    monkeypatch.setenv("POSTROOM_DATABASE_URL", database_url)
    monkeypatch.setenv("POSTROOM_SECRET_KEY", "00" * 32)
    groups: dict[str, typer.Typer] = {"outbox": outbox, "webhooks": webhooks}

    def command(group: str, *arguments: str) -> Result:
        return CliRunner().invoke(groups[group], arguments)

    yield command
    structlog.reset_defaults()  # a command logs to its own standard error, which is closed by now


async def _append(url: str, count: int) -> list[int]:
    pool = await open_pool(url, "postroom", size=1)
    try:
        return await append(EventStore(pool), count)
    finally:
        await pool.close()


async def _publish(url: str, topic: str) -> None:
    """Create a webhook for the next event."""
    pool = await open_pool(url, "postroom", size=1)
    try:
        async with pool.acquire() as connection, connection.transaction():
            event = SequencedEvent(1, 1, datetime.now(UTC), "Deposited", (), {"n": 1}, None, None)
            batch = make_batch(topic, [event], source="tests")
            await WebhookPublisher().publish(replace(batch, connection=connection))
    finally:
        await pool.close()


def test_json_output_has_the_names_of_the_api(run: Run, database_url: str) -> None:
    """With --json, endpoints and their deliveries have the field names of the API."""
    run("outbox", "topics", "create", "money")
    made = json.loads(run("webhooks", "register", "https://example.org/h", "--topic", "money", "--json").output)
    assert set(made) == set(WebhookWithSecret.__struct_fields__)
    asyncio.run(_publish(database_url, "money"))
    (posted,) = json.loads(run("webhooks", "deliveries", "1", "--json").output)["items"]
    assert (tuple(posted), posted["status"]) == (WebhookDeliveryShape.__struct_fields__, "queued")
    assert "queued" in run("webhooks", "deliveries", "1").output
    (listed,) = json.loads(run("webhooks", "list", "--json").output)["items"]
    assert tuple(listed) == WebhookShape.__struct_fields__


def test_operator_manages_a_topic_and_its_publisher(run: Run, database_url: str) -> None:
    """An operator creates a topic, lists its lag, pauses, resumes, resets, skips and deletes it."""
    saved = run("outbox", "topics", "create", "money", "--publisher", "log", "--start", "beginning")
    assert saved.output == "created: money matches every event\n", saved.output
    first, second = asyncio.run(_append(database_url, 2))
    (line,) = json.loads(run("outbox", "list", "--json").output)["items"]
    assert (line["topic"], line["publisher"], line["status"], line["lag_events"]) == ("money", "log", "ACTIVE", 2)
    assert tuple(line) == ProgressShape.__struct_fields__
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


def test_adding_a_publisher_keeps_the_topic(run: Run) -> None:
    """Adding a publisher keeps the conditions; creating an existing topic fails; a change prints the old conditions."""
    run("outbox", "topics", "create", "money", "--type", "Paid", "--type", "Refunded", "--publisher", "log")
    assert run("outbox", "topics", "add-publisher", "money", "redis", "--start", "beginning").output == "added\n"
    assert "already" in run("outbox", "topics", "add-publisher", "money", "redis").output
    assert isinstance(run("outbox", "topics", "create", "money", "--type", "Paid").exception, TopicExists)
    assert isinstance(run("outbox", "topics", "change", "money").exception, BadInput)
    assert isinstance(run("outbox", "topics", "change", "other", "--type", "A").exception, TopicNotFound)
    (topic,) = json.loads(run("outbox", "topics", "list", "--json").output)["items"]
    assert (topic["types"], topic["publishers"]) == (["Paid", "Refunded"], ["log", "redis"])
    changed = run("outbox", "topics", "change", "money", "--type", "Paid")
    was, now = "events of type Paid or Refunded", "events of type Paid"
    assert changed.output == f"changed: money matched {was}, and now matches {now}\n"
    assert "now matches every event" in run("outbox", "topics", "change", "money", "--everything").output


def test_a_topic_used_by_endpoints_is_kept(run: Run) -> None:
    """Deleting a used topic or publisher needs --force; then the listing shows the topic as silent."""
    run("outbox", "topics", "create", "money")
    run("webhooks", "register", "https://example.org/h", "--topic", "money")
    refused = run("outbox", "topics", "delete", "money").exception
    assert isinstance(refused, TopicNeeded)
    assert "webhook endpoint 1" in str(refused)
    assert isinstance(run("outbox", "topics", "remove-publisher", "money", "webhook").exception, TopicNeeded)
    assert json.loads(run("webhooks", "list", "--json").output)["items"][0]["silent_topics"] == []
    assert run("outbox", "topics", "delete", "money", "--force").output == "deleted\n"
    assert json.loads(run("webhooks", "list", "--json").output)["items"][0]["silent_topics"] == ["money"]
    run("outbox", "topics", "create", "money")
    assert json.loads(run("webhooks", "list", "--json").output)["items"][0]["silent_topics"] == []


def test_rules(run: Run) -> None:
    """Rules are added, listed and deleted."""
    run("outbox", "topics", "create", "money")
    added = run("outbox", "rules", "add", "money", "--type", "Paid", "--template", "welcome", "--recipient", "a.b")
    assert added.output == "1\n", added.output
    unknown = run("outbox", "rules", "add", "money", "--type", "Paid", "--template", "wellcome", "--recipient", "a.b")
    assert isinstance(unknown.exception, BadInput)
    assert "welcome" in str(unknown.exception)
    assert json.loads(run("outbox", "rules", "list", "--json").output)["items"][0]["recipient_path"] == "a.b"
    assert "welcome" in run("outbox", "rules", "list").output
    assert run("outbox", "rules", "delete", "1").output == "deleted\n"


def test_webhooks(run: Run) -> None:
    """Endpoints are registered with a secret shown once, rotated, disabled and deleted."""
    run("outbox", "topics", "create", "money")
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
    assert isinstance(run("webhooks", "rotate", "1", "--overlap", "31d").exception, BadInput)
    assert run("webhooks", "delete", "1").output == "deleted\n"


def test_a_webhook_is_changed(run: Run) -> None:
    """Only the given values change; the listing shows the format."""
    run("outbox", "topics", "create", "money")
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
