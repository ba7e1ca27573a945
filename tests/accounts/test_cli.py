"""Accounts and tokens at the command line, each command in its own process."""

import asyncio
import os
import signal
import sys
from pathlib import Path

import msgspec
import pytest
from tests.support import command_line
from tests.support.accounts import KEY, mailed_keys, settle, sign_up

from postroom.db.pool import Pool

ROOT = Path(__file__).parents[2]
KEYED = {"POSTROOM_SECRET_KEY": KEY.hex(), "POSTROOM_BATCH_TIMEOUT": "0"}
PROGRAM = """
import sys, typer
from postroom.accounts.cli import accounts, tokens
from postroom.cli.output import report
app = typer.Typer(pretty_exceptions_enable=False)
app.add_typer(accounts, name="accounts")
app.add_typer(tokens, name="tokens")
try:
    app()
except Exception as error:
    sys.exit(report(error))
"""
# An infinite timeout: the command waits for a reader without a log line.
PATIENT = """
from datetime import timedelta
from postroom.accounts.pipe import Pipe
Pipe.__init__.__kwdefaults__["patience"] = timedelta(hours=1)
"""


async def start(
    url: str,
    *arguments: str,
    settings: dict[str, str] | None = None,
    stdout: int = asyncio.subprocess.PIPE,
    program: str = PROGRAM,
) -> asyncio.subprocess.Process:
    environment = command_line.environment(PYTHONPATH=str(ROOT / "src"), POSTROOM_DATABASE_URL=url, **settings or {})
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        program,
        *arguments,
        env=environment,
        stdout=stdout,
        stderr=asyncio.subprocess.PIPE,
    )


async def run(url: str, *arguments: str, **settings: str) -> tuple[int, str, str]:
    return await command_line.outcome(*arguments, settings={"POSTROOM_DATABASE_URL": url, **settings})


async def test_account_lifecycle(pool: Pool, database_url: str) -> None:
    """Each of create, show, suspend, unsuspend and reissue prints the current account."""
    code, output, _ = await run(database_url, "accounts", "create", "ada@example.org", "ada", "--json")
    made = msgspec.json.decode(output)
    assert (code, made["status"], made["email"]) == (0, "provisioned", "ada@example.org")
    account_id = str(made["id"])
    _, output, _ = await run(database_url, "accounts", "suspend", account_id)
    assert "suspended" in output
    _, output, _ = await run(database_url, "accounts", "unsuspend", account_id, "--json")
    assert msgspec.json.decode(output)["status"] == "provisioned"
    assert (await run(database_url, "accounts", "reissue", account_id))[0] == 0
    assert await pool.fetchval("SELECT count(*) FROM tokens") == 2
    _, output, _ = await run(database_url, "accounts", "show", account_id)
    assert "ada@example.org" in output


async def test_list_as_json_and_errors(pool: Pool, database_url: str) -> None:
    """A list can be printed as JSON; an error is one line and exit code 1."""
    await sign_up(pool, "ada")
    await sign_up(pool, "bob", status="active")
    code, output, _ = await run(database_url, "accounts", "list", "--status", "active", "--json")
    assert (code, [item["login"] for item in msgspec.json.decode(output)["items"]]) == (0, ["bob"])
    code, _, errors = await run(database_url, "accounts", "create", "ADA@example.org", "other")
    assert (code, errors) == (1, "postroom: The address already has an account.\n")
    code, _, errors = await run(database_url, "accounts", "show", "99")
    assert (code, errors) == (1, "postroom: There is no such account.\n")
    code, _, errors = await run(database_url, "accounts", "show", "99999999999999999999")
    assert (code, "Traceback" in errors) == (2, False)
    code, _, errors = await run(database_url, "accounts", "list", POSTROOM_BATCH_LIMIT="99999999999")
    assert (code, errors) == (1, "postroom: POSTROOM_BATCH_LIMIT: must be at most 10000\n")


async def test_account_is_found_by_every_spelling(pool: Pool, database_url: str) -> None:
    """A search ignores surrounding spaces and accepts a Unicode domain."""
    await run(database_url, "accounts", "create", " ada@exämple.org ", "ada")
    for email in ("ada@Exämple.ORG", " ada@xn--exmple-cua.org"):
        _, output, _ = await run(database_url, "accounts", "list", "--email", email, "--json")
        assert [item["login"] for item in msgspec.json.decode(output)["items"]] == ["ada"]
    assert await pool.fetchval("SELECT email FROM accounts") == "ada@xn--exmple-cua.org"


async def test_collect_prints_csv_and_json_lines(pool: Pool, database_url: str) -> None:
    """Tokens are printed as CSV or JSON lines, or mailed; without a key the command fails."""
    code, _, errors = await run(database_url, "tokens", "collect", "--until-empty")
    assert (code, "POSTROOM_SECRET_KEY" in errors) == (1, True)
    keyed = {"POSTROOM_SECRET_KEY": KEY.hex(), "POSTROOM_BATCH_LIMIT": "2"}
    for name in ("ada", "bob", "cy"):
        await sign_up(pool, name)
    code, output, _ = await run(database_url, "tokens", "collect", "--format", "csv", "--until-empty", **keyed)
    assert (code, [line.split(",")[1::5] for line in output.splitlines()]) == (
        0,
        [["ada@example.org", "bob@example.org"], ["cy@example.org"]],
    )
    await sign_up(pool, "dan")
    _, output, _ = await run(database_url, "tokens", "collect", "--format", "jsonl", "--until-empty", **keyed)
    assert [item["login"] for item in msgspec.json.decode(output)] == ["dan"]
    await sign_up(pool, "eve")
    await run(database_url, "tokens", "collect", "--until-empty", **keyed)
    assert len(await mailed_keys(pool)) == 1


async def test_collect_runs_until_sigterm(pool: Pool, database_url: str) -> None:
    """The command prints tokens of new sign-ups and exits with 0 on SIGTERM."""
    process = await start(database_url, "tokens", "collect", "--format", "csv", settings=KEYED)
    assert process.stdout is not None
    for name in ("ada", "bob"):
        await sign_up(pool, name)
        line = await asyncio.wait_for(process.stdout.readline(), 60)
        assert line.startswith(f"1,{name}@example.org,{name},".encode())
    process.send_signal(signal.SIGTERM)
    assert await asyncio.wait_for(process.wait(), 60) == 0


@pytest.mark.parametrize("more", [(), ("--until-empty",)])
async def test_a_full_disk_ends_the_command(pool: Pool, database_url: str, more: tuple[str, ...]) -> None:
    """The error names the output, and the token stays uncollected."""
    await sign_up(pool, "ada")
    full = os.open("/dev/full", os.O_WRONLY)
    process = await start(database_url, "tokens", "collect", "--format", "csv", *more, stdout=full, settings=KEYED)
    os.close(full)
    _, errors = await asyncio.wait_for(process.communicate(), 60)
    assert process.returncode == 1
    assert errors.decode() == "postroom: The output cannot be written: No space left on device.\n"
    assert await pool.fetchval("SELECT last_seq FROM jobs") == 0


@pytest.mark.parametrize("more", [(), ("--until-empty",)])
async def test_a_reader_that_leaves_ends_the_command(pool: Pool, database_url: str, more: tuple[str, ...]) -> None:
    """A closed pipe ends the command without a message, and the token stays uncollected."""
    await sign_up(pool, "ada")
    end, written = os.pipe()
    os.close(end)
    command = ("tokens", "collect", "--format", "jsonl", *more)
    process = await start(database_url, *command, stdout=written, settings=KEYED, program=PATIENT + PROGRAM)
    os.close(written)
    _, errors = await asyncio.wait_for(process.communicate(), 60)
    assert (process.returncode, errors) == (1, b"")
    assert await pool.fetchval("SELECT last_seq FROM jobs") == 0


async def test_sigterm_ends_collect_while_the_reader_pauses(pool: Pool, database_url: str) -> None:
    """A paused reader prevents neither a stop nor the end of the transaction."""
    await pool.execute(
        "INSERT INTO accounts (email, login) SELECT n || '@example.org', n FROM generate_series(1, 2000) n"
    )
    await settle(pool)
    end, written = os.pipe()
    process = await start(database_url, "tokens", "collect", "--format", "csv", stdout=written, settings=KEYED)
    os.close(written)
    assert process.stderr is not None
    assert b"collection_paused" in await asyncio.wait_for(process.stderr.readline(), 60)
    process.send_signal(signal.SIGTERM)
    assert await asyncio.wait_for(process.wait(), 60) == 0
    os.close(end)
    assert await pool.fetchval("SELECT last_seq FROM jobs") < 2000
