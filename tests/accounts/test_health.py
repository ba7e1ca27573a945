"""Delayed account mail shows in /readyz, /metrics, `postroom doctor` and the log."""

import asyncio
import re
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from structlog.testing import capture_logs
from tests.support.accounts import run_once, settle, sign_up
from tests.support.builders import until
from tests.support.http import Browser, open_browser

from postroom.accounts import service
from postroom.accounts.errors import TokenNotFound
from postroom.accounts.model import Action
from postroom.app import run_worker
from postroom.cli import database_checks, host_checks
from postroom.db.pool import Pool, connect
from postroom.db.room import Room
from postroom.http.asgi import build_app
from postroom.runtime.finding import Finding, Severity
from postroom.settings import Settings


@pytest.fixture
async def holder(room: Room) -> AsyncIterator[int]:
    """The pid of an open transaction that has delayed a token for 100 s."""
    foreign = await connect(room.url, "public")
    transaction = foreign.transaction()
    await transaction.start()
    await foreign.execute("CREATE TABLE elsewhere ()")
    await sign_up(room.pool, "ada")
    await room.pool.execute("UPDATE tokens SET created_at = created_at - 100")
    pid = foreign.get_server_pid()
    async with asyncio.timeout(60):
        while (await service.measure_stall(room.pool)).holder_pid != pid:
            pass  # an older transaction of another test is still open
    yield pid
    await transaction.rollback()
    await foreign.close()


async def tokens_finding(room: Room) -> Finding:
    session = await connect(room.url, room.name)
    try:
        found = await database_checks.examine(session, room.settings)
    finally:
        await session.close()
    [finding] = [finding for finding in found if finding.check == "tokens"]
    return finding


@pytest.mark.usefixtures("holder")
async def test_readyz_reports_delayed_tokens(room: Room) -> None:
    """The status stays 200, because another process would not help."""
    answer = await Browser(build_app(room)).get("/readyz")
    assert answer.status == 200
    assert answer.json["tokens_stalled_seconds"] >= 100


async def test_metric_names_the_pid_that_delays_tokens(room: Room, holder: int) -> None:
    """The gauge is measured at each scrape and has the pid as its label."""
    text = (await Browser(build_app(room)).get("/metrics")).body.decode()
    found = re.search(rf'^postroom_tokens_stalled_seconds{{pid="{holder}"}} (\S+)$', text, re.MULTILINE)
    assert found is not None
    assert float(found[1]) >= 100


async def test_doctor_names_the_pid_that_delays_tokens(room: Room, holder: int) -> None:
    """The doctor warns, because another transaction has to end."""
    finding = await tokens_finding(room)
    assert finding.verdict is Severity.WARN
    assert f"pid {holder} has held 1 back" in finding.found


async def test_doctor_fails_without_a_collector(room: Room, pool: Pool) -> None:
    """Readable tokens that are not collected are an error that names the missing setting."""
    await sign_up(pool, "ada")
    await settle(pool)
    assert (await tokens_finding(room)).verdict is Severity.OK
    await pool.execute("UPDATE tokens SET created_at = created_at - 1000")
    finding = await tokens_finding(room)
    assert finding.verdict is Severity.FAIL
    assert "1 wait" in finding.found
    assert "POSTROOM_SECRET_KEY" in finding.advice
    left_out = await tokens_finding(replace(room, settings=replace(room.settings, account_mail=False)))
    assert "postroom tokens collect" in left_out.advice
    await run_once(pool)
    assert (await tokens_finding(room)).verdict is Severity.OK


@pytest.mark.parametrize("default, verdict", [("en", Severity.WARN), ("fr-CA", Severity.OK)])
def test_doctor_reports_templates_without_default_locale(tmp_path: Path, default: str, verdict: Severity) -> None:
    """A custom template without the default locale would fail the mail of accounts without a locale."""
    own = tmp_path / "account-activation" / "fr"
    own.mkdir(parents=True)
    for part in ("subject", "text"):
        (own / part).write_text("{{ link }}")
    finding = host_checks.templates(Settings(template_dir=tmp_path, default_locale=default))
    assert finding.verdict is verdict
    assert ("account-activation" in finding.found) is (verdict is Severity.WARN)


async def test_worker_without_a_key_logs_a_warning(room: Room) -> None:
    """The warning at start names the missing setting."""
    stop = asyncio.Event()
    keyless = replace(room, settings=replace(room.settings, secret_key=None))
    with capture_logs() as said:
        running = asyncio.create_task(run_worker(keyless, stop=stop))
        await until(room.pool, "EXISTS (SELECT FROM workers)")
        stop.set()
        await asyncio.wait_for(running, 60)
    [line] = [line for line in said if line["event"] == "tokens_uncollected"]
    assert (line["log_level"], line["variables"]) == ("warning", "POSTROOM_SECRET_KEY")


async def test_wrong_codes_are_counted_over_all_addresses(pool: Pool) -> None:
    """Wrong codes of the last day are counted, with and without an account."""
    now = datetime(2026, 11, 16, 9, tzinfo=UTC)
    for day, addresses in ((now - timedelta(days=2), 3), (now, 4)):
        for number in range(addresses):
            with pytest.raises(TokenNotFound):
                await service.consume_code(
                    pool, f"{number}@example.org", code="00000", action=Action.ACTIVATION, now=day
                )
    assert await service.measure_guesses(pool, now=now) == 4


async def test_the_metric_shows_wrong_codes(room: Room) -> None:
    """The gauge is measured at each scrape."""
    with pytest.raises(TokenNotFound):
        await service.consume_code(room.pool, "ada@example.org", code="00000", action=Action.ACTIVATION)
    browser = await open_browser(room)
    assert "postroom_codes_wrong 1.0" in (await browser.get("/metrics")).body.decode()
