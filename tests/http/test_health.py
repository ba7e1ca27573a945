"""Alive, ready, measured."""

import re

import pytest
from tests.support.http import Browser

from postroom.db.migrate import RELEASE
from postroom.db.room import Room
from postroom.http.asgi import build_app
from postroom.mail.catalog import BUILTIN_TEMPLATES, Catalog


def _value(text: str, series: str) -> float:
    found = re.search(rf"^{re.escape(series)} (\S+)$", text, re.MULTILINE)
    assert found is not None, series
    return float(found[1])


async def test_health_needs_no_key(room: Room) -> None:
    """Machines that watch come in without a key."""
    catalog = Catalog.load(BUILTIN_TEMPLATES)
    browser = Browser(build_app(room))
    assert (await browser.get("/healthz")).json == {"status": "ok"}
    ready = (await browser.get("/readyz")).json
    assert ready["tokens_stalled_seconds"] == 0
    del ready["tokens_stalled_seconds"]
    assert ready == {"status": "ok", "database": "ok", "migrations": "ok", "templates": len(catalog.names())}
    assert (await browser.get("/metrics")).status == 200
    assert (await browser.get("/openapi.json")).status == 200


async def test_a_room_that_lacks_a_migration_is_not_ready(browser: Browser, room: Room) -> None:
    """A process in front of an older database says so before it fails."""
    await room.pool.execute("DELETE FROM migrations WHERE name LIKE '0004%'")
    response = await browser.get("/readyz")
    assert response.status == 503
    assert response.json["code"] == "migration_pending"


async def test_a_process_stays_ready_when_a_newer_version_migrates_its_room(browser: Browser, room: Room) -> None:
    """Old processes answer until they are replaced: an upgrade needs no pause of the API."""
    await room.pool.execute(
        "INSERT INTO migrations (name, checksum, release) VALUES ('9999_future_thing.sql', 'x', $1)", RELEASE + 1
    )
    await room.pool.execute("UPDATE migrations SET checksum = 'newer' WHERE name = 'delivery/send.sql'")
    assert (await browser.get("/readyz")).status == 200
    await room.pool.execute("UPDATE migrations SET name = '9999_future.after.sql' WHERE name = '9999_future_thing.sql'")
    response = await browser.get("/readyz")
    assert (response.status, response.json["code"]) == (503, "database_newer")


async def test_metrics_count_requests_by_route(browser: Browser) -> None:
    """A request is counted under its route's pattern, never under the path that was asked for."""
    series = 'postroom_http_requests_total{method="GET",route="/v1/deliveries/{delivery_id:int}",status="404"}'
    await browser.get("/v1/deliveries/4711")
    before = _value((await browser.get("/metrics")).body.decode(), series)
    await browser.get("/v1/deliveries/4712")
    text = (await browser.get("/metrics")).body.decode()
    assert _value(text, series) == before + 1
    assert "/v1/deliveries/4712" not in text


async def test_metrics_measure_the_queue_at_the_scrape(browser: Browser) -> None:
    """How much waits, and since when, is true at the moment of asking."""
    for _ in range(3):
        await browser.post("/v1/deliveries", json={"to": "a@example.org", "subject": "s", "text": "t", "lane": "bulk"})
    text = (await browser.get("/metrics")).body.decode()
    assert _value(text, 'postroom_queue_waiting{lane="bulk"}') == 3
    assert _value(text, 'postroom_queue_waiting{lane="auth"}') == 0
    assert _value(text, 'postroom_queue_oldest_seconds{lane="bulk"}') >= 0
    assert _value(text, 'postroom_deliveries_accepted_total{acceptance="accepted",lane="bulk"}') >= 3


async def test_made_up_methods_do_not_grow_the_metrics(browser: Browser) -> None:
    """A client cannot make series without end by inventing methods."""
    for number in range(3):
        await browser.ask(f"BREW{number}", "/healthz")
    text = (await browser.get("/metrics")).body.decode()
    assert "BREW" not in text
    assert 'method="other"' in text


async def test_metrics_name_the_age_of_the_oldest_mail_and_what_it_waits_for(browser: Browser, room: Room) -> None:
    """Deferred mail is never due for long, but it has waited since it was accepted; scheduled mail has not."""
    for lane, more in (("auth", {}), ("bulk", {"send_at": "2031-01-01T00:00:00Z"})):
        given = {"to": "a@example.org", "subject": "s", "text": "t", "lane": lane, **more}
        assert (await browser.post("/v1/deliveries", json=given)).status == 202
    await room.pool.execute(
        "UPDATE deliveries SET next_attempt_at = now() + interval '1 minute', first_attempt_at = now(), "
        "dated_at = now() - interval '400 s', attempt_count = 1 WHERE lane = 'auth'"
    )
    await room.pool.execute(
        "INSERT INTO attempts (delivery_id, attempt_no, outcome, lane, started_at, finished_at, stage) "
        "SELECT id, 1, 'deferred', lane, now(), now(), 'connect' FROM deliveries WHERE lane = 'auth'"
    )
    text = (await browser.get("/metrics")).body.decode()
    assert 400 <= _value(text, 'postroom_oldest_unfinished_seconds{lane="auth",waits_for="relay"}') < 460
    assert 'postroom_oldest_unfinished_seconds{lane="bulk"' not in text
    assert _value(text, 'postroom_workers{room="postroom"}') == 0


async def test_metrics_count_dead_letters_and_name_ways_out(browser: Browser, room: Room) -> None:
    """Dead letters by reason; for each way out the last success, the failures and the refused logins."""
    await room.pool.execute("INSERT INTO dead_letters (delivery_id, reason) VALUES (1, 'max_age'), (2, 'max_age')")
    await room.pool.execute(
        "INSERT INTO ways_out (name, last_sent_at, failing_since, logins_refused, stage) "
        "VALUES ('mx.example.org:587', now() - interval '90 s', now() - interval '60 s', 3, 'login')"
    )
    text = (await browser.get("/metrics")).body.decode()
    assert _value(text, 'postroom_dead_letters{reason="max_age"}') == 2
    assert _value(text, 'postroom_logins_refused{way_out="mx.example.org:587"}') == 3
    assert 90 <= _value(text, 'postroom_last_sent_seconds{way_out="mx.example.org:587"}') < 150
    assert 60 <= _value(text, 'postroom_way_out_failing_seconds{stage="login",way_out="mx.example.org:587"}') < 120


async def test_metrics_of_a_database_in_recovery_leave_the_queue_out(
    browser: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A standby can be read, but its queue is old and nothing can leave: the alert about the database has to fire."""
    assert "postroom_queue_waiting{" in (await browser.get("/metrics")).body.decode()

    async def yes(_connection: object) -> bool:
        return True

    monkeypatch.setattr("postroom.http.health.is_in_recovery", yes)
    text = (await browser.get("/metrics")).body.decode()
    assert "postroom_queue_waiting{" not in text
    assert "postroom_workers{" not in text
