"""Gmail, against a server that verifies claims and tokens like Google."""

import asyncio
import json
from datetime import UTC, datetime, timedelta

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from tests.support.gmail_server import (
    ACCOUNT,
    SUBJECT,
    Google,
    credentials_for,
    gmail_to,
    google_running,
    private_pem,
)
from tests.support.smtp_server import Letter, envelope

from postroom.post.reply import Envelope, Reply, Stage
from postroom.transports.exchange import Exchange
from postroom.transports.gmail import GmailCredentials, GmailTransport
from postroom.transports.gmail.token import READ, SEND, TokenSource

LETTER = Letter(b"To: a@example.org\r\nMessage-ID: <7@example.org>\r\nSubject: hello\r\n\r\nhow are you?\r\n")


async def send(transport: GmailTransport, to: Envelope | None = None) -> Reply:
    return await transport.send(to or envelope(), LETTER)


async def test_the_message_arrives_as_it_is() -> None:
    """The bytes of the message reach the API unchanged, and the reply names what it became."""
    google = Google()
    async with gmail_to(google) as transport:
        reply = await send(transport)
    assert (reply.stage, reply.code, reply.text) == (Stage.FINAL, 250, "taken as m1")
    assert reply.remote_host == "127.0.0.1 [127.0.0.1]"
    assert google.mails == [LETTER.plain]


async def test_the_claim_names_the_mailbox_and_the_least_scope() -> None:
    """The service account asks for the right to send as the subject, and for nothing else."""
    google = Google()
    async with gmail_to(google) as transport:
        await send(transport)
    claims = google.claims[0]
    assert (claims["iss"], claims["sub"], claims["scope"]) == (ACCOUNT, SUBJECT, SEND)
    assert claims["exp"] - claims["iat"] == 3600


async def test_a_token_is_kept() -> None:
    """Many messages at once need one token."""
    google = Google()
    async with gmail_to(google) as transport:
        await asyncio.gather(*(send(transport) for _ in range(30)))
        await send(transport)
    assert (len(google.claims), len(google.mails)) == (1, 31)


async def test_a_token_is_renewed_before_it_ends() -> None:
    """Five minutes before its end a token is replaced, once for all who wait."""
    moment = datetime.now(UTC).timestamp()
    google = Google(clock=lambda: moment)
    async with google_running(google):
        exchange = Exchange(timeout_s=60, max_connections=5)
        source = TokenSource(exchange, credentials_for(google), subject=SUBJECT, scope=SEND, clock=lambda: moment)
        first = await source.get()
        moment += 3600 - 301
        kept = await source.get()
        moment += 2
        renewed = await asyncio.gather(*(source.get() for _ in range(10)))
        await exchange.close()
    assert (first, kept, set(renewed)) == ("token-1", "token-1", {"token-2"})


async def test_a_revoked_token_is_replaced_once() -> None:
    """A token revoked early costs one more request, not the message."""
    google = Google()
    async with gmail_to(google) as transport:
        await send(transport)
        google.revoke_tokens()
        reply = await send(transport)
    assert (reply.code, len(google.claims), len(google.mails)) == (250, 2, 2)


async def test_a_token_that_never_works_is_a_failed_login() -> None:
    """After the second 401 it is the credentials."""
    google = Google(scopes={SEND}, status=401, reason="authError")
    async with gmail_to(google) as transport:
        reply = await send(transport)
    assert (reply.stage, reply.code, reply.enhanced) == (Stage.LOGIN, 535, "5.7.8")


REFUSED_CLAIMS = {
    "another mailbox": (Google(subjects=set()), 535),
    "no delegation": (Google(scopes=set()), 535),
    "token server broken": (Google(token_status=503), 454),
    "token server busy": (Google(token_status=429), 454),
}


@pytest.mark.parametrize("google, code", REFUSED_CLAIMS.values(), ids=REFUSED_CLAIMS.keys())
async def test_a_refused_claim_is_a_failed_login(google: Google, code: int) -> None:
    """Without a token nothing is sent; server errors are temporary, invalid credentials are not."""
    async with gmail_to(google) as transport:
        replies = await asyncio.gather(*(send(transport) for _ in range(5)))
    assert {(reply.stage, reply.code) for reply in replies} == {(Stage.LOGIN, code)}
    assert google.mails == []


async def test_reply_has_the_reason_of_a_refused_claim() -> None:
    """The reply has Google's reason and no secret."""
    async with gmail_to(Google(subjects=set())) as transport:
        reply = await send(transport)
    assert reply.text == "no access token: HTTP 400 invalid_grant Not a valid email or user ID."


async def test_an_unreachable_token_server_is_no_doubt() -> None:
    """A timeout of the token server is not ambiguous."""
    google = Google()
    async with google_running(google):
        credentials = credentials_for(google)
    transport = GmailTransport(credentials, subject=SUBJECT, base_url=google.url)
    reply = await send(transport)
    await transport.close()
    assert (reply.stage, reply.code) == (Stage.CONNECT, None)


ANSWERS: dict[str, tuple[int, str, Stage, int, str | None]] = {
    "rate": (403, "rateLimitExceeded", Stage.FINAL, 421, "4.7.0"),
    "user rate": (403, "userRateLimitExceeded", Stage.FINAL, 421, "4.7.0"),
    "daily": (403, "dailyLimitExceeded", Stage.FINAL, 421, "4.7.0"),
    "too many": (429, "", Stage.FINAL, 421, "4.7.0"),
    "policy": (403, "domainPolicy", Stage.LOGIN, 535, "5.7.8"),
    "no mailbox": (400, "failedPrecondition", Stage.LOGIN, 535, "5.7.8"),
    "bad message": (400, "invalidArgument", Stage.FINAL, 554, "5.6.0"),
    "too large": (413, "uploadTooLarge", Stage.FINAL, 552, "5.3.4"),
    "wrong place": (404, "notFound", Stage.CONNECT, 554, None),
    "moved": (307, "", Stage.CONNECT, 554, None),
    "conflict": (409, "aborted", Stage.FINAL, 451, "4.3.0"),
    "broken": (500, "backendError", Stage.FINAL, 451, "4.3.0"),
    "down": (503, "", Stage.FINAL, 451, "4.3.0"),
    "odd": (418, "", Stage.FINAL, 554, "5.6.0"),
}


@pytest.mark.parametrize("status, reason, stage, code, enhanced", ANSWERS.values(), ids=ANSWERS.keys())
async def test_answers_have_their_meaning(
    status: int, reason: str, stage: Stage, code: int, enhanced: str | None
) -> None:
    """Every answer of Google is one stage and one code."""
    async with gmail_to(Google(status=status, reason=reason)) as transport:
        reply = await send(transport)
    assert (reply.stage, reply.code, reply.enhanced) == (stage, code, enhanced)


async def test_a_hint_in_a_header_is_passed_on() -> None:
    """Retry-After says when to come back."""
    async with gmail_to(Google(status=429, headers={"Retry-After": "90"})) as transport:
        assert (await send(transport)).retry_after_s == 90


async def test_a_hint_in_the_text_is_passed_on() -> None:
    """Gmail writes the moment into its message."""
    before = datetime.now(UTC)
    moment = before.replace(microsecond=0) + timedelta(minutes=10)
    said = f"User-rate limit exceeded.  Retry after {moment:%Y-%m-%dT%H:%M:%S.000Z}"
    async with gmail_to(Google(status=429, message=said)) as transport:
        hint = (await send(transport)).retry_after_s
    assert hint is not None
    assert moment - datetime.now(UTC) <= timedelta(seconds=hint) <= moment - before


@pytest.mark.parametrize("moment", ["2026-02-31T00:00:00Z", "2001-01-01T00:00:00Z"])
async def test_invalid_hint_is_ignored(moment: str) -> None:
    """An invalid or past time is no hint."""
    async with gmail_to(Google(status=429, message=f"Retry after {moment}")) as transport:
        assert (await send(transport)).retry_after_s is None


async def test_silence_after_the_message_is_looked_into() -> None:
    """After a timeout the mailbox is searched; a message found there was sent."""
    google = Google(hangs=True)
    async with gmail_to(google) as transport:
        reply = await send(transport)
    assert (reply.stage, reply.code) == (Stage.FINAL, 250)
    assert google.questions == ["rfc822msgid:7@example.org"]
    assert [claims["scope"] for claims in google.claims] == [SEND, READ]


async def test_a_lost_message_stays_in_doubt() -> None:
    """A message that is not found stays ambiguous."""
    google = Google(loses=True)
    async with gmail_to(google) as transport:
        reply = await send(transport)
    assert (reply.stage, reply.code) == (Stage.FINAL, None)


async def test_without_the_right_to_read_doubt_remains() -> None:
    """Without the read scope mail is sent, and ambiguous mail stays ambiguous."""
    google = Google(hangs=True, scopes={SEND})
    async with gmail_to(google) as transport:
        reply = await send(transport)
        known = await transport.was_sent("<7@example.org>")
    assert (reply.stage, reply.code, known) == (Stage.FINAL, None, None)


async def test_a_mailbox_can_be_asked_for_a_message() -> None:
    """`was_sent` reports the result of an interrupted attempt."""
    async with gmail_to(Google()) as transport:
        await send(transport)
        answers = await transport.was_sent("<7@example.org>"), await transport.was_sent("<8@example.org>")
    assert answers == (True, False)


async def test_refused_connection_is_not_ambiguous() -> None:
    """A refused connection is not ambiguous."""
    async with gmail_to(Google(), base_url="http://127.0.0.1:1") as transport:
        reply = await send(transport)
    assert (reply.stage, reply.code) == (Stage.CONNECT, None)


async def test_message_without_recipients_is_rejected() -> None:
    """A message without recipients is not sent."""
    google = Google()
    async with gmail_to(google) as transport:
        reply = await transport.send(Envelope(7, "<7@example.org>", "a@example.org", ()), LETTER)
    assert (reply.stage, reply.code, google.claims) == (Stage.RECIPIENT, 554, [])


async def test_closing_serves_messages_that_wait() -> None:
    """Messages passed to the transport before `close` are sent."""
    google = Google()
    async with gmail_to(google, max_connections=1) as transport:
        sending = [asyncio.create_task(send(transport)) for _ in range(2)]
        await asyncio.sleep(0)  # both have asked for the connection
        await transport.close()
        replies = await asyncio.gather(*sending)
    assert ([reply.code for reply in replies], len(google.mails)) == ([250, 250], 2)


async def test_a_closed_transport_sends_nothing() -> None:
    """After close() a message is answered, and not sent."""
    google = Google()
    async with gmail_to(google) as transport:
        await transport.close()
        reply = await send(transport)
    assert (reply.stage, reply.code, google.mails) == (Stage.CONNECT, None, [])


def test_the_key_is_in_no_representation() -> None:
    """Neither a log nor an error can show the private key."""
    credentials = GmailCredentials(ACCOUNT, private_pem())
    assert ACCOUNT in repr(credentials)
    assert "PRIVATE" not in repr(credentials)


@pytest.mark.parametrize("base_url", ["http://gmail.example.org", "ftp://127.0.0.1", "nonsense", "https://[::1", ""])
def test_base_url_must_be_https_or_loopback(base_url: str) -> None:
    """A base URL must be https or loopback."""
    with pytest.raises(ValueError, match="base_url"):
        GmailTransport(GmailCredentials(ACCOUNT, private_pem()), subject=SUBJECT, base_url=base_url)


def elliptic_pem() -> str:
    key = ec.generate_private_key(ec.SECP256R1())
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()


KEY_FILES = {
    "no json": ("nonsense-secret", "is not the JSON key file"),
    "no key": (json.dumps({"client_email": ACCOUNT}), "is not the JSON key file"),
    "broken key": (json.dumps({"client_email": ACCOUNT, "private_key": "nonsense-secret"}), "cannot be read"),
    "other key": (json.dumps({"client_email": ACCOUNT, "private_key": elliptic_pem()}), "not an RSA key"),
    "plain http": (
        json.dumps({"client_email": ACCOUNT, "private_key": private_pem(), "token_uri": "http://example.org/"}),
        "not an https address",
    ),
    "no host": (
        json.dumps({"client_email": ACCOUNT, "private_key": private_pem(), "token_uri": "https://"}),
        "not an https address",
    ),
}


@pytest.mark.parametrize("text, problem", KEY_FILES.values(), ids=KEY_FILES.keys())
def test_a_wrong_key_file_is_refused_without_being_quoted(text: str, problem: str) -> None:
    """The error names the problem and repeats nothing of the file."""
    with pytest.raises(ValueError, match=problem) as refused:
        GmailCredentials.from_json(text)
    assert "nonsense" not in str(refused.value)
