"""Submission with real clients over real sockets: what is accepted, what is refused, what is answered."""

import asyncio
import base64
import smtplib
from email import message_from_bytes
from email.message import EmailMessage

import pytest
from tests.intake.conftest import Serve, Served
from tests.support.builders import Recording, a_worker
from tests.support.http import open_browser
from tests.support.intake import keys_of
from tests.support.submission import MAIL, deliveries, letter, submit, with_client

from postroom.db.pool import Pool
from postroom.db.room import Room
from postroom.delivery.model import Lane


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


async def test_pipelined_commands_are_answered_in_order(serve: Serve, pool: Pool) -> None:
    """Everything up to DATA, and two messages in a row, may come in one piece."""
    async with serve() as served:
        reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
        blob = base64.b64encode(f"\0u\0{served.key}".encode()).decode()
        writer.write(f"EHLO x\r\nAUTH PLAIN {blob}\r\n".encode())
        while not (await reader.readline()).startswith(b"235"):
            pass
        one = (
            b"MAIL FROM:<a@example.org>\r\nRCPT TO:<b@example.org>\r\nRCPT TO:<broken\r\nDATA\r\n"
            + MAIL % b""
            + b".\r\n"
        )
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
    """A relay that splits many recipients over transactions repeats the Message-ID; every recipient gets the mail."""
    data = MAIL % b"Message-ID: <7@example.com>\r\n"
    async with serve() as served:
        await with_client(served, lambda c: [submit(c, data, "ada@example.org"), submit(c, data, "bob@example.org")])
    assert len(await deliveries(pool)) == 2


async def test_blind_copies_are_taken_together_or_not_at_all(serve: Serve, pool: Pool) -> None:
    """554 because of one of them means that nothing was committed for the others."""
    blind = MAIL.replace(b"To: ada@example.org\r\n", b"")
    async with serve() as served:
        answers = await with_client(
            served,
            lambda client: [
                submit(client, blind % b"Idempotency-Key: k\r\n", "bob@example.org", "dan@example.org"),
                submit(client, blind % b"Idempotency-Key: k\r\nX-Other: 1\r\n", "bob@example.org", "cyd@example.org"),
            ],
        )
    assert [code for code, _text in answers] == [250, 554]
    received = [each.address for one in await deliveries(pool) for each in one.recipients]
    assert sorted(received) == ["bob@example.org", "dan@example.org"]


async def test_the_answer_to_many_blind_copies_fits_a_line(serve: Serve, pool: Pool) -> None:
    """RFC 5321 allows 512 octets; a client that is given more may take the yes for a failure and send again."""
    blind = MAIL.replace(b"To: ada@example.org\r\n", b"") % b""
    recipients = [f"u{number}@example.org" for number in range(100)]
    async with pool.acquire() as connection:
        await connection.execute("SELECT setval(pg_get_serial_sequence('deliveries', 'id'), 9000000000000)")
    async with serve() as served:
        code, text = await with_client(served, lambda client: submit(client, blind, *recipients))
    assert (code, text) == (250, b"2.0.0 Accepted as 9000000000001 and 99 more")


async def test_a_refusal_fits_a_line(serve: Serve) -> None:
    """However long what is wrong is, the answer to it is not."""
    tag = f"X-Postroom-Tag: {'é' * 500}=1\r\n".encode()
    async with serve() as served:
        code, text = await with_client(served, lambda client: submit(client, MAIL % (tag + tag)))
    assert code == 554
    assert len(f"554 {text.decode()}\r\n".encode()) <= 512


async def test_a_report_without_a_sender_is_accepted(serve: Serve, pool: Pool) -> None:
    """`MAIL FROM:<>`, the empty sender of bounce reports, is accepted."""

    def report(client: smtplib.SMTP) -> int:
        client.mail("")
        client.rcpt("ada@example.org")
        return client.data(MAIL % b"")[0]

    async with serve() as served:
        assert await with_client(served, report) == 250
    [delivery] = await deliveries(pool)
    assert delivery.sender is not None
    assert delivery.sender.email == "shop@example.com"


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
    """A message within the server's limit but above the delivery's is also rejected with 552."""
    message = MAIL % b"" + (b"x" * 998 + b"\r\n") * 5300
    async with serve() as served:
        code, text = await with_client(served, lambda client: submit(client, message))
    assert (code, text[:5]) == (552, b"5.3.4")


async def test_an_announced_size_is_refused_before_the_message(serve: Serve) -> None:
    """A client that says how large it is need not send it."""
    async with serve(size_limit=1000) as served:
        code, text = await with_client(served, lambda client: client.mail("a@example.org", ["SIZE=1001"]))
    assert (code, text[:5]) == (552, b"5.3.4")


async def test_relays_may_name_the_submitter(serve: Serve) -> None:
    """`AUTH=<>`, which Postfix and Exim say with every sender after logging in, is understood."""
    async with serve() as served:
        code, _text = await with_client(served, lambda client: client.mail("a@example.org", ["AUTH=<>", "SIZE=100"]))
    assert code == 250


async def test_recipients_beyond_the_limit_get_452(serve: Serve) -> None:
    """The hundred and first gets 452, which relays understand as: another transaction."""

    def name_many(client: smtplib.SMTP) -> list[int]:
        client.mail("a@example.org")
        return [client.rcpt(f"u{number}@example.org")[0] for number in range(101)]

    async with serve() as served:
        assert await with_client(served, name_many) == [250] * 100 + [452]


async def test_addresses_are_checked_when_they_are_named(serve: Serve) -> None:
    """A wrong address is refused by itself and does not spoil the others."""

    def name_some(client: smtplib.SMTP) -> list[tuple[int, bytes]]:
        client.command_encoding = "utf-8"
        client.mail("a@example.org", ["SMTPUTF8"])
        return [client.rcpt(address) for address in ("ada@example.org", "nobody", "a@b..c", "Jörg@exämple.org")]

    async with serve() as served:
        answers = await with_client(served, name_some)
    assert [code for code, _text in answers] == [250, 553, 553, 250]
    assert answers[1][1].startswith(b"5.1.3 The recipient's address is not one: An email address must have")


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


async def test_a_large_body_arrives_as_it_was(serve: Serve, pool: Pool) -> None:
    """A message that comes in many pieces, every line of it beginning with a dot, is put together unchanged."""
    lines = b"".join(b".%d\r\n" % number for number in range(300_000))
    async with serve() as served:
        code, _text = await with_client(served, lambda client: submit(client, MAIL % b"" + lines))
    [delivery] = await deliveries(pool)
    assert code == 250
    assert (delivery.text or "").encode() == b"Hello\n" + lines.replace(b"\r\n", b"\n")


@pytest.mark.parametrize("data", [b".\r\n", b"\r\n.\r\n", b"\r\n\r\n.\r\n"])
async def test_an_empty_message_ends_where_it_ends(serve: Serve, pool: Pool, data: bytes) -> None:
    """A message of nothing, or of empty lines, is accepted, and the next command is understood."""
    async with serve() as served:
        reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
        blob = base64.b64encode(f"\0u\0{served.key}".encode()).decode()
        writer.write(f"EHLO x\r\nAUTH PLAIN {blob}\r\nMAIL FROM:<a@example.org>\r\n".encode())
        writer.write(b"RCPT TO:<ada@example.org>\r\nDATA\r\n" + data + b"NOOP\r\nQUIT\r\n")
        answers = [line[:3] for line in (await reader.read()).splitlines()]
        writer.close()
    assert answers[-4:] == [b"354", b"250", b"250", b"221"]
    assert len(await deliveries(pool)) == 1


# --- TLS -----------------------------------------------------------------------------


# --- the server's own life -------------------------------------------------------------


async def test_a_resent_submission_is_another_message(serve: Serve, room: Room) -> None:
    """The first copy keeps its Message-ID; the second gets a new one, so that no mailbox treats it as a duplicate."""
    async with serve() as served:
        await with_client(
            served, lambda client: submit(client, MAIL % b"Message-Id: <7@example.com>\r\nX-Order: 7\r\n")
        )
    way_out = Recording()
    worker = a_worker(room.pool, way_out)
    await worker.run_once(Lane.TRANSACTIONAL)
    browser = await open_browser(room, name="operator")
    resent = await browser.post(f"/v1/deliveries/{way_out.delivery_ids[0]}/resend")
    await worker.run_once(Lane.TRANSACTIONAL)
    first, second = map(message_from_bytes, way_out.contents)
    assert first["Message-ID"] == "<7@example.com>"
    assert second["Message-ID"].startswith(f"<pr.{resent.json['id']}.")
    assert len(second.get_all("Message-ID", [])) == 1
    assert first["X-Order"] == second["X-Order"] == "7"


async def test_a_key_does_not_refuse_the_rest_of_a_split_message(serve: Serve, pool: Pool) -> None:
    """Recipients of another transaction get the mail too; each transaction is accepted once."""
    data = MAIL.replace(b"To: ada@", b"To: bob@example.org, ada@") % b"Idempotency-Key: k\r\n"
    halves = ("ada@example.org", "bob@example.org")
    async with serve() as served:
        answers = await with_client(served, lambda client: [submit(client, data, each) for each in halves * 2])
    first, second = await deliveries(pool)
    assert [[each.address for each in one.recipients] for one in (first, second)] == [[each] for each in halves]
    assert [text.decode() for _code, text in answers] == [
        f"2.0.0 Accepted as {first.id}",
        f"2.0.0 Accepted as {second.id}",
        f"2.0.0 Already accepted as {first.id}",
        f"2.0.0 Already accepted as {second.id}",
    ]
