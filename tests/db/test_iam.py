"""IAM tokens as passwords: signed for each connection, verified by a server that asks for them as RDS does."""

import socket
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest
import trustme
from tests.conftest import SCHEMA
from tests.support.command_line import outcome
from tests.support.iam_postgres import IamFront, iam_postgres

from postroom.db import iam
from postroom.db.errors import DatabaseUnreachable
from postroom.db.pool import connect, open_pool
from postroom.embedded.binaries import find_binaries
from postroom.embedded.data_directory import DataDirectory
from postroom.errors import SettingInvalid

REGION = "eu-central-1"
NAME = f"app.cluster-c1.{REGION}.rds.amazonaws.com"
SECRET = "example-secret"


@pytest.fixture(autouse=True)
def credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    """Credentials with a session token in the environment; the host name leads to loopback."""
    for name, value in (("ACCESS_KEY_ID", "EXAMPLEKEY"), ("SECRET_ACCESS_KEY", SECRET), ("SESSION_TOKEN", "a/b+c=")):
        monkeypatch.setenv(f"AWS_{name}", value)
    iam._chain.cache_clear()
    real = socket.getaddrinfo

    def resolve(host: Any, *others: Any, **more: Any) -> Any:
        return real("127.0.0.1" if host == NAME else host, *others, **more)

    monkeypatch.setattr(socket, "getaddrinfo", resolve)


@pytest.fixture
async def front(server_directory: Path, database_url: str, tmp_path: Path) -> AsyncIterator[tuple[IamFront, str]]:
    """A server that accepts tokens, and the URL of a room there."""
    authority = trustme.CA()
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(NAME, "localhost").configure_cert(tls)
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    state = DataDirectory(server_directory / "data").read_state()
    assert state is not None
    parts = urlsplit(database_url)
    place = IamFront(f"{state.socket_dir}/.s.PGSQL.{parts.port}", tls, NAME, REGION, "postroom", SECRET)
    async with iam_postgres(place):
        query = f"auth=rds-iam&sslrootcert={tmp_path / 'ca.pem'}"
        yield place, f"postgresql://postroom@{NAME}:{place.port}{parts.path}?{query}"


async def test_every_connection_signs_its_own_token(front: tuple[IamFront, str]) -> None:
    """The server verifies each token by recomputing it; the region comes from the host name."""
    place, url = front
    session = await connect(url, SCHEMA)
    assert await session.fetchval("SELECT current_schema()") == SCHEMA
    await session.close()
    async with await open_pool(url, SCHEMA, size=2) as pool:
        assert await pool.fetchval("SELECT current_user") == "postroom"
    assert len(place.tokens) == 2
    assert all("DBUser=postroom&" in token and "X-Amz-Expires=900" in token for token in place.tokens)


async def test_a_token_of_other_credentials_is_refused(
    front: tuple[IamFront, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server's refusal is the error; the token is not in it."""
    place, url = front
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "another-secret")
    with pytest.raises(DatabaseUnreachable, match="PAM authentication failed") as caught:
        await connect(url, SCHEMA)
    assert place.tokens
    assert "X-Amz" not in str(caught.value)


async def test_commands_and_programs_use_tokens(
    front: tuple[IamFront, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`postroom db-url` prints a URL with a valid token, without the parameters that other programs do not know."""
    place, url = front
    local = url.replace(NAME, "localhost") + f"&region={REGION}"
    place.host = "localhost"
    code, _said, errors = await outcome("deliveries", "list", settings={"POSTROOM_DATABASE_URL": local})
    assert (code, errors) == (0, "")
    code, said, errors = await outcome("db-url", settings={"POSTROOM_DATABASE_URL": local})
    assert (code, errors) == (0, "")
    assert "auth=" not in said
    assert "region=" not in said
    session = await connect(said.strip(), SCHEMA)
    await session.close()
    assert all(place.is_valid(token) for token in place.tokens)


async def test_a_backup_uses_tokens(front: tuple[IamFront, str], tmp_path: Path) -> None:
    """`postroom backup` with the real pg_dump: the token is its password, and the file is a whole backup."""
    place, url = front
    place.host = "localhost"
    _make_client_with_tls(tmp_path, "pg_dump")
    target = tmp_path / "room.backup"
    local = url.replace(NAME, "localhost") + f"&region={REGION}"
    settings = {"POSTROOM_DATABASE_URL": local, "PG_BIN": str(tmp_path)}
    code, _said, errors = await outcome("backup", "--no-verify", str(target), settings=settings)
    assert (code, errors) == (0, "")
    assert target.stat().st_size > 0
    assert len(place.tokens) > 1
    assert all(place.is_valid(token) for token in place.tokens)


def _make_client_with_tls(directory: Path, name: str) -> None:
    """The program of the tests' PostgreSQL, which has no TLS, with the libpq of psycopg, which has."""
    [libpq] = Path(psycopg.__file__).parent.parent.glob("psycopg_binary.libs/libpq-*")
    program = directory / name
    program.write_text(f'#!/bin/sh\nLD_PRELOAD={libpq} exec {find_binaries().tool(name)} "$@"\n')
    program.chmod(0o755)


async def test_without_credentials_the_error_says_so(
    front: tuple[IamFront, str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A missing credential is a temporary failure for running processes, with its reason."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    with pytest.raises(DatabaseUnreachable, match="no IAM token: No AWS credentials were found"):
        await connect(front[1], SCHEMA)


@pytest.mark.parametrize(
    "url, problem",
    [
        ("postgresql://u@h/d?auth=ldap", "the only value is rds-iam"),
        ("postgresql:///d?auth=rds-iam", "needs a host and a user"),
        ("postgresql://h/d?auth=rds-iam", "needs a host and a user"),
        ("postgresql://u@h/d?auth=rds-iam&sslmode=require", "tokens need verified TLS"),
        ("postgresql://u:p@h/d?auth=rds-iam", "remove one of them"),
    ],
)
async def test_a_url_that_cannot_work_is_refused(url: str, problem: str) -> None:
    """Before any connection is made."""
    with pytest.raises(SettingInvalid, match=problem):
        await connect(url, SCHEMA)
