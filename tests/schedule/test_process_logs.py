"""Logs contain no personal data, on every path of a person through the product."""

import asyncio
import logging
from datetime import UTC, date, datetime
from functools import partial
from pathlib import Path
from uuid import uuid4

import pytest
from structlog.testing import capture_logs
from tests.support.builders import a_worker
from tests.support.http import open_browser
from tests.support.schedule import NINE, POSTING, person, scheduler, utc
from tests.support.webhook_server import PATIENCE, Receiver, receiving
from typer.testing import CliRunner

from postroom.db.pool import Pool
from postroom.db.room import Room
from postroom.delivery.worker import WorkerOptions
from postroom.outbox.webhooks.writer import compose as compose_webhook
from postroom.schedule import engine, service, store
from postroom.schedule.cli import users
from postroom.schedule.model import SchedulePolicy
from postroom.transports.webhook.transport import WebhookTransport

ZERLINA = {
    "first_name": "Zerlina",
    "last_name": "Quux",
    "date_of_birth": "1971-11-15",
    "timezone": "Europe/London",
    "email": "zerlina@example.org",
}
PERSONAL = ("Zerlina", "Quux", "1971", "zerlina", "Masetto")


async def test_api_logs_no_personal_data(room: Room, caplog: pytest.LogCaptureFixture) -> None:
    """Creating, changing, planning, deleting and rejecting people logs no names."""
    caplog.set_level(logging.INFO)
    browser = await open_browser(room)
    with capture_logs() as said:
        made = await browser.post("/v1/users", json=ZERLINA)
        path = f"/v1/users/{made.json['id']}"
        changed = await browser.ask("PUT", path, json={"first_name": "Masetto"})
        refused = await browser.ask("PUT", path, json={"date_of_birth": "1971-02-31", "last_name": "Quux\n"})
        rule = {"date": "1971-06-01"}
        added = await browser.post(f"{path}/occasions", json={"kind": "ANNIVERSARY", "rule": rule, "message": "Quux"})
        gone = await browser.ask("DELETE", path)
    assert [answer.status for answer in (made, changed, refused, added, gone)] == [201, 200, 400, 201, 204]
    assert not any(word in f"{said} {caplog.text}" for word in PERSONAL)


async def test_scheduler_logs_no_personal_data(pool: Pool, caplog: pytest.LogCaptureFixture) -> None:
    """Refresh, handover, recovery and planning errors log no names."""
    caplog.set_level(logging.INFO)
    await _stored(pool, POSTING)
    await _stored(pool, POSTING)
    work = scheduler(pool)
    await work.refresh()
    await pool.execute("UPDATE schedule_state SET basis = 'older'")
    with capture_logs() as said:
        await work.refresh()
        async with pool.acquire() as connection:
            await store.claim_due(connection, claim_id=uuid4(), lease=engine.LEASE, now=utc("2026-11-15T08:00"))
            await store.claim_due(connection, claim_id=uuid4(), lease=engine.LEASE, now=utc("2026-11-15T09:00"))
        later = scheduler(pool, "2026-11-15T09:30")
        await later.recover()
        await later.run_once()
        await pool.execute("DELETE FROM scheduled_events WHERE status = 'PENDING'")
        await later.audit()
        await pool.execute(
            "INSERT INTO user_occasions (user_id, event_type, message, rule)"
            " SELECT id, 'ANNIVERSARY', 'Masetto', '{\"date\": \"1971\"}' FROM users"
        )
        await later.sweep()
    assert {entry["event"] for entry in said} == {
        "plan_refreshed", "events_recovered", "events_handed_over", "users_without_plan", "user_unplannable",
        "users_planned",
    }  # fmt: skip
    assert not any(word in f"{said} {caplog.text}" for word in PERSONAL)


@pytest.mark.parametrize("receiver", [Receiver(), Receiver(status=404), Receiver(status=503), Receiver(drops=True)])
async def test_delivery_worker_logs_no_personal_data(
    pool: Pool, caplog: pytest.LogCaptureFixture, receiver: Receiver
) -> None:
    """Attempts log no names, even if the receiver repeats the name in its response."""
    caplog.set_level(logging.INFO)
    receiver.body = b"unknown person: Zerlina Quux"
    compose = partial(compose_webhook, keys=(), now=datetime.now(UTC))
    transport = WebhookTransport(allow_private=True, timeout=PATIENCE)

    async with receiving(receiver):
        await _stored(pool, SchedulePolicy(webhook_url=receiver.url))
        with capture_logs() as said:
            await scheduler(pool, policy=SchedulePolicy(webhook_url=receiver.url)).run_once()
            options = WorkerOptions(until_empty=True)
            await a_worker(pool, transport, compose=compose, options=options, clock=lambda: NINE).run()
        await transport.close()
    assert receiver.requests
    assert not any(word in f"{said} {caplog.text}" for word in PERSONAL)


async def test_import_logs_no_personal_data(database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An import logs line numbers only, also at debug level."""
    monkeypatch.setenv("POSTROOM_DATABASE_URL", database_url)
    monkeypatch.setenv("POSTROOM_LOG_LEVEL", "debug")
    file = tmp_path / "people.csv"
    good = ",".join(ZERLINA.values())
    refused = [good.replace("1971-11-15", "15.11.1971"), good.replace("Europe/London", "EST"), good + ",,", '"Quux"x']
    file.write_text("\n".join([",".join(ZERLINA), good, *refused]))
    result = await asyncio.to_thread(CliRunner().invoke, users, ["import", str(file)])
    assert "1 added, 4 refused" in result.stdout
    assert not any(word in result.output for word in PERSONAL)


async def _stored(pool: Pool, policy: SchedulePolicy) -> None:
    who = person(first_name="Zerlina", last_name="Quux", date_of_birth=date(1971, 11, 15))
    await service.create_user(pool, who, policy=policy, now=utc("2026-11-01T00:00"), actor="tests")
