"""TLS to the database: verified unless the host is local or the URL says otherwise."""

import socket
import ssl
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import trustme
from tests.conftest import SCHEMA
from tests.support.tls_postgres import tls_postgres

from postroom.db.errors import DatabaseUnreachable
from postroom.db.pool import connect
from postroom.errors import SettingInvalid

NAME = "db.example.org"


@pytest.fixture(autouse=True)
def names_lead_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Resolve a name that is not local to loopback."""
    real = socket.getaddrinfo

    def resolve(host: Any, *others: Any, **more: Any) -> Any:
        return real("127.0.0.1" if host in (NAME, "other.example.org") else host, *others, **more)

    monkeypatch.setattr(socket, "getaddrinfo", resolve)


@pytest.fixture
def authority(tmp_path: Path) -> tuple[ssl.SSLContext, str]:
    """A server context for the name, and the file of the private authority that signed its certificate."""
    made = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    made.issue_cert(NAME).configure_cert(context)
    made.cert_pem.write_to_path(tmp_path / "ca.pem")
    return context, str(tmp_path / "ca.pem")


def _url(database_url: str, host: str, port: int, query: str = "") -> str:
    parts = urlsplit(database_url)
    return f"postgresql://{parts.username}:{parts.password}@{host}:{port}{parts.path}{query}"


async def _ask(url: str) -> int:
    session = await connect(url, SCHEMA)
    try:
        answer: int = await session.fetchval("SELECT 1")
        return answer
    finally:
        await session.close()


async def test_sslrootcert_verifies_a_private_authority(
    database_url: str, authority: tuple[ssl.SSLContext, str]
) -> None:
    """Certificate and name are verified by the file in the URL."""
    context, file = authority
    async with tls_postgres(database_url, context) as port:
        assert await _ask(_url(database_url, NAME, port, f"?sslrootcert={file}")) == 1
        assert await _ask(_url(database_url, NAME, port, f"?sslmode=verify-full&sslrootcert={file}")) == 1


async def test_client_certificate_is_shown_to_the_server(database_url: str, tmp_path: Path) -> None:
    """A server that requires one accepts the certificate of sslcert and sslkey, and no connection without it."""
    authority, context = trustme.CA(), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(NAME).configure_cert(context)
    authority.configure_trust(context)
    context.verify_mode = ssl.CERT_REQUIRED
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    client = authority.issue_cert("postroom@example.org")
    client.private_key_pem.write_to_path(tmp_path / "key.pem")
    client.cert_chain_pems[0].write_to_path(tmp_path / "client.pem")
    trusted = f"?sslrootcert={tmp_path / 'ca.pem'}"
    shown = f"{trusted}&sslcert={tmp_path / 'client.pem'}&sslkey={tmp_path / 'key.pem'}"
    async with tls_postgres(database_url, context) as port:
        assert await _ask(_url(database_url, NAME, port, shown)) == 1
        with pytest.raises(DatabaseUnreachable):
            await _ask(_url(database_url, NAME, port, trusted))


async def test_unverifiable_certificate_is_rejected(database_url: str, authority: tuple[ssl.SSLContext, str]) -> None:
    """An unknown authority or another name is an error that names the setting and the choices."""
    context, file = authority
    async with tls_postgres(database_url, context) as port:
        with pytest.raises(DatabaseUnreachable, match=r"sslrootcert=/path/to/ca\.pem to POSTROOM_DATABASE_URL"):
            await _ask(_url(database_url, NAME, port))
        with pytest.raises(DatabaseUnreachable, match="cannot be verified"):
            await _ask(_url(database_url, "other.example.org", port, f"?sslrootcert={file}"))
        assert await _ask(_url(database_url, NAME, port, "?sslmode=require")) == 1


async def test_server_without_tls_is_rejected_unless_allowed(database_url: str) -> None:
    """The password is not sent in clear text because a server, or an attacker in between, declines TLS."""
    async with tls_postgres(database_url, None) as port:
        with pytest.raises(DatabaseUnreachable, match="sslmode=disable to the URL"):
            await _ask(_url(database_url, NAME, port))
        assert await _ask(_url(database_url, NAME, port, "?sslmode=prefer")) == 1
        assert await _ask(_url(database_url, "127.0.0.1", port)) == 1


async def test_missing_authority_file_is_an_invalid_setting(database_url: str) -> None:
    """The error names the setting, not the server."""
    with pytest.raises(SettingInvalid, match="sslrootcert or sslcert cannot be read"):
        await _ask(_url(database_url, NAME, 1, "?sslrootcert=/nowhere/ca.pem"))
