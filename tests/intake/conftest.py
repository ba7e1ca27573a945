"""Fixtures of the tests of intake: a submission server with a real key."""

import contextlib
import ssl
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
import trustme
from tests.support.http import a_key
from tests.support.patience import PATIENCE_S
from tests.support.streams import be_patient_with_nats

from postroom.cli.listeners import submitter
from postroom.db.room import Room
from postroom.delivery.service import AcceptCombiner
from postroom.http.auth import Authenticator
from postroom.intake.smtp.handler import one_room
from postroom.intake.smtp.server import load_tls, submission_server
from postroom.runtime.smtp_server import SmtpOptions, SmtpServer

Serve = Callable[..., contextlib.AbstractAsyncContextManager["Served"]]


@dataclass(frozen=True, slots=True)
class Served:
    """A listening server and a key that may submit to it."""

    server: SmtpServer
    key: str
    key_id: int
    auth: Authenticator

    @property
    def port(self) -> int:
        return self.server.port


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A NATS server that is slow is not one that is away, or that is choosing a leader."""
    be_patient_with_nats(monkeypatch)
    monkeypatch.setattr("postroom.intake.nats.source.ANSWER_S", PATIENCE_S)


@pytest.fixture
def serve(room: Room) -> Serve:
    """Opens a submission server in the test's room, on a free port of loopback."""

    @contextlib.asynccontextmanager
    async def open_server(*, scope: str = "deliveries:write", **options: object) -> AsyncIterator[Served]:
        key, row = await a_key(room, "shop", scope)
        auth = Authenticator(room.pool)
        accepting = AcceptCombiner(room.pool)
        chosen = SmtpOptions(port=0, **options)  # type: ignore[arg-type]
        async with submission_server(one_room(accepting, submitter(auth)), chosen) as server:
            yield Served(server, key, row.id, auth)
        await accepting.close()

    return open_server


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture(scope="module")
def certificate(authority: trustme.CA, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A chain and its key, as an operator would keep them."""
    issued = authority.issue_cert("localhost", "127.0.0.1")
    directory = tmp_path_factory.mktemp("tls")
    chain, key = directory / "chain.pem", directory / "key.pem"
    chain.write_bytes(b"".join(blob.bytes() for blob in issued.cert_chain_pems))
    issued.private_key_pem.write_to_path(str(key))
    return chain, key


@pytest.fixture(scope="module")
def server_tls(certificate: tuple[Path, Path]) -> ssl.SSLContext:
    context = load_tls(*certificate)
    assert context is not None
    return context
