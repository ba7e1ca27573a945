"""Accounts and tokens at the command line, in a process as a person starts it."""

import asyncio
import signal
import sys
from pathlib import Path

import msgspec
from tests.support import command_line
from tests.support.accounts import KEY, mailed_keys, sign_up

from postroom.db.pool import Pool

ROOT = Path(__file__).parents[2]
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


async def start(url: str, *arguments: str, **settings: str) -> asyncio.subprocess.Process:
    environment = command_line.environment(PYTHONPATH=str(ROOT / "src"), POSTROOM_DATABASE_URL=url, **settings)
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        PROGRAM,
        *arguments,
        env=environment,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )


async def run(url: str, *arguments: str, **settings: str) -> tuple[int | None, str, str]:
    process = await start(url, *arguments, **settings)
    output, errors = await process.communicate()
    return process.returncode, output.decode(), errors.decode()


async def test_an_account_s_life(pool: Pool, database_url: str) -> None:
    """Create, show, suspend, unsuspend, re-issue; each prints the account as it is then."""
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


async def test_listing_and_refusing(pool: Pool, database_url: str) -> None:
    """A listing in JSON; a refusal is one sentence and exit 1."""
    await sign_up(pool, "ada")
    await sign_up(pool, "bob", status="active")
    code, output, _ = await run(database_url, "accounts", "list", "--status", "active", "--json")
    assert (code, [item["login"] for item in msgspec.json.decode(output)["items"]]) == (0, ["bob"])
    code, _, errors = await run(database_url, "accounts", "create", "ADA@example.org", "other")
    assert (code, errors) == (1, "postroom: The address already has an account.\n")
    code, _, errors = await run(database_url, "accounts", "show", "99")
    assert (code, errors) == (1, "postroom: There is no such account.\n")


async def test_collecting_for_a_pipe(pool: Pool, database_url: str) -> None:
    """Batches as CSV and as JSON lines, and delivery as a third way; nothing is collected without a key."""
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


async def test_collecting_until_told_to_stop(pool: Pool, database_url: str) -> None:
    """It waits for sign-ups, prints them as they come, and ends well at SIGTERM."""
    keyed = {"POSTROOM_SECRET_KEY": KEY.hex(), "POSTROOM_BATCH_TIMEOUT": "0"}
    process = await start(database_url, "tokens", "collect", "--format", "csv", **keyed)
    assert process.stdout is not None
    for name in ("ada", "bob"):
        await sign_up(pool, name)
        line = await asyncio.wait_for(process.stdout.readline(), 30)
        assert line.startswith(f"1,{name}@example.org,{name},".encode())
    process.send_signal(signal.SIGTERM)
    assert await asyncio.wait_for(process.wait(), 30) == 0
