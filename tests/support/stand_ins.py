"""Servers on loopback that stand in for the hosts on the internet that a documentation page names.

    db.internal, eu.internal, …     a PostgreSQL server, in which each host and database of a URL is a database
    relay.internal, smtp.example.org, …   an SMTP server with STARTTLS and a login
    login.example.org               an OpenID Connect provider
    redis.internal                  a Valkey
    s3://example-backups            a bucket

`standing_in` starts those that a text names. A reader replaces the names in the page with those of their own hosts, as
`StandIns.in_place` does, and their shell has `environment`.
"""

import re
import ssl
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory

import asyncpg
import trustme
from anyio.from_thread import BlockingPortal, start_blocking_portal
from tests.support.object_store import CREDENTIALS, running_store
from tests.support.oidc_provider import CLIENT_SECRET, running_provider
from tests.support.smtp_server import Script, smtp_server
from tests.support.streams import start_valkey

from postroom.embedded.binaries import find_binaries
from postroom.embedded.server import EmbeddedServer, ServerOptions

BUCKET = "example-backups"
LOGINS = {"user": "password", "news": "the password"}
_URL = re.compile(r"postgresql://(\w+)@(\w+)\.internal/(\w+)")
_TRUST = "host all all 127.0.0.1/32 trust\nhost replication all 127.0.0.1/32 trust\n"
_ROLES = re.compile(r"CREATE ROLE (\w+)|roles\.sql")


@dataclass(slots=True)
class StandIns:
    """The stand-ins of one page: names to replace, and variables of the reader's shell."""

    names: dict[str, str] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)
    postgres: int = 0  # its port

    def in_place(self, code: str) -> str:
        """The code with the stand-ins in place of the hosts that it names."""
        code = _URL.sub(lambda url: f"postgresql://{url[1]}@127.0.0.1:{self.postgres}/{url[2]}_{url[3]}", code)
        for name, there in self.names.items():
            code = code.replace(name, there)
        return code


@contextmanager
def standing_in(text: str, directory: Path) -> Iterator[StandIns]:
    """The stand-ins for all hosts that a text names, until the end of the block."""
    found = StandIns()
    with (
        TemporaryDirectory(prefix="h-", dir=directory) as folder,
        start_blocking_portal() as portal,
        ExitStack() as stack,
    ):
        Path(folder).chmod(0o755)  # PostgreSQL runs under another account if we are root
        for pattern, start in _STARTS.items():
            if re.search(pattern, text):
                stack.enter_context(start(found, text, Path(folder), portal))
        yield found


@contextmanager
def _postgres(found: StandIns, text: str, directory: Path, portal: BlockingPortal) -> Iterator[None]:
    with portal.wrap_async_context_manager(_server(text, directory / "stand-in")) as port:
        found.postgres = port
        found.environment["PATH"] = str(Path(find_binaries().tool("psql")).parent)
        yield


@asynccontextmanager
async def _server(text: str, directory: Path) -> AsyncIterator[int]:
    """A server with a database for each host and database of the text, and its roles unless the text creates them."""
    options = ServerOptions(fsync=False, extra=(("wal_level", "replica"), ("max_wal_senders", "4")))
    async with EmbeddedServer(directory, options) as server:
        admin = await asyncpg.connect(server.admin_url)
        rules = directory / "postgres" / "pg_hba.conf"
        rules.write_text(f"{_TRUST}{rules.read_text()}")
        await admin.execute("SELECT pg_reload_conf()")
        urls = _URL.findall(text)
        roles = {"app", *(role for role, _host, _name in urls)}
        for role in {role for role in roles if not (_ROLES.search(text) and role.startswith("postroom_"))}:
            if not await admin.fetchval("SELECT EXISTS (SELECT FROM pg_roles WHERE rolname = $1)", role):
                await admin.execute(f"CREATE ROLE {role} LOGIN")
        for name in {f"{host}_{name}" for _role, host, name in urls}:
            await admin.execute(f"CREATE DATABASE {name}")
            await admin.execute(f"GRANT CREATE ON DATABASE {name} TO PUBLIC")
        yield await admin.fetchval("SELECT current_setting('port')::integer")
        await admin.close()


@contextmanager
def _relay(found: StandIns, _text: str, directory: Path, portal: BlockingPortal) -> Iterator[None]:
    authority, file = trustme.CA(), directory / "authority.pem"
    authority.cert_pem.write_to_path(str(file))
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(tls)
    with portal.wrap_async_context_manager(smtp_server(Script(tls=tls, users=LOGINS))) as server:
        for name in ("relay.internal:587", "relay.example.org:587", "smtp.example.org:587"):
            found.names[name] = f"127.0.0.1:{server.port}"
        found.environment |= {"SSL_CERT_FILE": str(file), "POSTROOM_SENDERS_ALLOW_PRIVATE": "1"}
        yield


@contextmanager
def _provider(found: StandIns, _text: str, _directory: Path, _portal: BlockingPortal) -> Iterator[None]:
    with running_provider() as provider:
        found.names |= {"https://login.example.org/realms/staff": provider.url, "the client secret": CLIENT_SECRET}
        yield


@contextmanager
def _bucket(found: StandIns, _text: str, _directory: Path, _portal: BlockingPortal) -> Iterator[None]:
    with running_store() as endpoint:
        client = import_module("boto3").client(
            "s3", endpoint_url=endpoint, aws_access_key_id="test", aws_secret_access_key="test", region_name="us-east-1"
        )
        client.create_bucket(Bucket=BUCKET)
        found.environment |= {**CREDENTIALS, "POSTROOM_ARCHIVE_ENDPOINT": endpoint}
        yield
        client.close()


@contextmanager
def _redis(found: StandIns, _text: str, directory: Path, portal: BlockingPortal) -> Iterator[None]:
    server = portal.call(start_valkey, directory)
    found.names["redis://redis.internal:6379"] = server.url
    try:
        yield
    finally:
        portal.call(server.kill)


Start = Callable[[StandIns, str, Path, BlockingPortal], AbstractContextManager[None]]

_STARTS: dict[str, Start] = {
    _URL.pattern: _postgres,
    r"(relay\.internal|relay\.example\.org|smtp\.example\.org):587": _relay,
    r"login\.example\.org": _provider,
    f"s3://{BUCKET}": _bucket,
    r"redis\.internal": _redis,
}
