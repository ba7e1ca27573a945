"""Submission with real clients over real sockets."""

import asyncio
import base64
import smtplib
import ssl
from collections.abc import Callable
from email.message import EmailMessage
from pathlib import Path
from typing import TypeVar

import pytest
import trustme

from postroom.db.pool import Pool
from postroom.db.room import Room
from postroom.delivery import service as delivery_service
from postroom.delivery.model import Delivery, DeliveryFilter
from postroom.errors import SettingInvalid
from postroom.http import service as keys
from postroom.intake.smtp import session as session_module
from postroom.intake.smtp.server import SubmissionOptions, load_tls
from postroom.intake.smtp.session import _is_local
from postroom.settings import read_settings
from tests.intake.commands import keys_of
from tests.intake.conftest import Serve, Served

Result = TypeVar("Result")
MAIL = b"From: shop@example.com\r\nTo: ada@example.org\r\nSubject: Hi\r\n%b\r\nHello\r\n"


def letter(subject: str = "Hello", **headers: str) -> EmailMessage:
    message = EmailMessage()
    message["From"], message["To"], message["Subject"] = "shop@example.com", "Ada <ada@example.org>", subject
    for name, value in headers.items():
        message[name.replace("_", "-")] = value
    message.set_content("Hello, Ada.")
    return message


async def with_client(served: Served, use: Callable[[smtplib.SMTP], Result], *, login: bool = True) -> Result:
    """Run a client of the standard library in a thread."""

    def work() -> Result:
        with smtplib.SMTP("127.0.0.1", served.port, timeout=20) as client:
            client.ehlo("client.example")
            if login:
                client.login("anyone", served.key)
            return use(client)

    return await asyncio.to_thread(work)


async def deliveries(pool: Pool) -> list[Delivery]:
    found, _cursor = await delivery_service.list_deliveries(pool, DeliveryFilter())
    return [await delivery_service.get_delivery(pool, one.id) for one in reversed(found)]


def submit(client: smtplib.SMTP, data: bytes, *recipients: str) -> tuple[int, bytes]:
    """One transaction by hand; returns the answer to the message."""
    client.mail("shop@example.com")
    for recipient in recipients or ("ada@example.org",):
        client.rcpt(recipient)
    return client.data(data)


async def test_a_submitted_mail_is_a_committed_delivery(serve: Serve, pool: Pool) -> None:
    """250 names the delivery, which is queued, with the key's name as its source."""
    async with serve() as served:
        code, text = await with_client(served, lambda client: submit(client, MAIL % b"", "ada@example.org"))
    [delivery] = await deliveries(pool)
    assert (code, text.decode()) == (250, f"2.0.0 Accepted as {delivery.id}")
    assert (delivery.source, delivery.subject, delivery.state.value) == ("shop", "Hi", "queued")


async def test_the_standard_library_sends_a_message(serve: Serve, pool: Pool) -> None:
    """`smtplib.send_message` works as it is, Bcc included."""
    message = letter(Bcc="eve@example.org", Cc="bob@example.org")
    async with serve() as served:
        refused = await with_client(served, lambda client: client.send_message(message))
    [delivery] = await deliveries(pool)
    assert refused == {}
    assert {(each.kind.value, each.address) for each in delivery.recipients} == {
        ("to", "ada@example.org"), ("cc", "bob@example.org"), ("bcc", "eve@example.org"),
    }  # fmt: skip
    assert not {name.lower() for name in delivery.headers} & {"bcc", "cc", "to"}


async def test_django_sends_through_its_own_backend(serve: Serve, pool: Pool) -> None:
    """Django's SMTP backend, with HTML and a file, needs nothing but host, port and key."""
    django_conf = pytest.importorskip("django.conf", reason="Django is not installed: its SMTP backend is NOT tested")
    mail = pytest.importorskip("django.core.mail")
    backend = pytest.importorskip("django.core.mail.backends.smtp")
    if not django_conf.settings.configured:
        django_conf.settings.configure(DEFAULT_CHARSET="utf-8")

    def send(served: Served) -> int:
        connection = backend.EmailBackend(
            host="127.0.0.1", port=served.port, username="shop", password=served.key, use_tls=False, fail_silently=False
        )
        message = mail.EmailMultiAlternatives(
            "Grüße", "Hällo", "shop@example.com", ["ada@example.org"], bcc=["eve@example.org"], connection=connection
        )
        message.attach_alternative("<p>Hällo</p>", "text/html")
        message.attach("a.txt", "über", "text/plain")
        return int(message.send())

    async with serve() as served:
        assert await asyncio.to_thread(send, served) == 1
    [delivery] = await deliveries(pool)
    assert (delivery.subject, (delivery.text or "").strip(), delivery.html) == ("Grüße", "Hällo", "<p>Hällo</p>")
    assert [attachment.filename for attachment in delivery.attachments] == ["a.txt"]


async def test_the_server_says_what_it_can(serve: Serve) -> None:
    """The extensions programs look for are announced."""
    async with serve(size_limit=1000) as served:
        features = await with_client(served, lambda client: dict(client.esmtp_features), login=False)
    assert {"pipelining", "8bitmime", "smtputf8", "auth", "size"} <= features.keys()
    assert (features["size"], sorted(features["auth"].split())) == ("1000", ["LOGIN", "PLAIN"])
    assert "starttls" not in features


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
    """535, whatever was presented."""
    blob = base64.b64encode(f"\0user\0{password}".encode()).decode()
    async with serve() as served:
        code, _text = await with_client(served, lambda client: client.docmd("AUTH PLAIN", blob), login=False)
    assert code == 535


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


async def test_pipelined_commands_are_answered_in_order(serve: Serve, pool: Pool) -> None:
    """Everything up to DATA, and two messages in a row, may come in one piece."""
    async with serve() as served:
        reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
        blob = base64.b64encode(f"\0u\0{served.key}".encode()).decode()
        writer.write(f"EHLO x\r\nAUTH PLAIN {blob}\r\n".encode())
        while not (await reader.readline()).startswith(b"235"):
            pass
        one = b"MAIL FROM:<a@example.org>\r\nRCPT TO:<b@example.org>\r\nRCPT TO:<broken\r\nDATA\r\n" + MAIL % b"" + b".\r\n"
        writer.write(one + one + b"QUIT\r\n")
        answers = [line[:3] for line in (await reader.read()).splitlines()]
        writer.close()
    assert answers == [b"250", b"250", b"553", b"354", b"250"] * 2 + [b"221"]
    assert len(await deliveries(pool)) == 2


async def test_a_repeated_message_id_is_accepted_once(serve: Serve, pool: Pool) -> None:
    """A client that did not hear our 250 sends again and is given the first delivery."""
    data = MAIL % b"Message-ID: <7@example.com>\r\n"
    async with serve() as served:
        first, again = await with_client(served, lambda client: [submit(client, data), submit(client, data)])
    [delivery] = await deliveries(pool)
    assert first == (250, f"2.0.0 Accepted as {delivery.id}".encode())
    assert again == (250, f"2.0.0 Already accepted as {delivery.id}".encode())
    assert delivery.headers["Message-ID"] == "<7@example.com>"


async def test_the_halves_of_a_split_message_are_both_accepted(serve: Serve, pool: Pool) -> None:
    """A relay that splits many recipients over transactions repeats the Message-ID; nobody is lost."""
    data = MAIL % b"Message-ID: <7@example.com>\r\n"
    async with serve() as served:
        await with_client(served, lambda c: [submit(c, data, "ada@example.org"), submit(c, data, "bob@example.org")])
    assert len(await deliveries(pool)) == 2


async def test_a_key_used_with_another_message_is_a_conflict(serve: Serve, pool: Pool) -> None:
    """554 for the second; the first stands."""
    async with serve() as served:
        answers = await with_client(
            served,
            lambda client: [
                submit(client, MAIL % b"Idempotency-Key: k\r\n"),
                submit(client, MAIL % b"Idempotency-Key: k\r\nX-Other: 1\r\n"),
            ],
        )
    assert [code for code, _text in answers] == [250, 554]
    assert answers[1][1].startswith(b"5.5.4")
    assert await keys_of(pool) == ["k"]


@pytest.mark.parametrize(
    "data,answer",
    [
        pytest.param(MAIL % b"X-Postroom-Lane: express\r\n", "554 5.6.0 X-Postroom-Lane", id="mark"),
        pytest.param(MAIL % b"X-Postroom-Template: ../x\r\n", "554 5.6.0 template", id="template"),
        pytest.param(MAIL % b"Content-Type: multipart/signed; boundary=b\r\n", "554 5.6.0 message", id="signed"),
        pytest.param(MAIL % b"" + b"x" * 80 * 1024, "552 5.3.4", id="larger than the limit"),
    ],
)
async def test_a_refusal_says_why_and_stores_nothing(serve: Serve, pool: Pool, data: bytes, answer: str) -> None:
    """The code is for programs, the text for people."""
    async with serve(size_limit=64 * 1024) as served:
        code, text = await with_client(served, lambda client: submit(client, data))
    assert f"{code} {text.decode()}".startswith(answer)
    assert await deliveries(pool) == []


async def test_a_body_above_the_limits_of_a_delivery_is_too_large(serve: Serve) -> None:
    """What fits the server but not a delivery is 552 too."""
    message = MAIL % b"" + (b"x" * 998 + b"\r\n") * 5300
    async with serve() as served:
        code, text = await with_client(served, lambda client: submit(client, message))
    assert (code, text[:5]) == (552, b"5.3.4")


async def test_an_announced_size_is_refused_before_the_message(serve: Serve) -> None:
    """A client that says how large it is need not send it."""
    async with serve(size_limit=1000) as served:
        code, text = await with_client(served, lambda client: client.mail("a@example.org", ["SIZE=1001"]))
    assert (code, text[:5]) == (552, b"5.3.4")


async def test_too_many_recipients_are_told_to_come_again(serve: Serve) -> None:
    """The hundred and first gets 452, which relays understand as: another transaction."""

    def name_many(client: smtplib.SMTP) -> list[int]:
        client.mail("a@example.org")
        return [client.rcpt(f"u{number}@example.org")[0] for number in range(101)]

    async with serve() as served:
        assert await with_client(served, name_many) == [250] * 100 + [452]


async def test_addresses_are_checked_when_they_are_named(serve: Serve) -> None:
    """A wrong address is refused by itself and does not spoil the others."""

    def name_some(client: smtplib.SMTP) -> list[int]:
        client.command_encoding = "utf-8"
        client.mail("a@example.org", ["SMTPUTF8"])
        return [client.rcpt(address)[0] for address in ("ada@example.org", "nobody", "a@b..c", "Jörg@exämple.org")]

    async with serve() as served:
        assert await with_client(served, name_some) == [250, 553, 553, 250]


async def test_mail_in_utf8_arrives(serve: Serve, pool: Pool) -> None:
    """SMTPUTF8: addresses, subject and body beyond ASCII."""
    message = EmailMessage()
    message["From"], message["To"], message["Subject"] = "shop@example.com", "Jörg <jörg@exämple.org>", "Grüße"
    message.set_content("Schöne Grüße", cte="8bit")
    async with serve() as served:
        await with_client(served, lambda client: client.send_message(message))
    [delivery] = await deliveries(pool)
    assert delivery.subject == "Grüße"
    assert [(each.address, each.name) for each in delivery.recipients] == [("jörg@xn--exmple-cua.org", "Jörg")]


async def test_dots_and_long_lines_survive(serve: Serve, pool: Pool) -> None:
    """Dot-stuffing is undone; a line longer than the standard's thousand is tolerated."""
    body = b".hidden\r\n" + b"x" * 5000 + b"\r\n"
    async with serve() as served:
        code, _text = await with_client(served, lambda client: submit(client, MAIL % b"" + body))
    [delivery] = await deliveries(pool)
    assert (code, delivery.text) == (250, "Hello\n.hidden\n" + "x" * 5000 + "\n")


async def test_a_bare_newline_does_not_end_a_message(serve: Serve, pool: Pool) -> None:
    """A dot between bare newlines is content: nobody smuggles a second mail through."""
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


async def test_a_database_that_is_away_is_451(serve: Serve, room: Room) -> None:
    """The mail stays with the client until it can be committed."""
    async with serve() as served:
        def after_the_end(client: smtplib.SMTP) -> tuple[int, bytes]:
            client.mail("shop@example.com")
            client.rcpt("ada@example.org")
            asyncio.run_coroutine_threadsafe(room.pool.close(), loop).result(10)
            return client.data(MAIL % b"")

        loop = asyncio.get_running_loop()
        code, text = await with_client(served, after_the_end)
    assert (code, text[:5]) == (451, b"4.3.0")


async def test_authentication_without_a_database_is_454(serve: Serve, room: Room) -> None:
    """Nobody is told that his key is wrong when nobody could look."""
    async with serve() as served:
        await room.pool.close()
        with pytest.raises(smtplib.SMTPAuthenticationError) as caught:
            await with_client(served, lambda client: None)
    assert caught.value.smtp_code == 454


# --- TLS -----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture(scope="module")
def server_tls(authority: trustme.CA, tmp_path_factory: pytest.TempPathFactory) -> ssl.SSLContext:
    """A certificate as an operator would configure it."""
    issued = authority.issue_cert("localhost")
    directory = tmp_path_factory.mktemp("tls")
    chain, key = directory / "chain.pem", directory / "key.pem"
    chain.write_bytes(b"".join(blob.bytes() for blob in issued.cert_chain_pems))
    issued.private_key_pem.write_to_path(str(key))
    context = load_tls(chain, key)
    assert context is not None
    return context


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
    monkeypatch.setattr(session_module, "_is_local", lambda peer: False)

    def tries(client: smtplib.SMTP, key: str) -> tuple[bool, int, int]:
        offered = "auth" in client.esmtp_features
        blob = base64.b64encode(f"\0u\0{key}".encode()).decode()
        clear, _text = client.docmd("AUTH PLAIN", blob)
        client.starttls(context=trusting(authority))
        client.ehlo("client.example")
        return offered, clear, client.login("u", key)[0]

    async with serve(tls=server_tls) as served:
        assert await with_client(served, lambda client: tries(client, served.key), login=False) == (False, 538, 235)


async def test_words_sent_before_tls_are_forgotten(
    serve: Serve, authority: trustme.CA, server_tls: ssl.SSLContext
) -> None:
    """What somebody slipped in behind STARTTLS in the clear is not executed inside TLS."""

    def slip(client: smtplib.SMTP) -> tuple[int, bytes]:
        client.send("STARTTLS\r\nNOOP slipped\r\n")
        assert client.getreply()[0] == 220
        assert client.sock is not None
        client.sock = trusting(authority).wrap_socket(client.sock)
        client.file = None  # type: ignore[attr-defined] # the old reader belongs to the clear
        return client.docmd("EHLO inside")

    async with serve(tls=server_tls) as served:
        code, text = await with_client(served, slip, login=False)
    assert (code, b"AUTH" in text) == (250, True)


@pytest.mark.parametrize(
    "peer,local",
    [
        (("127.0.0.1", 1), True),
        (("::1", 1, 0, 0), True),
        (("::ffff:127.0.0.1", 1, 0, 0), True),
        (("10.0.0.1", 1), False),
        (("fe80::1%eth0", 1, 0, 2), False),
        (("somewhere", 1), False),
        ("", True),
    ],
)
def test_who_is_on_this_host(peer: object, local: bool) -> None:  # noqa: FBT001 - a column of the table
    """Loopback in any spelling, and local sockets; nothing else."""
    assert _is_local(peer) is local


# --- the server's own life -------------------------------------------------------------


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
    """An idle client is told 421 instead of being cut off."""
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


def test_options_come_from_the_settings(tmp_path: Path) -> None:
    """Address, size and certificate are settings; a certificate that cannot be used stops the start by name."""
    options = SubmissionOptions.of(read_settings({"POSTROOM_SMTP_ADDR": "[::1]:2587", "POSTROOM_SMTP_MAX_MB": "2"}))
    assert (options.host, options.port, options.size_limit) == ("::1", 2587, 2 * 1024 * 1024)
    broken = tmp_path / "broken.pem"
    broken.write_text("nonsense")
    for environment in ({"POSTROOM_SMTP_TLS_CERT": str(broken)}, {"POSTROOM_SMTP_TLS_KEY": str(broken)}):
        with pytest.raises(SettingInvalid, match="POSTROOM_SMTP_TLS_CERT"):
            SubmissionOptions.of(read_settings(environment))
