"""The documented statements in psql, exactly as written."""

import asyncio
import re
from pathlib import Path

import pytest
from tests.conftest import SCHEMA, postgres_major

from postroom.cli.database import psql_command, room_url
from postroom.embedded.binaries import find_binaries

CREATE = """INSERT INTO accounts (email, login)
	VALUES ('user@example.com', 'user123');
"""
THREE = (
    "INSERT INTO accounts (email, login) VALUES ('user' || md5(random()::text) || '@fake.mail',"
    " 'user' || substr(md5(random()::text), 1, 20));\n"
) * 3
LOOK = """SELECT * FROM accounts WHERE id = 1;
SELECT * FROM tokens WHERE account = 1;
"""
CONSUME = """UPDATE
	tokens
SET
	consumed_at = extract(epoch FROM now())
WHERE
	account = 1
	AND action = 'activation';
"""


@pytest.fixture
def program() -> Path:
    return find_binaries(postgres_major()).tool("psql")


async def start(program: Path, url: str, *options: str) -> asyncio.subprocess.Process:
    """A psql session that reads its statements from a pipe."""
    arguments = ["-X", "-q", "-v", "ON_ERROR_STOP=1", *options]
    command, environment = psql_command(program, room_url(url, SCHEMA), arguments)
    return await asyncio.create_subprocess_exec(
        *command,
        env=environment,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )


async def psql(program: Path, url: str, script: str, *options: str) -> str:
    """The output of psql; an error in the script fails the test."""
    process = await start(program, url, *options)
    output, _ = await process.communicate(script.encode())
    assert process.returncode == 0, output.decode()
    return output.decode()


def record(output: str, column: str) -> str:
    """The value of a column of the last record in expanded form."""
    return str(re.findall(rf"^{column} +\| ?(.*)$", output, re.MULTILINE)[-1]).strip()


async def test_documented_statements(program: Path, database_url: str) -> None:
    """Sign-up, SELECT, consume, suspend and unsuspend work as documented."""
    jobs = await psql(program, database_url, "SELECT * FROM jobs;")
    assert re.search(r"^ mailroom +\| +0 ", jobs, re.MULTILINE)
    assert "(1 row)" in jobs

    output = await psql(program, database_url, CREATE + THREE + LOOK, "-x")
    assert (record(output, "email"), record(output, "status")) == ("user@example.com", "provisioned")
    assert (record(output, "action"), record(output, "consumed_at")) == ("activation", "")
    assert re.fullmatch(r"\\x[0-9a-f]{64}", record(output, "secret"))
    assert re.fullmatch("[0-9]{5}", record(output, "code"))

    output = await psql(program, database_url, CONSUME + LOOK, "-x")
    assert record(output, "status") == "active"
    assert int(record(output, "activated_at")) > 0
    assert int(record(output, "consumed_at")) > 0

    suspend = "UPDATE accounts SET status = 'suspended' WHERE id = 1;\n"
    output = await psql(program, database_url, suspend + LOOK, "-x")
    assert (record(output, "status"), record(output, "unsuspended_at")) == ("suspended", "")
    assert int(record(output, "suspended_at")) > 0

    unsuspend = "UPDATE accounts SET status = 'active' WHERE id = 1;\n"
    output = await psql(program, database_url, unsuspend + LOOK, "-x")
    assert (record(output, "status"), record(output, "suspended_at")) == ("active", "")
    assert int(record(output, "unsuspended_at")) > 0


async def test_listen_shows_notifications(program: Path, database_url: str) -> None:
    """LISTEN token_insert shows one notification for each of three sign-ups."""
    output = await psql(program, database_url, "LISTEN token_insert;\n" + THREE + ";\nSELECT 1;\n")
    assert output.count('Asynchronous notification "token_insert" received from server process with PID') == 3


@pytest.mark.parametrize(
    "statement",
    [
        CREATE,
        "INSERT INTO tokens (account, action) VALUES (1, 'password_recovery');\n",
    ],
)
async def test_listen_in_another_session(program: Path, database_url: str, statement: str) -> None:
    """A session that listens gets one notification when another inserts an account or a token."""
    await psql(program, database_url, "INSERT INTO accounts (email, login) VALUES ('first@example.com', 'first');\n")
    listener = await start(program, database_url)
    assert listener.stdin is not None
    assert listener.stdout is not None
    listener.stdin.write(b"LISTEN token_insert;\n\\echo listening\n")
    assert await asyncio.wait_for(listener.stdout.readline(), 60) == b"listening\n"
    await psql(program, database_url, statement)
    output, _ = await listener.communicate(b"SELECT 1;\n")
    assert output.decode().count('Asynchronous notification "token_insert" received from server process with PID') == 1


async def test_documented_dequeue_query(program: Path, database_url: str) -> None:
    """The documented SELECT returns the new token."""
    output = await psql(
        program,
        database_url,
        CREATE
        + """SELECT t.account, t.secret, t.code, t.expires_at, t.id, t.action, a.email, a.login
FROM jobs
    JOIN tokens t ON t.id > jobs.last_seq
        AND t.expires_at > EXTRACT(EPOCH FROM NOW())
        AND t.consumed_at IS NULL
        AND t.action IN ('activation', 'password_recovery')
    JOIN accounts a ON a.id = t.account
        AND ((t.action = 'activation' AND a.status = 'provisioned')
            OR (t.action = 'password_recovery' AND a.status = 'active'))
WHERE jobs.job_type = 'mailroom'
ORDER BY id ASC
LIMIT 10;
""",
        "-x",
    )
    assert record(output, "login") == "user123"
