"""Account mail that does not leave is seen: in /readyz, in /metrics, by the doctor and in the log."""

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
from postroom.app import load_catalog, run_worker
from postroom.cli import database_checks, host_checks
from postroom.cli.finding import Finding, Severity
from postroom.db.pool import Pool, connect
from postroom.db.room import Room
from postroom.http.asgi import build_app
from postroom.settings import Settings


@pytest.fixture
async def holder(room: Room) -> AsyncIterator[int]:
    """The process of a foreign transaction that does not end, and a token that has waited for it for 100 s."""
    foreign = await connect(room.url, "public")
    transaction = foreign.transaction()
    await transaction.start()
    await foreign.execute("CREATE TABLE elsewhere ()")
    await sign_up(room.pool, "ada")
    await room.pool.execute("UPDATE tokens SET created_at = created_at - 100")
    pid = foreign.get_server_pid()
    async with asyncio.timeout(60):
        while (await service.measure_stall(room.pool)).holder_pid != pid:
            pass  # somebody else's transaction is older still; it will end
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
async def test_ready_says_how_long_tokens_are_held_back(room: Room) -> None:
    """Still 200: no other process would do better."""
    answer = await Browser(build_app(room)).get("/readyz")
    assert answer.status == 200
    assert answer.json["tokens_stalled_seconds"] >= 100


async def test_metrics_say_for_whom_tokens_wait(room: Room, holder: int) -> None:
    """Measured at the scrape, with the process that holds them back."""
    text = (await Browser(build_app(room)).get("/metrics")).body.decode()
    found = re.search(rf'^postroom_tokens_stalled_seconds{{pid="{holder}"}} (\S+)$', text, re.MULTILINE)
    assert found is not None
    assert float(found[1]) >= 100


async def test_the_doctor_names_who_holds_tokens_back(room: Room, holder: int) -> None:
    """A warning: somebody else's transaction has to end."""
    finding = await tokens_finding(room)
    assert finding.verdict is Severity.WARN
    assert f"pid {holder} has held 1 back" in finding.found


async def test_the_doctor_fails_when_nobody_collects(room: Room, pool: Pool) -> None:
    """Tokens that could be taken and are not: no sign-up is mailed, and the setting that is missing is named."""
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
def test_the_doctor_sees_templates_without_words(tmp_path: Path, default: str, verdict: Severity) -> None:
    """A template of one's own that lacks the installation's language would fail every mail to those who have none."""
    own = tmp_path / "account-activation" / "fr"
    own.mkdir(parents=True)
    for part in ("subject", "text"):
        (own / part).write_text("{{ link }}")
    finding = host_checks.templates(Settings(template_dir=tmp_path, default_locale=default))
    assert finding.verdict is verdict
    assert ("account-activation" in finding.found) is (verdict is Severity.WARN)


async def test_a_worker_without_a_key_says_what_it_does_not_do(room: Room) -> None:
    """A warning at the start names the variable."""
    stop = asyncio.Event()
    keyless = replace(room, settings=replace(room.settings, secret_key=None))
    with capture_logs() as said:
        running = asyncio.create_task(run_worker(keyless, load_catalog(room.settings), stop=stop))
        await until(room.pool, "EXISTS (SELECT FROM workers)")
        stop.set()
        await asyncio.wait_for(running, 60)
    [line] = [line for line in said if line["event"] == "tokens_uncollected"]
    assert (line["log_level"], line["variable"]) == ("warning", "POSTROOM_SECRET_KEY")


async def test_wrong_codes_are_counted_over_all_addresses(pool: Pool) -> None:
    """Those of a day, with and without an account; yesterday's are left out."""
    now = datetime(2026, 11, 16, 9, tzinfo=UTC)
    for day, addresses in ((now - timedelta(days=2), 3), (now, 4)):
        for number in range(addresses):
            with pytest.raises(TokenNotFound):
                await service.consume_code(
                    pool, f"{number}@example.org", code="00000", action=Action.ACTIVATION, now=day
                )
    assert await service.measure_guesses(pool, now=now) == 4


async def test_the_metric_shows_wrong_codes(room: Room) -> None:
    """Measured when somebody asks."""
    with pytest.raises(TokenNotFound):
        await service.consume_code(room.pool, "ada@example.org", code="00000", action=Action.ACTIVATION)
    browser = await open_browser(room)
    assert "postroom_codes_wrong 1.0" in (await browser.get("/metrics")).body.decode()
