"""Submission requires a key and TLS, limits guessing, and prevents SMTP smuggling."""

import asyncio
import base64
import logging
import smtplib
import ssl
from collections.abc import Callable

import pytest
import trustme
from tests.intake.conftest import Serve
from tests.support.patience import PATIENCE_S
from tests.support.refusals import logged_refusals
from tests.support.silence import let_pass
from tests.support.submission import MAIL, deliveries, submit, with_client

from postroom.db.pool import Pool
from postroom.db.room import Room
from postroom.errors import Unauthenticated, WrongKeysTooOften
from postroom.http import service as keys
from postroom.http.auth import WRONG_KEYS
from postroom.intake.smtp import session as session_module
from postroom.runtime.peers import LOOPBACK, is_within


async def test_no_mail_without_authentication(serve: Serve, pool: Pool) -> None:
    """Never an open relay: before AUTH every command that names mail is refused, in every order."""

    def tries(client: smtplib.SMTP) -> set[int]:
        commands = ["MAIL FROM:<a@example.org>", "RCPT TO:<b@example.org>", "DATA", "VRFY b", "AUTH PLAIN AAA=", "DATA"]
        return {client.docmd(command)[0] for command in commands}

    async with serve() as served:
        assert await with_client(served, tries, login=False) <= {501, 503, 530, 535}
    assert await deliveries(pool) == []


@pytest.mark.parametrize("password", ["wrong", "pr_" + "x" * 43, "", "\N{SNOWMAN}", "a" * 300])
async def test_a_wrong_key_is_refused(serve: Serve, password: str) -> None:
    """535, whatever was presented, in SMTP's words: the key is the password. The refusal is logged."""
    blob = base64.b64encode(f"\0user\0{password}".encode()).decode()
    async with serve() as served:
        with logged_refusals() as refused:
            code, text = await with_client(served, lambda client: client.docmd("AUTH PLAIN", blob), login=False)
    assert refused == [("smtp", "unauthenticated")]
    assert code == 535
    assert b"password must be a valid API key" in text
    assert b"Bearer" not in text


async def test_wrong_keys_count_as_they_do_over_http(serve: Serve) -> None:
    """One counter for an address: after 100 wrong keys in a minute both refuse it, except with a key they know."""

    def present(key: str) -> Callable[[smtplib.SMTP], tuple[int, bytes]]:
        return lambda client: client.docmd("AUTH PLAIN", base64.b64encode(f"\0user\0{key}".encode()).decode())

    wrong = "pr_" + "x" * 43
    async with serve() as served:
        assert (await with_client(served, present(served.key), login=False))[0] == 235
        for _ in range(WRONG_KEYS - 1):
            with pytest.raises(Unauthenticated):
                await served.auth.authenticate(f"Bearer {wrong}", "deliveries:write", client="127.0.0.1")
        assert (await with_client(served, present(wrong), login=False))[0] == 535
        with pytest.raises(WrongKeysTooOften):
            await served.auth.authenticate(f"Bearer {wrong}", "deliveries:write", client="127.0.0.1")
        code, text = await with_client(served, present(wrong), login=False)
        assert (code, b"Too many invalid API keys" in text) == (454, True)
        assert (await with_client(served, present(served.key), login=False))[0] == 235


async def test_a_key_without_the_scope_is_refused(serve: Serve) -> None:
    """A key that may only read does not submit, and the answer says what it lacks."""
    async with serve(scope="deliveries:read") as served:
        with pytest.raises(smtplib.SMTPAuthenticationError, match="deliveries:write"):
            await with_client(served, lambda client: None)


async def test_login_and_plain_in_any_case(serve: Serve) -> None:
    """Both mechanisms work, with or without an initial response, however they are spelled."""

    def login(client: smtplib.SMTP, key: str) -> list[int]:
        word = base64.b64encode(key.encode()).decode()
        answers = [client.docmd("auth login", base64.b64encode(b"u").decode())[0], client.docmd(word)[0]]
        client.docmd("RSET")
        return answers

    def plain(client: smtplib.SMTP, key: str) -> list[int]:
        blob = base64.b64encode(f"\0u\0{key}".encode()).decode()
        return [client.docmd("Auth Plain")[0], client.docmd(blob)[0]]

    async with serve() as served:
        assert await with_client(served, lambda client: login(client, served.key), login=False) == [334, 235]
        assert await with_client(served, lambda client: plain(client, served.key), login=False) == [334, 235]


async def test_guessing_ends_the_connection(serve: Serve) -> None:
    """After a few wrong keys the server hangs up."""

    def guess(client: smtplib.SMTP) -> list[int]:
        return [client.docmd("AUTH PLAIN", "AHUAcA==")[0] for _try in range(4)]

    async with serve() as served:
        assert await with_client(served, guess, login=False) == [535, 535, 535, 421]


async def test_no_log_holds_a_key_or_an_address(
    serve: Serve, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    """Neither our log nor the library's says who wrote to whom, or with which key."""
    caplog.set_level(logging.DEBUG)
    async with serve() as served:
        await with_client(served, lambda client: submit(client, MAIL % b""))
        await with_client(served, lambda client: client.docmd("AUTH PLAIN", "AHVzZXIAaHVudGVyMg=="), login=False)
    written = caplog.text + "".join(capsys.readouterr())
    blob = base64.b64encode(f"\0anyone\0{served.key}".encode()).decode()
    assert [word for word in (served.key, blob, "ada@example.org", "AHVzZXIAaHVudGVyMg") if word in written] == []


async def test_a_revoked_key_submits_no_more(serve: Serve, pool: Pool) -> None:
    """On a connection that stays open, the next mail is refused."""
    async with serve() as served:
        reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
        blob = base64.b64encode(f"\0u\0{served.key}".encode()).decode()
        writer.write(f"EHLO x\r\nAUTH PLAIN {blob}\r\n".encode())
        while not (await reader.readline()).startswith(b"235"):
            pass
        await keys.revoke_key(pool, served.key_id, actor="tests")
        served.auth.forget(served.key_id)
        writer.write(b"MAIL FROM:<a@example.org>\r\n")
        assert (await reader.readline()).startswith(b"535 5.7.8")
        writer.close()


async def test_a_bare_newline_does_not_end_a_message(serve: Serve, pool: Pool) -> None:
    """A dot between bare newlines is content, which prevents SMTP smuggling."""
    smuggled = MAIL % b"" + b"\n.\nMAIL FROM:<evil@example.org>\r\n"
    async with serve() as served:
        reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
        blob = base64.b64encode(f"\0u\0{served.key}".encode()).decode()
        writer.write(f"EHLO x\r\nAUTH PLAIN {blob}\r\nMAIL FROM:<a@example.org>\r\n".encode())
        writer.write(b"RCPT TO:<ada@example.org>\r\nDATA\r\n" + smuggled + b".\r\nQUIT\r\n")
        answers = [line[:4] for line in (await reader.read()).splitlines() if line[:4] != b"250-"]
        writer.close()
    assert answers[-5:] == [b"250 ", b"250 ", b"354 ", b"250 ", b"221 "]
    [delivery] = await deliveries(pool)
    assert "MAIL FROM:<evil@example.org>" in (delivery.text or "")


async def test_authentication_without_a_database_is_454(serve: Serve, room: Room) -> None:
    """A key that cannot be checked is a temporary failure, not an invalid key."""
    async with serve() as served:
        await room.pool.close()
        with pytest.raises(smtplib.SMTPAuthenticationError) as caught:
            await with_client(served, lambda client: None)
    assert caught.value.smtp_code == 454


def trusting(authority: trustme.CA) -> ssl.SSLContext:
    context = ssl.create_default_context()
    authority.configure_trust(context)
    context.check_hostname = False
    return context


async def test_a_mail_over_starttls(
    serve: Serve, pool: Pool, authority: trustme.CA, server_tls: ssl.SSLContext
) -> None:
    """STARTTLS is offered with a certificate, and the whole way works inside it."""

    def send(client: smtplib.SMTP, key: str) -> tuple[int, bytes]:
        client.starttls(context=trusting(authority))
        client.ehlo("client.example")
        assert "starttls" not in client.esmtp_features
        client.login("anyone", key)
        return submit(client, MAIL % b"")

    async with serve(tls=server_tls) as served:
        code, _text = await with_client(served, lambda client: send(client, served.key), login=False)
    assert code == 250
    assert len(await deliveries(pool)) == 1


async def test_from_afar_a_key_is_only_taken_under_tls(
    serve: Serve, authority: trustme.CA, server_tls: ssl.SSLContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client on another host is not offered AUTH in the clear, and is refused if it tries."""
    monkeypatch.setattr(session_module, "LOOPBACK", ())

    def tries(client: smtplib.SMTP, key: str) -> tuple[bool, int, int]:
        offered = "auth" in client.esmtp_features
        blob = base64.b64encode(f"\0u\0{key}".encode()).decode()
        clear, _text = client.docmd("AUTH PLAIN", blob)
        client.starttls(context=trusting(authority))
        client.ehlo("client.example")
        return offered, clear, client.login("u", key)[0]

    async with serve(tls=server_tls) as served:
        assert await with_client(served, lambda client: tries(client, served.key), login=False) == (False, 538, 235)


async def test_a_mail_under_tls_from_the_first_byte(
    serve: Serve, pool: Pool, authority: trustme.CA, server_tls: ssl.SSLContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    """RFC 8314: AUTH is offered to clients from afar at once, and there is no STARTTLS inside TLS."""
    monkeypatch.setattr(session_module, "LOOPBACK", ())

    def send(port: int, key: str) -> tuple[set[str], int, int]:
        with smtplib.SMTP_SSL("127.0.0.1", port, context=trusting(authority), timeout=PATIENCE_S) as client:
            client.ehlo("client.example")
            offered = set(client.esmtp_features) & {"auth", "starttls"}
            refused, _text = client.docmd("STARTTLS")
            client.login("anyone", key)
            return offered, refused, submit(client, MAIL % b"")[0]

    async with serve(tls=server_tls, implicit=True) as served:
        assert await asyncio.to_thread(send, served.port, served.key) == ({"auth"}, 454, 250)
    assert len(await deliveries(pool)) == 1


async def test_words_sent_before_tls_are_forgotten(
    serve: Serve, authority: trustme.CA, server_tls: ssl.SSLContext
) -> None:
    """Plaintext commands injected behind STARTTLS are not executed inside TLS."""

    def slip(client: smtplib.SMTP) -> tuple[int, bytes]:
        client.send("STARTTLS\r\nNOOP slipped\r\n")
        assert client.getreply()[0] == 220
        assert client.sock is not None
        client.sock = trusting(authority).wrap_socket(client.sock)
        client.file = None  # the old reader belongs to the clear
        return client.docmd("EHLO inside")

    async with serve(tls=server_tls) as served:
        code, text = await with_client(served, slip, login=False)
    assert (code, b"AUTH" in text) == (250, True)


@pytest.mark.parametrize(
    "peer,local",
    [
        ("127.0.0.1", True),
        ("::1", True),
        ("::ffff:127.0.0.1", True),
        ("10.0.0.1", False),
        ("fe80::1%eth0", False),
        ("somewhere", False),
        ("", True),
    ],
)
def test_loopback_and_local_sockets_are_this_host(peer: str, local: bool) -> None:  # noqa: FBT001 - a column of the table
    """Loopback in any spelling, and local sockets; nothing else."""
    assert is_within(peer, LOOPBACK) is local


async def test_a_client_has_a_minute_to_authenticate(serve: Serve) -> None:
    """Before AUTH the time counts from the start: NOOP does not extend it."""
    async with serve() as served:
        reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
        await reader.readline()
        for _ in range(2):
            writer.write(b"NOOP\r\n")
            assert (await reader.readline()).startswith(b"250")
            let_pass(31)
        assert (await reader.readline()).startswith(b"421 4.4.2")
        assert await reader.read() == b""
        writer.close()


async def test_authenticated_client_may_take_longer(serve: Serve) -> None:
    """After AUTH the time between two commands counts, not the time since the start."""
    async with serve() as served:
        reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
        await reader.readline()
        blob = base64.b64encode(f"\0u\0{served.key}".encode())
        writer.write(b"EHLO a\r\n")
        while not (await reader.readline()).startswith(b"250 "):
            pass
        writer.write(b"AUTH PLAIN " + blob + b"\r\n")
        assert (await reader.readline()).startswith(b"235")
        let_pass(61)
        writer.write(b"NOOP\r\n")
        assert (await reader.readline()).startswith(b"250")
        writer.close()


async def test_connections_of_one_address_are_limited(serve: Serve) -> None:
    """An address gets its share of the connections; this host and trusted proxies are not limited."""
    async with serve(most_per_peer=1, unlimited=()) as served:
        reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
        assert (await reader.readline()).startswith(b"220")
        other, other_writer = await asyncio.open_connection("127.0.0.1", served.port)
        assert (await other.readline()).startswith(b"421 4.7.0")
        writer.close()
        other_writer.close()
    async with serve(most_per_peer=1) as served:
        readers = [await asyncio.open_connection("127.0.0.1", served.port) for _ in range(2)]
        for reader, writer in readers:
            assert (await reader.readline()).startswith(b"220")
            writer.close()
