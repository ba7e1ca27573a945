"""PostgreSQL with TLS that knows its clients by their certificates: Debian's, because that of the tests has no TLS."""

import os
import sys
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit
from uuid import uuid4

import asyncpg
import pytest
import trustme
from tests.support.command_line import outcome

from postroom.embedded.server import EmbeddedServer, ServerOptions

INSTALLED = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"), key=lambda path: int(path.parts[-3]))
ROLE = "certified"


@dataclass(frozen=True)
class CertifyingServer:
    """A server that accepts this role by certificate alone; `shown` makes a URL with a certificate for a name."""

    shown: Callable[[str], str]
    trusted: str  # the URL without a certificate


@pytest.fixture
async def certifying(
    server_directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> AsyncIterator[CertifyingServer]:
    if not INSTALLED:
        with capsys.disabled():
            sys.stdout.write(
                "\n!!! NO POSTGRESQL WITH TLS: client certificates are NOT tested with a real server !!!\n"
            )
        pytest.skip("no PostgreSQL in /usr/lib/postgresql (Debian: postgresql)")
    monkeypatch.setenv("PG_BIN", str(INSTALLED[-1].parent))
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    async with EmbeddedServer(server_directory / f"tls-{uuid4().hex[:8]}", ServerOptions(fsync=False)) as server:
        await _require_certificates(server, authority)
        parts = urlsplit(server.url)
        trusted = (
            f"postgresql://{ROLE}@localhost:{parts.port}/app?sslmode=verify-full&sslrootcert={tmp_path / 'ca.pem'}"
        )

        def shown(name: str) -> str:
            client = authority.issue_cert(common_name=name)
            client.private_key_pem.write_to_path(tmp_path / f"{name}.key")
            client.cert_chain_pems[0].write_to_path(tmp_path / f"{name}.pem")
            (tmp_path / f"{name}.key").chmod(0o600)  # psql refuses a key that others can read
            return f"{trusted}&sslcert={tmp_path / name}.pem&sslkey={tmp_path / name}.key"

        yield CertifyingServer(shown, trusted)


async def _require_certificates(server: EmbeddedServer, authority: trustme.CA) -> None:
    """Turn TLS on, and let the role in by its certificate alone."""
    connection = await asyncpg.connect(server.admin_url)
    try:
        _write_files(Path(await connection.fetchval("SHOW data_directory")), authority)
        await connection.execute("ALTER SYSTEM SET ssl_ca_file = 'root.crt'")
        await connection.execute("ALTER SYSTEM SET ssl = on")
        await connection.execute(f"CREATE ROLE {ROLE} LOGIN")
        await connection.execute(f"CREATE DATABASE app OWNER {ROLE}")
        await connection.execute("SELECT pg_reload_conf()")
    finally:
        await connection.close()


def _write_files(data: Path, authority: trustme.CA) -> None:
    made, owner = authority.issue_cert("localhost"), data.stat()
    for name, blob in (
        ("server.crt", made.cert_chain_pems[0]),
        ("server.key", made.private_key_pem),
        ("root.crt", authority.cert_pem),
    ):
        blob.write_to_path(data / name)
        (data / name).chmod(0o600)
        os.chown(data / name, owner.st_uid, owner.st_gid)
    rules = data / "pg_hba.conf"
    rules.write_text(f"hostssl all {ROLE} 127.0.0.1/32 cert\nhost all {ROLE} all reject\n{rules.read_text()}")


async def _run(url: str, *arguments: str) -> tuple[int, str, str]:
    settings = {"POSTROOM_DATABASE_URL": url, "POSTROOM_SECRET_KEY": "5e" * 32, "POSTROOM_TRANSPORT": "capture"}
    return await outcome(*arguments, settings=settings)


async def test_a_room_works_with_a_client_certificate(certifying: CertifyingServer, tmp_path: Path) -> None:
    """Migration, acceptance, worker, psql and backup sign in by certificate, which the server sees."""
    url = certifying.shown(ROLE)
    for arguments in (
        ("migrate",),
        ("send", "--to", "ada@example.org", "--subject", "Hello", "--text", "Hi."),
        ("work", "--until-empty"),
        ("backup", "--no-verify", str(tmp_path / "room.backup")),
    ):
        code, said, errors = await _run(url, *arguments)
        assert code == 0, (arguments, said, errors)
    question = (
        "SELECT current_user, ssl, client_serial IS NOT NULL FROM pg_stat_ssl WHERE pid = pg_backend_pid();"
        " SELECT count(*) FROM postroom.inbox_messages"
    )
    code, said, errors = await _run(url, "psql", "--", "-XAtc", question)
    assert (code, said.split()) == (0, [f"{ROLE}|t|t", "1"]), errors


@pytest.mark.parametrize("shows_other", [False, True])
async def test_without_its_certificate_a_role_is_refused(certifying: CertifyingServer, *, shows_other: bool) -> None:
    """The server requires one, and the name in it must be that of the role; the error names the host."""
    url = certifying.shown("somebody") if shows_other else certifying.trusted
    code, _said, errors = await _run(url, "migrate")
    assert code == 1
    assert "localhost" in errors
    assert "Traceback" not in errors
