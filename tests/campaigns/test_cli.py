"""Commands of campaigns, in a room of their own."""

import asyncio
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import structlog
from tests.support.campaigns import HTML, SECRET, csv_of
from typer.testing import CliRunner, Result

from postroom.campaigns.cli import campaigns

pytestmark = pytest.mark.usefixtures("environment")


@pytest.fixture
def environment(database_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The room of this test; restores the log configuration that commands change."""
    monkeypatch.setenv("POSTROOM_DATABASE_URL", database_url)
    monkeypatch.setenv("POSTROOM_SECRET_KEY", SECRET.hex())
    monkeypatch.setenv("POSTROOM_LOG_LEVEL", "error")
    before, handlers = structlog.get_config(), logging.getLogger().handlers[:]
    yield
    structlog.configure(**before)
    logging.getLogger().handlers[:] = handlers


async def ask(*arguments: str, stdin: bytes | None = None) -> Result:
    """Run a command in a thread, because it starts its own event loop."""
    return await asyncio.to_thread(CliRunner().invoke, campaigns, arguments, stdin)


async def ask_json(*arguments: str) -> Any:
    result = await ask(*arguments, "--json")
    assert result.exit_code == 0, result.output
    return msgspec.json.decode(result.stdout)


async def created(tmp_path: Path, *more: str) -> str:
    page = tmp_path / "letter.html"
    page.write_text(HTML)
    result = await ask("create", "--name", "Spring", "--subject", "Hi {{ first_name }}", "--html", str(page), *more)
    assert result.exit_code == 0, result.output
    return result.stdout.strip()


async def test_campaign_lifecycle_on_the_command_line(tmp_path: Path) -> None:
    """A campaign is created, filled, previewed, started and reported."""
    campaign = await created(tmp_path, "--from", "News <news@example.org>", "--start-at", "+1h")
    people = tmp_path / "people.csv"
    people.write_bytes(csv_of(3))
    assert "read 3: 3 added, 0 duplicate" in (await ask("upload", campaign, str(people))).stdout
    assert "Subject: Hi Name0" in (await ask("preview", campaign)).stdout
    assert "<html>" in (await ask("preview", campaign, "--html", "--var", "first_name=Eve")).stdout
    assert "[no_text]" in (await ask("lint", campaign)).stdout
    assert (await ask("test", campaign, "me@example.org")).stdout.strip().isdigit()
    assert "3 of 3 queued" in (await ask("start", campaign)).stdout
    for step, status in (("pause", "paused"), ("resume", "active"), ("cancel", "cancelled")):
        assert (await ask(step, campaign)).stdout.strip() == f"{campaign} is {status}"
    shown = await ask_json("show", campaign)
    assert (shown["status"], shown["counts"]["cancelled"]) == ("cancelled", 3)
    assert "cancelled 3" in (await ask("report", campaign)).stdout
    assert (await ask_json("list"))["items"][0]["name"] == "Spring"
    assert "Spring" in (await ask("list")).stdout


async def test_rejected_lines_are_printed_and_written(tmp_path: Path) -> None:
    """The first rejected lines are printed, all are in the report, and the exit code is 1."""
    campaign = await created(tmp_path)
    people = tmp_path / "people.csv"
    people.write_bytes(csv_of(5) + b"wrong,x\n" * 30)
    report = tmp_path / "refused.csv"
    result = await ask("upload", campaign, str(people), "--report", str(report))
    assert result.exit_code == 1
    assert "5 added, 0 duplicate, 0 suppressed, 30 rejected; merge fields: first_name" in result.stdout
    assert result.stderr.count("line ") == 20
    lines = report.read_text().splitlines()
    assert (lines[0], len(lines)) == ("line,field,message,value", 31)
    assert lines[1].startswith("7,email,")
    assert lines[1].endswith(",wrong")


async def test_json_lines_are_read_from_standard_input(tmp_path: Path) -> None:
    """`--jsonl` reads JSON lines from standard input."""
    campaign = await created(tmp_path)
    result = await ask("upload", campaign, "-", "--jsonl", stdin=b'{"email": "ann@example.org"}\n')
    assert (result.exit_code, "1 added" in result.stdout) == (0, True)


async def test_report_draws_one_row_per_hour(tmp_path: Path, database_url: str) -> None:
    """The report has one row per hour with bars to scale."""
    import asyncpg

    campaign = await created(tmp_path)
    connection = await asyncpg.connect(database_url)
    await connection.execute(
        "INSERT INTO postroom.stat_deltas (hour, campaign_id, metric, amount) VALUES "
        "('2030-06-01 10:00Z', $1, 'sent', 200), ('2030-06-01 11:00Z', $1, 'sent', 100), "
        "('2030-06-01 11:00Z', $1, 'opened', 7)",
        int(campaign),
    )
    await connection.close()
    drawn = (await ask("report", campaign)).stdout
    assert "2030-06-01 10:00:00" in drawn
    assert "200 " + "█" * 20 in drawn
    assert "100 " + "█" * 10 + " " in drawn
