"""The webhook transport against a real receiver: outcomes, signatures, bounds."""

import asyncio
import base64
import contextlib
import ssl
import zlib
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import trustme
from tests.support.http import Letter
from tests.support.webhook_server import PATIENCE, Receiver, a_post, is_genuine, receiving, webhook_to

from postroom.db.pool import Pool
from postroom.delivery.outcome import Disposition, classify
from postroom.inbox.transport import CaptureTransport
from postroom.post.reply import Envelope, Reply, Stage
from postroom.transports.http_reply import parse_retry_after
from postroom.transports.webhook.inbox import CAPTURE_URL
from postroom.transports.webhook.replies import code_of
from postroom.transports.webhook.signing import derived_secret, read_secret, sign
from postroom.transports.webhook.transport import WebhookTransport

NOW = datetime(2026, 11, 15, 9, tzinfo=UTC)
OLD, NEW = ("whsec_" + base64.b64encode(bytes([n]) * 32).decode() for n in (1, 2))


@contextlib.asynccontextmanager
async def opened(**options: Any) -> AsyncIterator[WebhookTransport]:
    transport = WebhookTransport(**{"allow_private": True, "timeout": PATIENCE, **options})
    try:
        yield transport
    finally:
        await transport.close()


async def post(transport: WebhookTransport, url: str, *secrets: str, **fields: Any) -> Reply:
    return await transport.send(*a_post(url, *secrets, now=NOW, **fields))


def verdict(reply: Reply, url: str = "x") -> Disposition:
    return classify(reply, Envelope(1, "m", "", (url,))).verdict


@pytest.mark.parametrize(
    "status, code, means",
    [
        (200, 250, Disposition.DELIVERED),
        (201, 250, Disposition.DELIVERED),
        (202, 250, Disposition.DELIVERED),
        (204, 250, Disposition.DELIVERED),
        (299, 250, Disposition.DELIVERED),
        (301, 550, Disposition.REFUSED),
        (302, 550, Disposition.REFUSED),
        (304, 550, Disposition.REFUSED),
        (307, 550, Disposition.REFUSED),
        (308, 550, Disposition.REFUSED),
        (400, 550, Disposition.REFUSED),
        (401, 550, Disposition.REFUSED),
        (404, 550, Disposition.REFUSED),
        (408, 450, Disposition.DEFERRED),
        (410, 550, Disposition.REFUSED),
        (422, 550, Disposition.REFUSED),
        (425, 450, Disposition.DEFERRED),
        (429, 450, Disposition.DEFERRED),
        (500, 450, Disposition.DEFERRED),
        (501, 450, Disposition.DEFERRED),
        (503, 450, Disposition.DEFERRED),
        (599, 450, Disposition.DEFERRED),
    ],
)
async def test_a_status_is_a_verdict(status: int, code: int, means: Disposition) -> None:
    """Any 2xx is done whatever the body, 408, 425, 429 and 5xx come back, everything else is refused."""
    assert code_of(status) == code
    async with webhook_to(Receiver(status=status, headers={"Location": "/elsewhere"})) as transport:
        reply = await transport.send(Envelope(1, "m", "", ("x",)), Letter())
    assert (reply.stage, reply.code, reply.enhanced) == (Stage.FINAL, code, f"HTTP {status}")
    assert reply.text.startswith(f"HTTP {status}")
    assert verdict(reply) is means


async def test_a_redirect_is_not_followed() -> None:
    """One request, and the place it points to is never asked."""
    receiver = Receiver(status=302, headers={"Location": "/elsewhere"})
    async with webhook_to(receiver) as transport:
        await transport.send(Envelope(1, "m", "", ("x",)), Letter())
    assert [request.path for request in receiver.requests] == ["/greet"]


async def test_a_request_is_what_the_receiver_expects() -> None:
    """POST, JSON, the idempotency key, the id; the ledger learns who answered."""
    async with receiving(Receiver(body=b"thanks")) as receiver, opened() as transport:
        reply = await post(transport, receiver.url + "?a=%2F", OLD, idempotency_key="birthday:1:2026")
    [request] = receiver.requests
    assert (request.path, request.body) == ("/greet?a=%2F", b'{"message":"Hey"}')
    assert request.headers["Content-Type"] == "application/json"
    assert request.headers["X-Idempotency-Key"] == "birthday:1:2026"
    assert request.headers["webhook-id"].startswith("msg_")
    assert request.headers["webhook-timestamp"] == str(int(NOW.timestamp()))
    assert reply.text == "HTTP 200 OK: thanks"
    assert reply.remote_host == "127.0.0.1 [127.0.0.1]"


async def test_a_receiver_can_check_the_signature() -> None:
    """Under the right secret it is genuine; under another, or with a byte changed, it is not."""
    async with receiving(Receiver()) as receiver, opened() as transport:
        await post(transport, receiver.url, OLD)
    [request] = receiver.requests
    assert is_genuine(OLD, request.headers, request.body)
    assert not is_genuine(NEW, request.headers, request.body)
    assert not is_genuine(OLD, request.headers, request.body + b" ")


async def test_during_a_rotation_both_secrets_do() -> None:
    """With two secrets there are two signatures, and either can be verified."""
    async with receiving(Receiver()) as receiver, opened() as transport:
        await post(transport, receiver.url, OLD, NEW)
    [request] = receiver.requests
    assert is_genuine(OLD, request.headers, request.body)
    assert is_genuine(NEW, request.headers, request.body)
    assert len(request.headers["webhook-signature"].split(" ")) == 2


def test_a_known_signature() -> None:
    """The example that the specification's own libraries are tested with."""
    key = read_secret("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
    signature = sign(
        [key], message_id="msg_p5jXN8AQM9LWM0D4loKWxJek", timestamp=1614265330, body=b'{"test": 2432232314}'
    )
    assert signature == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


@pytest.mark.parametrize(
    "secret", ["", "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "whsec_!!!", "whsec_c2hvcnQ=", "whsec_" + "A" * 100]
)
def test_a_secret_has_its_form(secret: str) -> None:
    """The prefix, base64, 24 to 64 bytes."""
    with pytest.raises(ValueError, match="webhook secret"):
        read_secret(secret)


def test_a_derived_secret_is_one() -> None:
    """An installation without a secret of its own has one from its key, always the same."""
    assert len(read_secret(derived_secret(b"k" * 32))) == 32
    assert derived_secret(b"k" * 32) == derived_secret(b"k" * 32) != derived_secret(b"j" * 32)


def test_the_id_is_the_delivery_s_and_the_time_the_attempt_s() -> None:
    """A second attempt carries the same id under another timestamp; another delivery another id."""
    first, again = (a_post("https://a.example/", OLD, now=NOW + timedelta(seconds=n)) for n in (0, 9))
    other, _ = a_post("https://a.example/", OLD, id=8, now=NOW)
    assert first[0] == again[0] != other
    assert first[1].headers["webhook-signature"] != again[1].headers["webhook-signature"]


def test_a_delivery_cannot_forge_what_is_signed() -> None:
    """Headers of its own are added, but never in place of ours or of the connection's."""
    forged = {"Webhook-Signature": "v1,x", "Host": "other", "Content-Length": "1", "X-Own": "yes"}
    _, content = a_post("https://a.example/", OLD, headers=forged, now=NOW)
    assert content.headers["X-Own"] == "yes"
    assert not {"Webhook-Signature", "Host", "Content-Length"} & set(content.headers)


@pytest.mark.parametrize(
    "key, given, sent",
    [
        ("order-7", {}, "order-7"),
        ("order-7", {"x-idempotency-key": "other"}, "order-7"),
        ("Bestellung ä", {}, "Bestellung%20%C3%A4"),
        (None, {"X-Idempotency-Key": "own"}, "own"),
        (None, {}, None),
    ],
)
def test_idempotency_key_is_sent_as_a_header(key: str | None, given: dict[str, str], sent: str | None) -> None:
    """A webhook sends its idempotency key in a header-safe form."""
    _, content = a_post("https://a.example/", idempotency_key=key, headers=given)
    said = [value for name, value in content.headers.items() if name.lower() == "x-idempotency-key"]
    assert said == ([] if sent is None else [sent])


@pytest.mark.parametrize("fields", [{"text": None}, {"headers": {"X-Own": "ä"}}, {"headers": {"X-Own": "a\r\nb"}}])
def test_invalid_request_is_a_value_error(fields: dict[str, Any]) -> None:
    """An invalid request raises ValueError, and nothing is sent."""
    with pytest.raises(ValueError, match="webhook"):
        a_post("https://a.example/", **fields)


@pytest.mark.parametrize(
    "value, seconds",
    [
        ("120", 120.0),
        (" 5 ", 5.0),
        ("0", 0.0),
        ("99999999999", 7 * 86400.0),
        ("Sun, 15 Nov 2026 09:02:00 GMT", 120.0),
        ("Sun, 15 Nov 2026 08:00:00 GMT", None),
        ("soon", None),
        ("-5", None),
        ("1.5", None),
        ("", None),
        (None, None),
        ("Fri, 31 Dec 9999 23:59:59 -99999999999999", None),  # a zone beyond every calendar
        ("9" * 400, 7 * 86_400.0),
    ],
)
def test_retry_after(value: str | None, seconds: float | None) -> None:
    """Seconds or a date; nonsense and the past are no hint."""
    assert parse_retry_after(value, now=NOW) == seconds


async def test_retry_after_reaches_the_reply() -> None:
    """Retry-After is used in a deferral and ignored in a success."""
    for status, expected in ((503, 30.0), (429, 30.0), (200, None), (404, None)):
        async with webhook_to(Receiver(status=status, headers={"Retry-After": "30"})) as transport:
            reply = await transport.send(Envelope(1, "m", "", ("x",)), Letter())
        assert reply.retry_after_s == expected


async def test_silence_is_deferred() -> None:
    """A receiver that does not answer in time is asked again; it knows a repetition by its id."""
    async with webhook_to(Receiver(silent=True)) as transport:
        reply = await transport.send(Envelope(1, "m", "", ("x",)), Letter())
    assert (reply.stage, reply.code, verdict(reply)) == (Stage.CONTENT, None, Disposition.DEFERRED)


@pytest.mark.parametrize(
    "status, body, text, means",
    [
        (200, b"", "HTTP 200 OK", Disposition.DELIVERED),
        (202, b"half an ans", "HTTP 202 Accepted: half an ans", Disposition.DELIVERED),
        (404, b"half", "HTTP 404 Not Found: half", Disposition.REFUSED),
        (503, b"half", "HTTP 503 Service Unavailable: half", Disposition.DEFERRED),
    ],
)
async def test_a_status_is_an_answer_though_its_body_stalls(
    status: int, body: bytes, text: str, means: Disposition
) -> None:
    """Once the status has come it decides, with as much of the body as came in time."""
    receiver = Receiver(status=status, body=body, stalls=True)
    async with webhook_to(receiver) as transport:
        reply = await transport.send(Envelope(1, "m", "", ("x",)), Letter())
    assert (reply.stage, reply.text, verdict(reply)) == (Stage.FINAL, text, means)
    assert len(receiver.requests) == 1


async def test_a_refused_connection_is_deferred() -> None:
    """A refused connection is retried."""
    async with opened() as transport:
        reply = await post(transport, "http://127.0.0.1:1/")
    assert (reply.stage, reply.code, verdict(reply)) == (Stage.CONNECT, None, Disposition.DEFERRED)
    assert reply.remote_host == "127.0.0.1"


async def test_an_unknown_host_is_deferred() -> None:
    """A name that does not resolve now may resolve later."""
    async with opened() as transport:
        reply = await post(transport, "http://nobody.invalid/")
    assert (reply.stage, verdict(reply)) == (Stage.CONNECT, Disposition.DEFERRED)


async def test_only_the_beginning_of_an_answer_is_read() -> None:
    """An endless answer costs two kilobytes, and those are kept as they came."""
    receiver = Receiver(status=404, body=b"a\n  b\t" * 1_000_000)
    async with webhook_to(receiver) as transport:
        reply = await transport.send(Envelope(1, "m", "", ("x",)), Letter())
        again = await transport.send(Envelope(2, "m", "", ("x",)), Letter())
    said = reply.text.removeprefix("HTTP 404 Not Found: ")
    assert (said, len(said)) == (("a\n  b\t" * 342)[:2048], 2048)
    assert again.code == 550


async def test_an_answer_is_not_unpacked() -> None:
    """Compressed answers stay compressed: there is no bomb to set off."""
    packed = zlib.compress(b"b" * 1_000_000)
    async with webhook_to(Receiver(headers={"Content-Encoding": "deflate"}, body=packed)) as transport:
        reply = await transport.send(Envelope(1, "m", "", ("x",)), Letter())
    assert reply.code == 250
    assert "bbbb" not in reply.text


async def test_proxies_of_the_environment_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """A proxy would see the request and resolve the name itself."""
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    async with webhook_to(Receiver()) as transport:
        assert (await transport.send(Envelope(1, "m", "", ("x",)), Letter())).code == 250


async def test_tls_is_verified_against_the_name_in_the_url() -> None:
    """The right name under a trusted authority is taken; a wrong name or an unknown authority is not."""
    authority = trustme.CA()
    trusting = ssl.create_default_context()
    authority.configure_trust(trusting)
    for identity, client, stage in (
        ("127.0.0.1", trusting, Stage.FINAL),
        ("other.example", trusting, Stage.TLS),
        ("127.0.0.1", None, Stage.TLS),
    ):
        server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        authority.issue_cert(identity).configure_cert(server)
        async with receiving(Receiver(), tls=server) as receiver, opened(tls=client) as transport:
            reply = await post(transport, receiver.url)
        assert reply.stage is stage
        assert (reply.tls is not None) is (stage is Stage.FINAL)
        assert verdict(reply) is (Disposition.DELIVERED if stage is Stage.FINAL else Disposition.DEFERRED)


async def test_a_closed_transport_says_so() -> None:
    """After close nothing is sent, and nothing raised."""
    transport = WebhookTransport()
    await transport.close()
    reply = await post(transport, "https://a.example/")
    assert (reply.stage, reply.code) == (Stage.CONNECT, None)


async def test_a_webhook_to_nowhere_lands_in_the_inbox(pool: Pool) -> None:
    """Where there is an inbox, what has no destination is captured in it, readable as a message."""
    async with opened(inbox=CaptureTransport(pool)) as transport:
        reply = await post(transport, CAPTURE_URL, OLD, headers={"X-Idempotency-Key": "k"})
    assert verdict(reply, CAPTURE_URL) is Disposition.DELIVERED
    row = await pool.fetchrow("SELECT delivery_id, subject, raw FROM inbox_messages")
    assert (row["delivery_id"], row["subject"]) == (7, "Webhook")
    assert b"X-Idempotency-Key: k\r\n" in row["raw"]
    assert row["raw"].endswith(b'\r\n\r\n{"message":"Hey"}\r\n')


@pytest.mark.parametrize("size, code", [(60_000, 250), (70_000, None)])
async def test_a_long_header_field_hides_no_status(size: int, code: int | None) -> None:
    """Up to 64 KB; beyond them the answer cannot be read at all, and the receiver is asked again."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b'{"message":"Hey"}')
        writer.write(b"HTTP/1.1 204 No Content\r\nX-Long: " + b"a" * size + b"\r\n\r\n")
        with contextlib.suppress(ConnectionError):  # the client closes the connection early
            await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    async with server, opened() as transport:
        reply = await post(transport, f"http://{host}:{port}/")
    assert reply.code == code
    assert verdict(reply) is (Disposition.DELIVERED if code else Disposition.DEFERRED)
