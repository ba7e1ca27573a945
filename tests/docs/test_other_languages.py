"""The examples for Node.js, Ruby, Go and psql send in their own transaction, where their programs can be had."""

import asyncio
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import asyncpg
import pytest
from tests.support.npm import install

from postroom.cli.database import psql_command
from postroom.db.room import Room
from postroom.embedded.binaries import find_binaries

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"
GO_PACKAGES = Path("/usr/share/gocode")  # the folder of Debian's golang-github-lib-pq-dev
PATIENCE_S = 600
ORDERS = "CREATE TABLE orders (number integer PRIMARY KEY, customer text NOT NULL)"
OTHER_MAIL = """
    SELECT postroom.send('{ada@example.org}', p_subject => 'Other', p_text => '.', p_idempotency_key => 'order-42')
"""
REFUSE_AT_COMMIT = (
    """
    CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        RAISE EXCEPTION 'the warehouse is empty';
    END
    $$
    """,
    """
    CREATE CONSTRAINT TRIGGER refuse AFTER INSERT ON orders
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION refuse()
    """,
)

Command = tuple[list[str], dict[str, str]]
Prepare = Callable[[Path, str], Command]


class ProgramMissingError(Exception):
    """An example cannot run on this machine."""


def _with_node(folder: Path, url: str) -> Command:
    shutil.copy(EXAMPLES / "send_with_pg.mjs", folder)  # Node looks for packages beside the file
    return ["node", str(folder / "send_with_pg.mjs")], {"DATABASE_URL": url}


def _with_ruby(_folder: Path, url: str) -> Command:
    ruby = _program("ruby")
    if subprocess.run([ruby, "-e", "require 'pg'"], capture_output=True, check=False).returncode:
        raise ProgramMissingError("the Ruby library pg is not installed (Debian: ruby-pg)")
    return [ruby, str(EXAMPLES / "send_with_pg.rb")], {"DATABASE_URL": url}


def _with_go(folder: Path, url: str) -> Command:
    """Built without modules, from the distribution's sources: no Go proxy is needed."""
    go = _program("go")
    if not (GO_PACKAGES / "src/github.com/lib/pq").is_dir():
        raise ProgramMissingError("the Go package lib/pq is not installed (Debian: golang-github-lib-pq-dev)")
    program = folder / "send_with_pq"
    settings = {"GO111MODULE": "off", "GOPATH": str(GO_PACKAGES), "GOCACHE": str(folder / "cache"), "CGO_ENABLED": "0"}
    command = [go, "build", "-o", str(program), str(EXAMPLES / "send_with_pq.go")]
    done = subprocess.run(command, env={**os.environ, **settings}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return [str(program)], {"DATABASE_URL": f"{url}?sslmode=disable"}  # lib/pq requires TLS by default


def _with_psql(_folder: Path, url: str) -> Command:
    options = ["-X", "-q", "-v", "ON_ERROR_STOP=1", "-f", str(EXAMPLES / "send_in_transaction.sql")]
    return psql_command(find_binaries().tool("psql"), url, options)


PREPARED: dict[str, Prepare] = {"node": _with_node, "ruby": _with_ruby, "go": _with_go, "psql": _with_psql}


def _program(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        raise ProgramMissingError(f"{name} is not installed")
    return found


@pytest.fixture(params=PREPARED)
async def command(
    request: pytest.FixtureRequest, room: Room, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> Command:
    """The example of one language as a command; a missing program is printed, and the test is skipped."""
    language = request.param
    if language == "node":
        await asyncio.to_thread(install, tmp_path, ["pg@8.23.1"], tested="send_with_pg.mjs", capsys=capsys)
    try:
        return await asyncio.to_thread(PREPARED[language], tmp_path, room.url)
    except ProgramMissingError as missing:
        with capsys.disabled():
            sys.stdout.write(f"\n!!! NO {language.upper()}: {missing}; its example is NOT tested !!!\n")
        pytest.skip(str(missing))


async def test_an_example_commits_or_loses_the_order_and_its_mail_together(room: Room, command: Command) -> None:
    """A refused commit leaves neither, a refused mail leaves neither, and then the same program stores both."""
    connection = await asyncpg.connect(room.url)
    try:
        await connection.execute(ORDERS)
        for statement in REFUSE_AT_COMMIT:
            await connection.execute(statement)
        assert "the warehouse is empty" in await _fails(command)
        assert await _stored(connection) == (0, [])
        await connection.execute("DROP TRIGGER refuse ON orders")

        await connection.fetchval(OTHER_MAIL)
        assert "this idempotency key was already used" in await _fails(command)
        assert await _stored(connection) == (0, [("Other", None)])
        await connection.execute("TRUNCATE postroom.deliveries CASCADE")

        output, code = await _run(command)
        assert code == 0, output
        assert await _stored(connection) == (1, [("Order 42", '{"order": "42"}')])
    finally:
        await connection.close()


async def _fails(command: Command) -> str:
    output, code = await _run(command)
    assert code, output
    return output


async def _run(command: Command) -> tuple[str, int | None]:
    process = await asyncio.create_subprocess_exec(
        *command[0], env={**os.environ, **command[1]}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    async with asyncio.timeout(PATIENCE_S):
        output, _ = await process.communicate()
    return output.decode(), process.returncode


async def _stored(connection: asyncpg.Connection) -> tuple[int, list[tuple[str, str | None]]]:
    orders = await connection.fetchval("SELECT count(*) FROM orders")
    mails = await connection.fetch(
        """
        SELECT subject, tags::text
        FROM postroom.deliveries
        JOIN postroom.delivery_payloads ON delivery_id = id
        ORDER BY id
        """
    )
    return orders, [(row["subject"], row["tags"]) for row in mails]
