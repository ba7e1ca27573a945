"""SES, against moto and a server that verifies signatures and returns scripted errors."""

import asyncio
from collections.abc import Iterator

import boto3
import pytest
from tests.support.aws import CREDENTIALS, REGION, Aws, moto_running, ses_to
from tests.support.smtp_server import Letter, envelope

from postroom.delivery.outcome import Disposition, classify
from postroom.post.reply import Envelope, Reply, Stage
from postroom.runtime.aws import AwsCredentials
from postroom.runtime.aws_credentials import CredentialChain
from postroom.transports.ses import SesTransport

LETTER = Letter(b"From: Room <room@example.org>\r\nTo: a@example.org\r\nSubject: hello\r\n\r\nhow are you?\r\n")


@pytest.fixture(scope="module")
def moto() -> Iterator[str]:
    with moto_running() as url:
        yield url


async def through_moto(url: str) -> Reply:
    transport = SesTransport(CREDENTIALS, region=REGION, endpoint_url=url)
    try:
        return await transport.send(envelope(), LETTER)
    finally:
        await transport.close()


async def test_moto_takes_the_message(moto: str) -> None:
    """AWS's stand-in understands the request and gives the message an id, which the reply keeps."""
    client = boto3.client(
        "sesv2",
        region_name=REGION,
        endpoint_url=moto,
        aws_access_key_id=CREDENTIALS.access_key_id,
        aws_secret_access_key=CREDENTIALS.secret_access_key,
    )
    await asyncio.to_thread(client.create_email_identity, EmailIdentity="room@example.org")
    reply = await through_moto(moto)
    client.close()
    assert (reply.stage, reply.code, reply.enhanced) == (Stage.FINAL, 250, "2.0.0")
    assert reply.text.startswith("taken as ")
    assert len(reply.text) > 20


async def test_moto_refuses_an_unknown_sender(moto: str) -> None:
    """A sender that is not verified is refused, in AWS's words."""
    transport = SesTransport(CREDENTIALS, region=REGION, endpoint_url=moto)
    unknown = Letter(LETTER.plain.replace(b"room@", b"nobody@"))
    reply = await transport.send(envelope(), unknown)
    await transport.close()
    assert (reply.stage, reply.code) == (Stage.FINAL, 554)
    assert "MessageRejected" in reply.text


async def test_the_request_is_whole() -> None:
    """The raw message, the identity in From, the envelope's recipients and our own mark arrive."""
    aws = Aws()
    async with ses_to(aws) as transport:
        reply = await transport.send(envelope("a@example.org", "blind@example.org", sender="b@bounces.org"), LETTER)
    request = aws.requests[0]
    assert reply.text == "taken as id-1"
    assert aws.mails == [LETTER.plain]
    assert request["FromEmailAddress"] == "room@example.org"
    assert request["Destination"] == {"ToAddresses": ["a@example.org", "blind@example.org"]}
    assert request["EmailTags"] == [{"Name": "postroom-delivery", "Value": "7"}]
    assert request.keys() == {"FromEmailAddress", "Destination", "Content", "EmailTags"}


async def test_a_message_without_from_is_the_envelopes() -> None:
    """Where the message names no sender, the envelope does."""
    aws = Aws()
    async with ses_to(aws) as transport:
        await transport.send(envelope(), Letter())
    assert aws.requests[0]["FromEmailAddress"] == "from@example.org"


async def test_options_are_passed_on() -> None:
    """A configuration set and the return path go along when they are asked for."""
    aws = Aws()
    async with ses_to(aws, configuration_set="events", return_path=True) as transport:
        await transport.send(envelope(sender="b@bounces.org"), LETTER)
    assert aws.requests[0]["ConfigurationSetName"] == "events"
    assert aws.requests[0]["FeedbackForwardingEmailAddress"] == "b@bounces.org"


async def test_more_than_fifty_recipients_go_in_turns() -> None:
    """Recipients beyond the limit are deferred; the others are delivered."""
    everybody = tuple(f"{n}@example.org" for n in range(70))
    aws = Aws()
    async with ses_to(aws) as transport:
        sent = envelope(*everybody)
        reply = await transport.send(sent, LETTER)
    assert aws.requests[0]["Destination"]["ToAddresses"] == list(everybody[:50])
    outcome = classify(reply, sent)
    assert outcome.verdict is Disposition.DEFERRED
    verdicts = [each.verdict for each in outcome.recipients]
    assert verdicts == [Disposition.DELIVERED] * 50 + [Disposition.DEFERRED] * 20


ANSWERS: dict[str, tuple[int, str, Stage, int, str | None]] = {
    "conflict": (409, "", Stage.FINAL, 451, "4.3.0"),
    "too large": (413, "", Stage.FINAL, 552, "5.3.4"),
    "rate": (429, "TooManyRequestsException", Stage.FINAL, 421, "4.7.0"),
    "throttled": (400, "ThrottlingException", Stage.FINAL, 421, "4.7.0"),
    "quota": (400, "LimitExceededException", Stage.FINAL, 421, "4.7.0"),
    "no name": (429, "", Stage.FINAL, 421, "4.7.0"),
    "rejected": (400, "MessageRejected", Stage.FINAL, 554, "5.6.0"),
    "bad": (400, "BadRequestException", Stage.FINAL, 554, "5.6.0"),
    "suspended": (400, "AccountSuspendedException", Stage.LOGIN, 535, "5.7.8"),
    "paused": (400, "SendingPausedException", Stage.LOGIN, 535, "5.7.8"),
    "mail from": (400, "MailFromDomainNotVerifiedException", Stage.LOGIN, 535, "5.7.8"),
    "key": (403, "UnrecognizedClientException", Stage.LOGIN, 535, "5.7.8"),
    "permission": (403, "SomethingNew", Stage.LOGIN, 535, "5.7.8"),
    "clock": (403, "RequestExpired", Stage.LOGIN, 454, "4.7.0"),
    "configuration set": (404, "NotFoundException", Stage.CONNECT, 554, None),
    "moved": (307, "", Stage.CONNECT, 554, None),
    "broken": (500, "InternalFailure", Stage.FINAL, 451, "4.3.0"),
    "down": (503, "ServiceUnavailable", Stage.FINAL, 451, "4.3.0"),
    "odd": (418, "", Stage.FINAL, 554, "5.6.0"),
}


@pytest.mark.parametrize("status, error, stage, code, enhanced", ANSWERS.values(), ids=ANSWERS.keys())
async def test_answers_have_their_meaning(
    status: int, error: str, stage: Stage, code: int, enhanced: str | None
) -> None:
    """Every answer of AWS is one stage and one code."""
    async with ses_to(Aws(status=status, error=error)) as transport:
        reply = await transport.send(envelope(), LETTER)
    assert (reply.stage, reply.code, reply.enhanced) == (stage, code, enhanced)
    assert reply.recipients == ()


HINTS: dict[str, tuple[Aws, float | None]] = {
    "rate": (Aws(status=429, error="TooManyRequestsException", message="Maximum sending rate exceeded."), 1.0),
    "quota": (Aws(status=400, error="LimitExceededException", message="Daily message quota exceeded."), None),
    "header": (Aws(status=503, headers={"Retry-After": "30"}), 30.0),
    "refused": (Aws(status=400, error="MessageRejected", headers={"Retry-After": "30"}), None),
}


@pytest.mark.parametrize("aws, hint", HINTS.values(), ids=HINTS.keys())
async def test_hints_are_passed_on(aws: Aws, hint: float | None) -> None:
    """A rate has a hint of one second; a header is used; a rejection has no hint."""
    async with ses_to(aws) as transport:
        assert (await transport.send(envelope(), LETTER)).retry_after_s == hint


async def test_a_wrong_secret_is_a_failed_login() -> None:
    """The signature is checked by the other side, and the secret is in no reply."""
    async with ses_to(Aws(), credentials=AwsCredentials("EXAMPLEKEY", "wrong-secret")) as transport:
        reply = await transport.send(envelope(), LETTER)
    assert (reply.stage, reply.code) == (Stage.LOGIN, 535)
    assert "wrong-secret" not in repr(reply)


async def test_international_addresses_are_refused_before_asking() -> None:
    """SES does not know SMTPUTF8."""
    aws = Aws()
    async with ses_to(aws) as transport:
        reply = await transport.send(envelope("jörg@example.org"), LETTER)
    assert (reply.stage, reply.code, aws.requests) == (Stage.SENDER, 553, [])


async def test_message_without_recipients_is_rejected() -> None:
    """A message without recipients is not sent."""
    async with ses_to(Aws()) as transport:
        reply = await transport.send(Envelope(7, "<7@example.org>", "a@example.org", ()), LETTER)
    assert (reply.stage, reply.code) == (Stage.RECIPIENT, 554)


async def test_refused_connection_is_not_ambiguous() -> None:
    """A refused connection is not ambiguous."""
    transport = SesTransport(CREDENTIALS, region=REGION, endpoint_url="http://127.0.0.1:1")
    reply = await transport.send(envelope(), LETTER)
    await transport.close()
    assert (reply.stage, reply.code) == (Stage.CONNECT, None)


def test_a_region_has_its_endpoint() -> None:
    """Without an endpoint of its own a transport goes to the region's."""
    transport = SesTransport(CREDENTIALS, region="eu-west-1")
    assert transport._url == "https://email.eu-west-1.amazonaws.com/v2/email/outbound-emails"


@pytest.mark.parametrize("endpoint_url", ["ftp://127.0.0.1", "nonsense", "http://", "http://127.0.0.1:99999"])
def test_an_endpoint_is_an_http_address(endpoint_url: str) -> None:
    """An invalid URL is rejected at the start, not at the first mail."""
    with pytest.raises(ValueError, match="endpoint_url"):
        SesTransport(CREDENTIALS, region=REGION, endpoint_url=endpoint_url)


async def test_account_without_a_key_uses_the_process_credentials(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Without a key AWS's default chain is used; while it is empty, mail is deferred."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", CREDENTIALS.access_key_id)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", CREDENTIALS.secret_access_key)
    aws = Aws()
    async with ses_to(aws, credentials=CredentialChain()) as transport:
        assert (await transport.send(envelope(), LETTER)).code == 250
    nothing = CredentialChain({"HOME": "/nowhere", "AWS_EC2_METADATA_DISABLED": "true"})
    async with ses_to(Aws(), credentials=nothing) as transport:
        reply = await transport.send(envelope(), LETTER)
    assert (reply.stage, reply.code) == (Stage.LOGIN, 454)
    assert len(aws.requests) == 1
