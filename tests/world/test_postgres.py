"""The distribution's PostgreSQL with TLS, and PgBouncer before it: a room from `migrate` to a backup."""

import os
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import urlsplit
from uuid import uuid4

import asyncpg
import pytest
import trustme
from tests.support.command_line import PATIENT, outcome
from tests.support.pgbouncer import NEEDS_PGBOUNCER, pgbouncer

from postroom.embedded.server import EmbeddedServer, ServerOptions

INSTALLED = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"), key=lambda path: int(path.parts[-3]))
MAIL = ("send", "--to", "ada@example.org", "--subject", "Hello", "--text", "Hi.")

pytestmark = [
    pytest.mark.world,
    pytest.mark.skipif(not INSTALLED, reason="NOT TESTED: no PostgreSQL in /usr/lib/postgresql (Debian: postgresql)"),
]


@pytest.fixture
async def server(
    server_directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[EmbeddedServer]:
    """The programs of Debian, TLS only for an account of the application, in Debian's own time zone."""
    monkeypatch.setenv("PG_BIN", str(INSTALLED[-1].parent))
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    options = ServerOptions(fsync=False, extra=(("timezone", "Etc/UTC"),))
    async with EmbeddedServer(server_directory / f"world-{uuid4().hex[:8]}", options) as running:
        connection = await asyncpg.connect(running.admin_url)
        data = Path(await connection.fetchval("SHOW data_directory"))
        _write_files(data, authority)
        for statement in (
            "ALTER SYSTEM SET ssl = on",
            "CREATE ROLE app LOGIN",
            "CREATE DATABASE app OWNER app",
            "SELECT pg_reload_conf()",
        ):
            await connection.execute(statement)
        await connection.close()
        yield running


def _write_files(data: Path, authority: trustme.CA) -> None:
    made, owner = authority.issue_cert("localhost"), data.stat()
    for name, blob in (("server.crt", made.cert_chain_pems[0]), ("server.key", made.private_key_pem)):
        blob.write_to_path(data / name)
        (data / name).chmod(0o600)
        os.chown(data / name, owner.st_uid, owner.st_gid)
    rules = data / "pg_hba.conf"
    rules.write_text(f"hostssl app app 127.0.0.1/32 trust\nhost app app all reject\n{rules.read_text()}")


async def _run(*arguments: str, **settings: str) -> str:
    done, output, errors = await outcome(*arguments, settings=settings, command=PATIENT)
    assert done == 0, output + errors
    return output


async def test_a_room_over_tls_from_migrate_to_a_backup(server: EmbeddedServer, tmp_path: Path) -> None:
    """Verified TLS for every command and for pg_dump; a certificate of another authority is refused."""
    port = urlsplit(server.url).port
    url = f"postgresql://app@localhost:{port}/app?sslmode=verify-full&sslrootcert={tmp_path / 'ca.pem'}"
    settings = {"POSTROOM_DATABASE_URL": url, "POSTROOM_DATA_DIR": str(tmp_path / "data")}
    await _run("migrate", **settings)
    await _run(*MAIL, **settings)
    await _run("work", "--until-empty", **settings)
    assert "Hello" in await _run("inbox", "list", **settings)
    target = tmp_path / "room.dump"
    await _run("backup", "--no-verify", str(target), **settings)
    assert target.stat().st_size > 0
    trustme.CA().cert_pem.write_to_path(tmp_path / "other.pem")
    other = {**settings, "POSTROOM_DATABASE_URL": url.replace("ca.pem", "other.pem")}
    done, _, errors = await outcome("deliveries", "list", settings=other, command=PATIENT)
    assert (done, "certificate" in errors) == (1, True)


@NEEDS_PGBOUNCER
async def test_a_room_behind_pgbouncer_in_the_time_zone_of_debian(server: EmbeddedServer, tmp_path: Path) -> None:
    """Etc/UTC needs no ALTER ROLE; the search path comes from a schema with the name of the role."""
    direct = server.url
    with pgbouncer(direct) as pooled:
        settings = {
            "POSTROOM_DATABASE_URL": pooled,
            "POSTROOM_DATABASE_DIRECT_URL": direct,
            "POSTROOM_DATA_DIR": str(tmp_path / "data"),
        }
        await _run("migrate", **settings)
        await _run(*MAIL, **settings)
        await _run("work", "--until-empty", **settings)
        assert "Hello" in await _run("inbox", "list", **settings)
