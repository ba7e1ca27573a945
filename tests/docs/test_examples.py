"""Every example in docs/examples runs against a real room, and the documentation shows what is in those files."""

import asyncio
import os
import re
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from urllib.parse import quote, urlsplit

import asyncpg
import pytest
from tests.support.http import served

from postroom.cli.database import psql_command, room_url
from postroom.db.room import Room
from postroom.embedded.binaries import find_binaries
from postroom.embedded.data_directory import DataDirectory
from postroom.http import service
from postroom.http.asgi import build_app

DOCS = Path(__file__).parents[2] / "docs"
EXAMPLES = DOCS / "examples"
ROLES = ("postroom_api", "postroom_owner", "postroom_reader", "postroom_sender", "postroom_worker")
PATIENCE_S = 600

# The deliveries of an example: subject (or template) and idempotency key of each.
EXPECTED = {
    "attachment.py": [("Your invoice", None)],
    "django_orders.py": [("Order 42", "order-42")],
    "fastapi_orders.py": [("Order 42", "order-42")],
    "flask_orders.py": [("Order 42", "order-42")],
    "idempotency.py": [("Your invoice", "invoice-7")],
    "login_code.sh": [("login-code", None)],
    "operator.sql": [],
    "send_from_trigger.sql": [("Parcel 7 is on its way", "shipped-7")],
    "send_in_transaction.py": [("Order 42", "order-42")],
    "send_in_transaction.sql": [("Order 42", "order-42")],
    "send_over_http.py": [("welcome", "welcome-ada")],
    "send_over_http.sh": [("Order 42", "order-42")],
    "test_application.py": [("welcome", None)],
}
AS_APPLICATION = (
    "INSERT INTO postroom.accounts (email, login) VALUES ('ada@example.org', 'ada') RETURNING id",
    "INSERT INTO postroom.accounts (email, login) VALUES ('ADA@example.org', 'other') ON CONFLICT DO NOTHING",
    "SELECT postroom.request_token('ada@example.org', 'activation')",
    "SELECT * FROM postroom.consume_code('ada@example.org', 'activation', '00000')",
)
IN_ORDER = ("roles.sql", "grants.sql")  # these need an administrator and have a test of their own
ELSEWHERE = {
    "openapi-python-client.yml": "http/test_generated_client.py",
    "send_with_openapi_fetch.mts": "http/test_generated_typescript_client.py",
    "send_with_pg.mjs": "docs/test_other_languages.py",
    "send_with_pg.rb": "docs/test_other_languages.py",
    "send_with_pq.go": "docs/test_other_languages.py",
    "test_inbox.py": "inbox/test_plugin.py",
    "test_templates.py": "inbox/test_plugin.py",
}
_SHOWN = re.compile(r"<!-- examples/(?P<name>\S+) -->\n```\w+\n(?P<code>.*?)```", re.DOTALL)


async def run(command: list[str], environment: dict[str, str]) -> str:
    """Run one program to its end; a failure shows what it said."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("POSTROOM_", "PG"))}
    path = f"{Path(sys.executable).parent}{os.pathsep}{kept.get('PATH', '')}"
    process = await asyncio.create_subprocess_exec(
        *command,
        env={**kept, **environment, "PATH": path},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    async with asyncio.timeout(PATIENCE_S):
        output, _ = await process.communicate()
    assert process.returncode == 0, output.decode()
    return output.decode()


async def run_sql(url: str, *arguments: str) -> str:
    """Run psql, which stops at the first mistake."""
    command, environment = psql_command(
        find_binaries().tool("psql"), url, ["-X", "-q", "-v", "ON_ERROR_STOP=1", *arguments]
    )
    return await run(command, {name: value for name, value in environment.items() if name == "PGPASSWORD"})


@pytest.fixture
async def environment(room: Room) -> AsyncIterator[dict[str, str]]:
    """Where an example finds the room: by its database, and by the API on loopback."""
    key, _row = await service.create_key(room.pool, "examples", scopes=["*"], actor="tests")
    async with served(build_app(room)) as url:
        yield {"DATABASE_URL": room.url, "API_URL": url, "API_KEY": key}


def test_every_example_is_run() -> None:
    """Here, or in the test that is named for it."""
    assert {path.name for path in EXAMPLES.iterdir() if path.is_file()} == {*EXPECTED, *IN_ORDER, *ELSEWHERE}
    assert all(name in (Path(__file__).parents[1] / test).read_text("utf-8") for name, test in ELSEWHERE.items())


@pytest.mark.parametrize("name", EXPECTED)
async def test_an_example_runs(name: str, room: Room, environment: dict[str, str]) -> None:
    """An example ends well and has done what it says."""
    path = EXAMPLES / name
    if path.suffix == ".sql":
        url = room_url(room.url, room.name) if name == "operator.sql" else room.url
        await run_sql(url, "-f", str(path))
    else:
        await run([sys.executable, str(path)] if path.suffix == ".py" else ["sh", str(path)], environment)
    rows = await room.pool.fetch(
        """
        SELECT coalesce(template_id, subject) AS content, idempotency_key
        FROM deliveries
        JOIN delivery_payloads ON delivery_id = id
        ORDER BY id
        """
    )
    assert [(row["content"], row["idempotency_key"]) for row in rows] == EXPECTED[name]


async def test_the_roles_of_the_handbook_suffice(database_url: str, server_directory: Path) -> None:
    """With roles.sql and grants.sql the owner migrates, the worker works, the sender sends and the reader reads."""
    state = DataDirectory(server_directory / "data").read_state()
    assert state is not None
    database = urlsplit(database_url).path
    host = quote(state.socket_dir, safe="")

    def as_role(role: str) -> str:
        return f"postgresql://{role}@/{database.strip('/')}?host={host}&port={state.port}"

    administrator = as_role("postgres")
    try:
        await run_sql(administrator, "-c", "DROP SCHEMA postroom CASCADE", "-f", str(EXAMPLES / "roles.sql"))
        await _postroom(as_role("postroom_owner"), "migrate")
        await run_sql(room_url(as_role("postroom_owner"), "postroom"), "-f", str(EXAMPLES / "grants.sql"))
        await _try_roles(as_role)
    finally:
        await run_sql(administrator, "-c", "DROP SCHEMA IF EXISTS postroom CASCADE")
        for role in ROLES:
            await run_sql(administrator, "-c", f"DROP OWNED BY {role}", "-c", f"DROP ROLE {role}")


async def _try_roles(as_role: Callable[[str], str]) -> None:
    await run_sql(as_role("postgres"), "-c", "ALTER ROLE postroom_sender LOGIN")
    send = "SELECT postroom.send('{ada@example.org}', p_subject => 'a', p_text => 'b', p_idempotency_key => 'k')"
    assert await run_sql(as_role("postroom_sender"), "-tA", "-c", send, "-c", send) == "1\n1\n"
    await _postroom(as_role("postroom_worker"), "work", "--until-empty")
    assert "permission denied for table operators" in await _postroom(as_role("postroom_worker"), "doctor")
    assert "permission denied for table migrations" in await _postroom(as_role("postroom_reader"), "doctor")
    assert "permission denied" not in await _postroom(as_role("postroom_api"), "doctor")
    await _postroom(as_role("postroom_api"), "keys", "create", "shop", "--scope", "deliveries:write")
    assert "sent" in await _postroom(as_role("postroom_api"), "deliveries", "list")

    count = "SELECT state FROM postroom.deliveries"
    assert await run_sql(as_role("postroom_reader"), "-tA", "-c", count) == "sent\n"
    connection = await asyncpg.connect(as_role("postroom_reader"))
    try:
        for table in ("delivery_payloads", "api_keys", "tokens"):
            with pytest.raises(asyncpg.InsufficientPrivilegeError):
                await connection.fetch(f"SELECT * FROM postroom.{table}")
        owners = await connection.fetch("SELECT DISTINCT tableowner FROM pg_tables WHERE schemaname = 'postroom'")
        assert [row["tableowner"] for row in owners] == ["postroom_owner"]
    finally:
        await connection.close()


async def _postroom(url: str, *arguments: str) -> str:
    return await run([sys.executable, "-m", "postroom.cli", *arguments], {"POSTROOM_DATABASE_URL": url})


async def test_the_rights_of_an_application_with_accounts_suffice(room: Room, server_directory: Path) -> None:
    """With the grants of accounts.md an application signs up, asks for tokens and checks codes, and reads no token."""
    page = (DOCS / "how-to" / "accounts.md").read_text("utf-8")
    grants = next(code for code in re.findall(r"^```sql\n(.*?)^```", page, re.MULTILINE | re.DOTALL) if "GRANT" in code)
    state = DataDirectory(server_directory / "data").read_state()
    assert state is not None
    where = f"/{urlsplit(room.url).path.strip('/')}?host={quote(state.socket_dir, safe='')}&port={state.port}"
    administrator = f"postgresql://postgres@{where}"
    await run_sql(administrator, "-c", "CREATE ROLE app LOGIN", "-c", grants)
    try:
        await run_sql(f"postgresql://app@{where}", *[part for step in AS_APPLICATION for part in ("-c", step)])
        with pytest.raises(AssertionError, match="permission denied for table tokens"):
            await run_sql(f"postgresql://app@{where}", "-c", "SELECT code FROM postroom.tokens")
    finally:
        await run_sql(administrator, "-c", "DROP OWNED BY app", "-c", "DROP ROLE app")


def _shown_examples() -> list[tuple[Path, str, str]]:
    return [
        (page, found["name"], found["code"])
        for page in sorted(DOCS.rglob("*.md"))
        for found in _SHOWN.finditer(page.read_text("utf-8"))
    ]


def test_the_documentation_shows_the_examples() -> None:
    """A snippet marked with a file's name stands in that file, line by line."""
    shown = _shown_examples()
    assert shown
    for page, name, code in shown:
        wanted = [line.strip() for line in code.strip().splitlines()]
        lines = [line.strip() for line in (EXAMPLES / name).read_text("utf-8").splitlines()]
        places = range(len(lines) - len(wanted) + 1)
        assert any(lines[place : place + len(wanted)] == wanted for place in places), f"{page.name}: {name} differs"
