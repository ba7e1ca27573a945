"""The submission server's own life: settings, limits, the database away, the end."""

import asyncio
import base64
import smtplib
import ssl
from pathlib import Path

import pytest
import trustme
from tests.intake.conftest import Serve
from tests.support.command_line import postroom, running
from tests.support.patience import PATIENCE_S
from tests.support.ports import free_port
from tests.support.submission import MAIL, deliveries, submit, with_client

from postroom.db.pool import Pool
from postroom.db.room import Room
from postroom.delivery.service import AcceptCombiner
from postroom.errors import SettingInvalid, Unauthenticated
from postroom.intake.smtp.handler import one_room
from postroom.intake.smtp.server import submission_options, submission_server
from postroom.runtime import uvicorn_server
from postroom.runtime.smtp_server import SmtpOptions
from postroom.settings import read_settings


async def test_a_database_that_is_away_is_451(serve: Serve, room: Room) -> None:
    """The mail stays with the client until it can be committed."""
    async with serve() as served:

        def after_the_end(client: smtplib.SMTP) -> tuple[int, bytes]:
            client.mail("shop@example.com")
            client.rcpt("ada@example.org")
            asyncio.run_coroutine_threadsafe(room.pool.close(), loop).result(PATIENCE_S)
            return client.data(MAIL % b"")

        loop = asyncio.get_running_loop()
        code, text = await with_client(served, after_the_end)
    assert (code, text[:5]) == (451, b"4.3.0")


async def test_too_many_connections_are_sent_away(serve: Serve) -> None:
    """Above the limit the greeting is 421, and those inside are not disturbed."""
    async with serve(most_connections=1) as served:
        reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
        assert (await reader.readline()).startswith(b"220")
        other, other_writer = await asyncio.open_connection("127.0.0.1", served.port)
        assert (await other.readline()).startswith(b"421 4.3.2")
        writer.write(b"NOOP\r\n")
        assert (await reader.readline()).startswith(b"250")
        writer.close()
        other_writer.close()


async def test_closing_says_goodbye(serve: Serve) -> None:
    """An idle client gets 421 before the connection is closed."""
    async with serve() as served:
        reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
        await reader.readline()
    assert (await reader.readline()).startswith(b"421 4.3.2")
    writer.close()


async def test_a_client_that_vanishes_leaves_nothing_behind(serve: Serve, pool: Pool) -> None:
    """A message that never ended was never accepted, and the server goes on."""
    async with serve() as served:
        reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
        blob = base64.b64encode(f"\0u\0{served.key}".encode()).decode()
        writer.write(f"EHLO x\r\nAUTH PLAIN {blob}\r\nMAIL FROM:<a@example.org>\r\n".encode())
        writer.write(b"RCPT TO:<ada@example.org>\r\nDATA\r\n" + MAIL % b"")
        while not (await reader.readline()).startswith(b"354"):
            pass
        writer.transport.abort()
        code, _text = await with_client(served, lambda client: submit(client, MAIL % b""))
    assert code == 250
    assert len(await deliveries(pool)) == 1


async def test_an_address_that_is_taken_stops_the_start(serve: Serve, room: Room) -> None:
    """The error names the variable that chose it."""
    async with serve() as served:
        second = submission_server(one_room(AcceptCombiner(room.pool), _nobody), SmtpOptions(port=served.port))
        with pytest.raises(SettingInvalid, match="POSTROOM_SMTP_ADDR"):
            await second.__aenter__()


async def test_a_bound_socket_can_be_handed_in(room: Room) -> None:
    """An address that was taken before anything else was started is used as it is."""
    listener = uvicorn_server.bind(("127.0.0.1", 0), variable="POSTROOM_SMTP_ADDR")
    port = listener.getsockname()[1]
    async with submission_server(
        one_room(AcceptCombiner(room.pool), _nobody), SmtpOptions(), listener=listener
    ) as server:
        assert server.port == port
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        assert (await reader.readline()).startswith(b"220")
        writer.close()


async def _nobody(_key: str, _client: str) -> tuple[str, int | None]:
    raise Unauthenticated


def test_options_come_from_the_settings(tmp_path: Path) -> None:
    """Address, size and certificate are settings; a certificate that cannot be used stops the start by name."""
    options = submission_options(read_settings({"POSTROOM_SMTP_ADDR": "[::1]:2587", "POSTROOM_SMTP_MAX_MB": "2"}))
    assert options is not None
    assert submission_options(read_settings({"POSTROOM_SMTP_ADDR": "off"})) is None
    assert (options.host, options.port, options.size_limit) == ("::1", 2587, 2 * 1024 * 1024)
    with pytest.raises(SettingInvalid, match="POSTROOM_SMTP_TLS_CERT"):
        submission_options(read_settings({"POSTROOM_SMTPS_ADDR": "127.0.0.1:465"}), implicit=True)
    assert submission_options(read_settings({}), implicit=True) is None
    broken = tmp_path / "broken.pem"
    broken.write_text("nonsense")
    for environment in ({"POSTROOM_SMTP_TLS_CERT": str(broken)}, {"POSTROOM_SMTP_TLS_KEY": str(broken)}):
        with pytest.raises(SettingInvalid, match="POSTROOM_SMTP_TLS_CERT"):
            submission_options(read_settings(environment))


async def test_a_served_room_takes_mail_under_tls(
    database_url: str, authority: trustme.CA, certificate: tuple[Path, Path]
) -> None:
    """`postroom serve` listens at POSTROOM_SMTPS_ADDR with the certificate of the settings."""
    chain, key = certificate
    port = free_port()
    settings = {
        "POSTROOM_DATABASE_URL": database_url,
        "POSTROOM_HTTP_ADDR": "127.0.0.1:0",
        "POSTROOM_SMTPS_ADDR": f"127.0.0.1:{port}",
        "POSTROOM_SMTP_TLS_CERT": str(chain),
        "POSTROOM_SMTP_TLS_KEY": str(key),
    }
    trusting = ssl.create_default_context()
    authority.configure_trust(trusting)
    with running("serve", settings=settings) as server:
        await asyncio.to_thread(server.line, lambda line: "Postroom answers at" in line)
        with await asyncio.to_thread(
            smtplib.SMTP_SSL, "127.0.0.1", port, context=trusting, timeout=PATIENCE_S
        ) as client:
            assert client.ehlo("client.example")[0] == 250
            assert client.has_extn("auth")
        assert await asyncio.to_thread(server.stop) == 0


@pytest.mark.parametrize(
    "variable, needed",
    [("POSTROOM_SMTPS_ADDR", "POSTROOM_SMTP_TLS_CERT"), ("POSTROOM_BOUNCE_ADDR", "POSTROOM_BOUNCE_DOMAIN")],
)
def test_invalid_listener_setting_opens_no_port(database_url: str, variable: str, needed: str) -> None:
    """An invalid setting of another listener keeps submission closed too, because the process is about to end."""
    settings = {
        "POSTROOM_DATABASE_URL": database_url,
        "POSTROOM_HTTP_ADDR": "127.0.0.1:0",
        "POSTROOM_LOG_FORMAT": "json",
        variable: "127.0.0.1:0",
    }
    done = postroom("serve", settings=settings)
    assert done.returncode == 1
    assert f"postroom: {needed}: " in done.stderr
    assert "listening" not in done.stderr
