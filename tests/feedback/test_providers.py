"""Webhooks of providers over HTTP: verification, mapping of events, and replays."""

import asyncio
import base64
import hashlib
import hmac
import json
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.x509.oid import NameOID
from tests.support.feedback import SECRET, message_id, rows, sent, suppressed
from tests.support.http import Browser, Response

from postroom.db.pool import Pool
from postroom.db.room import Room
from postroom.feedback import provider_api
from postroom.feedback.providers import ProviderOptions, ses
from postroom.http.asgi import HttpApplication
from postroom.http.auth import Authenticator
from postroom.runtime.endpoint import MEGABYTE, PUBLIC_BODY

NOW = datetime(2030, 6, 1, 12, tzinfo=UTC)
TOPIC = "arn:aws:sns:eu-central-1:123456789012:bounces"
CERTIFICATE_URL = "https://sns.eu-central-1.amazonaws.com/SimpleNotificationService-abc.pem"
MAILGUN_KEY, POSTMARK_SECRET = "mailgun-signing-key", "a long word for postmark"
SENDGRID_KEY = ec.generate_private_key(ec.SECP256R1())
AMAZON_KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)


def public_der(key: ec.EllipticCurvePrivateKey) -> str:
    der = key.public_key().public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    return base64.b64encode(der).decode()


def certificate(*, ends: datetime = NOW + timedelta(days=30)) -> bytes:
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "sns.amazonaws.com")])
    builder = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(AMAZON_KEY.public_key())
        .serial_number(1)
        .not_valid_before(NOW - timedelta(days=30))
        .not_valid_after(ends)
    )
    return builder.sign(AMAZON_KEY, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


class Amazon:
    """Replaces Amazon's host: serves the certificate and records the requests."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.certificate = certificate()
        self.is_away = False

    async def __call__(self, url: str) -> bytes:
        self.asked.append(url)
        if self.is_away:
            raise OSError("away")
        return self.certificate


@pytest.fixture
def amazon() -> Amazon:
    return Amazon()


@pytest.fixture
def browser(room: Room, amazon: Amazon) -> Browser:
    options = ProviderOptions(
        ses_topics=(TOPIC,),
        sendgrid_key=public_der(SENDGRID_KEY),
        mailgun_key=MAILGUN_KEY,
        postmark_secret=POSTMARK_SECRET,
    )
    endpoints = provider_api.endpoints(options, fetch=amazon, clock=lambda: NOW)
    keyed = replace(room, settings=replace(room.settings, secret_key=SECRET))
    return Browser(HttpApplication(keyed, endpoints, auth=Authenticator(room.pool)))


async def nothing_is_stored(pool: Pool) -> bool:
    tables = ("bounces", "suppressions", "used_feedback_tokens", "unread_feedback")
    return not any([await rows(pool, f"SELECT FROM {table}") for table in tables])


# ── SES ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def notification(message: Mapping[str, Any] | str, *, version: str = "1", **fields: str) -> bytes:
    """A signed SNS message."""
    given = {
        "Type": "Notification",
        "MessageId": "m-1",
        "TopicArn": TOPIC,
        "Message": message if isinstance(message, str) else json.dumps(message),
        "Timestamp": "2030-06-01T12:00:00.000Z",
        "SignatureVersion": version,
        "SigningCertURL": CERTIFICATE_URL,
        "Signature": "",
        **fields,
    }
    envelope = ses.read_envelope(json.dumps(given).encode())
    algorithm = hashes.SHA1() if version == "1" else hashes.SHA256()
    if not given["Signature"] and given["Type"] in ("Notification", "SubscriptionConfirmation"):
        signature = AMAZON_KEY.sign(ses.signed_text(envelope), padding.PKCS1v15(), algorithm)
        given["Signature"] = base64.b64encode(signature).decode()
    return json.dumps(given).encode()


def ses_bounce(address: str = "ada@example.org", **person: str) -> dict[str, Any]:
    return {
        "notificationType": "Bounce",
        "bounce": {
            "bounceType": "Permanent",
            "bounceSubType": "General",
            "bouncedRecipients": [{"emailAddress": address, **person}],
            "timestamp": "2030-06-01T11:59:00.000Z",
            "feedbackId": "f-1",
        },
        "mail": {"messageId": "s-1"},
    }


SES_COMPLAINT = {
    "eventType": "Complaint",
    "complaint": {"complainedRecipients": [{"emailAddress": "ada@example.org"}], "feedbackId": "f-2"},
}


async def post_ses(browser: Browser, body: bytes) -> Response:
    return await browser.post("/v1/feedback/ses", content=body, headers={"content-type": "text/plain; charset=UTF-8"})


@pytest.mark.parametrize("version", ["1", "2"])
async def test_ses_bounce(browser: Browser, pool: Pool, amazon: Amazon, version: str) -> None:
    """Both signature versions are accepted; the certificate is fetched once."""
    body = notification(ses_bounce(status="5.1.1", diagnosticCode="smtp; 550 5.1.1 user unknown"), version=version)
    answer = await post_ses(browser, body)
    assert (answer.status, answer.json) == (200, {"recorded": 1, "ignored": 0})
    assert (await post_ses(browser, body)).json == {"recorded": 0, "ignored": 0}
    assert await suppressed(pool) == [("hard_bounce", "all", None)]
    assert await rows(pool, "SELECT origin, enhanced, code FROM bounces") == [("ses", "5.1.1", 550)]
    assert amazon.asked == [CERTIFICATE_URL]


async def test_ses_message_id_identifies_the_delivery(browser: Browser, pool: Pool) -> None:
    """A notification with the headers of the mail is tied to its delivery."""
    delivery_id = await sent(pool)
    event = ses_bounce()
    event["mail"]["headers"] = [{"name": "Message-ID", "value": await message_id(pool, delivery_id)}]
    await post_ses(browser, notification(event))
    assert await rows(pool, "SELECT delivery_id FROM bounces") == [(delivery_id,)]


@pytest.mark.parametrize(
    "change, expected",
    [
        ({}, "recipient_hard"),
        ({"status": "5.7.1", "diagnosticCode": "smtp; 550 5.7.1 blocked by reputation"}, "policy"),
        ({"status": "5.2.2"}, "recipient_soft"),
    ],
)
async def test_ses_classes(browser: Browser, pool: Pool, change: dict[str, str], expected: str) -> None:
    """The diagnostics take precedence over Amazon's bounce type."""
    await post_ses(browser, notification(ses_bounce(**change)))
    assert await rows(pool, "SELECT class FROM bounces") == [(expected,)]


async def test_ses_complaint(browser: Browser, pool: Pool) -> None:
    """A complaint suppresses permanently."""
    await post_ses(browser, notification(SES_COMPLAINT))
    assert await suppressed(pool) == [("complaint", "all", None)]


@pytest.mark.parametrize(
    "event", [{"notificationType": "Delivery"}, {"eventType": "Open"}, {}, {"eventType": "Bounce"}]
)
async def test_ses_events_that_are_ignored(browser: Browser, pool: Pool, event: dict[str, str]) -> None:
    """Ignored events get 200 and are counted, because Amazon would retry for days."""
    assert (await post_ses(browser, notification(event))).json == {"recorded": 0, "ignored": 1}


async def test_subscription_is_confirmed(browser: Browser, amazon: Amazon) -> None:
    """A subscription of our topic is confirmed at Amazon's own host."""
    url = "https://sns.eu-central-1.amazonaws.com/?Action=ConfirmSubscription&Token=t"
    body = notification("please", Type="SubscriptionConfirmation", SubscribeURL=url, Token="t")
    assert (await post_ses(browser, body)).status == 200
    assert amazon.asked == [CERTIFICATE_URL, url]


async def test_confirmation_url_of_another_host_is_not_fetched(browser: Browser, amazon: Amazon) -> None:
    """Postroom fetches no URL of another host, even from a signed message."""
    url = "https://internal.example.net/admin"
    await post_ses(browser, notification("please", Type="SubscriptionConfirmation", SubscribeURL=url, Token="t"))
    assert url not in amazon.asked


@pytest.mark.parametrize(
    "fields",
    [
        {"TopicArn": "arn:aws:sns:eu-central-1:999999999999:theirs"},
        {"SigningCertURL": "https://sns.eu-central-1.amazonaws.com.evil.example/a.pem"},
        {"SigningCertURL": "https://evil.example/SimpleNotificationService.pem"},
        {"SigningCertURL": "http://sns.eu-central-1.amazonaws.com/a.pem"},
        {"SigningCertURL": "https://user@sns.eu-central-1.amazonaws.com/a.pem"},
        {"SigningCertURL": "https://sns.eu-central-1.amazonaws.com:8443/a.pem"},
        {"SigningCertURL": "https://s3.eu-central-1.amazonaws.com/mine.pem"},
        {"SigningCertURL": "https://sns.eu-central-1.amazonaws.com/a.txt"},
        {"Signature": "bm9uc2Vuc2U="},
        {"Signature": "###"},
        {"SignatureVersion": "3"},
        {"Type": "Other"},
    ],
)
async def test_ses_without_proof(browser: Browser, pool: Pool, amazon: Amazon, fields: dict[str, str]) -> None:
    """A foreign topic, host or signature gets 401, and nothing is stored."""
    assert (await post_ses(browser, notification(ses_bounce(), **fields))).status == 401
    assert await nothing_is_stored(pool)
    assert all(url == CERTIFICATE_URL for url in amazon.asked)


async def test_changed_message_is_rejected(browser: Browser, pool: Pool) -> None:
    """The signature covers the message."""
    body = notification(ses_bounce()).replace(b"ada@example.org", b"ben@example.org")
    assert (await post_ses(browser, body)).status == 401
    assert await nothing_is_stored(pool)


async def test_expired_certificate_is_rejected(browser: Browser, amazon: Amazon) -> None:
    """A signature by an expired certificate gets 401."""
    amazon.certificate = certificate(ends=NOW - timedelta(days=1))
    assert (await post_ses(browser, notification(ses_bounce()))).status == 401


async def test_invalid_certificate_is_rejected(browser: Browser, amazon: Amazon) -> None:
    """A response that is not a certificate leads to 401."""
    amazon.certificate = b"hello"
    assert (await post_ses(browser, notification(ses_bounce()))).status == 401


async def test_unreachable_amazon_returns_429(browser: Browser, pool: Pool, amazon: Amazon) -> None:
    """SNS retries after 429."""
    amazon.is_away = True
    assert (await post_ses(browser, notification(ses_bounce()))).status == 429
    assert await nothing_is_stored(pool)


@pytest.mark.parametrize("path", ["ses", "mailgun"])
@pytest.mark.parametrize("body", [b"", b"{}", b"[]", b"\xff", b"[" * 60_000])
async def test_malformed_requests_are_rejected(browser: Browser, pool: Pool, path: str, body: bytes) -> None:
    """A malformed body gets 400, and nothing is stored."""
    assert (await browser.post(f"/v1/feedback/{path}", content=body)).status == 400
    assert await nothing_is_stored(pool)


# ── SendGrid ──────────────────────────────────────────────────────────────────────────────────────────────────────


async def post_sendgrid(browser: Browser, *events: dict[str, Any], tamper: bytes = b"") -> Response:
    body, stamp = json.dumps(events).encode(), "1906545600"
    signature = SENDGRID_KEY.sign(stamp.encode() + body, ec.ECDSA(hashes.SHA256()))
    headers = {
        "X-Twilio-Email-Event-Webhook-Signature": base64.b64encode(signature).decode(),
        "X-Twilio-Email-Event-Webhook-Timestamp": stamp,
        "content-type": "application/json",
    }
    return await browser.post("/v1/feedback/sendgrid", content=body + tamper, headers=headers)


def sendgrid_event(kind: str, **fields: Any) -> dict[str, Any]:
    return {"event": kind, "email": "ada@example.org", "timestamp": 1906545000, "sg_event_id": "e-1", **fields}


@pytest.mark.parametrize(
    "event, expected",
    [
        (sendgrid_event("bounce", type="bounce", status="5.1.1", reason="550 5.1.1 unknown"), "hard_bounce"),
        (sendgrid_event("bounce", type="bounce", status="5.2.2", reason="552 full"), "soft_bounce"),
        (sendgrid_event("bounce", type="blocked", status="5.1.1", reason="550 5.1.1 unknown"), None),
        (sendgrid_event("bounce", status="5.7.1", reason="550 spam"), None),
        (sendgrid_event("dropped", reason="Bounced Address"), "hard_bounce"),
        (sendgrid_event("dropped", reason="Spam Reporting Address"), "complaint"),
        (sendgrid_event("spamreport"), "complaint"),
        (sendgrid_event("unsubscribe"), "unsubscribe"),
        (sendgrid_event("group_unsubscribe"), "unsubscribe"),
        (sendgrid_event("deferred", response="450 later"), None),
        (sendgrid_event("delivered"), None),
        (sendgrid_event("open"), None),
        (sendgrid_event("something_new"), None),
    ],
)
async def test_sendgrid_events(browser: Browser, pool: Pool, event: dict[str, Any], expected: str | None) -> None:
    """Each event is mapped; a block suppresses no address, an unknown event is ignored."""
    assert (await post_sendgrid(browser, event)).status == 200
    assert [reason for reason, _, _ in await suppressed(pool)] == ([expected] if expected else [])


async def test_sendgrid_batches_are_idempotent(browser: Browser, pool: Pool) -> None:
    """A repeated batch records nothing new."""
    events = [sendgrid_event("spamreport", email=f"p{n}@example.org", sg_event_id=f"e-{n}") for n in range(50)]
    assert (await post_sendgrid(browser, *events, sendgrid_event("open"))).json == {"recorded": 50, "ignored": 1}
    assert (await post_sendgrid(browser, *events)).json == {"recorded": 0, "ignored": 0}


async def test_large_sendgrid_batches_are_read_two_at_a_time(browser: Browser, pool: Pool) -> None:
    """A batch above 64 kB is read before its signature is known: a third one at a time is asked to come again."""
    events = [sendgrid_event("spamreport", email=f"p{n}@example.org", sg_event_id=f"e-{n}") for n in range(1000)]
    forged = {"content-type": "application/json"}
    gate, begun = asyncio.Event(), asyncio.Semaphore(0)

    async def slow() -> AsyncIterator[bytes]:
        yield bytes(PUBLIC_BODY + 1)
        begun.release()
        await gate.wait()

    strangers = [
        asyncio.create_task(browser.post("/v1/feedback/sendgrid", content=slow(), headers=forged)) for _ in range(2)
    ]
    for _ in strangers:
        await begun.acquire()
    assert (await post_sendgrid(browser, *events)).status == 429
    assert (await post_sendgrid(browser, *events[:10])).status == 200
    gate.set()
    assert [(await stranger).status for stranger in strangers] == [401, 401]
    assert (await post_sendgrid(browser, *events)).json == {"recorded": 990, "ignored": 0}


async def test_postmark_is_verified_before_its_body_is_read(browser: Browser) -> None:
    """A wrong secret is refused without a look at the body, however large."""
    response = await browser.post(
        "/v1/feedback/postmark", content=bytes(2 * MEGABYTE), headers={"content-type": "application/json"}
    )
    assert response.status == 401


async def test_sendgrid_without_proof(browser: Browser, pool: Pool) -> None:
    """A changed body or a missing signature gets 401."""
    assert (await post_sendgrid(browser, sendgrid_event("spamreport"), tamper=b" ")).status == 401
    assert (await browser.post("/v1/feedback/sendgrid", json=[sendgrid_event("spamreport")])).status == 401
    assert await nothing_is_stored(pool)


# ── Mailgun ───────────────────────────────────────────────────────────────────────────────────────────────────────


def mailgun_body(event: str, *, status: dict[str, Any] | None = None, **fields: Any) -> dict[str, Any]:
    token, key = fields.pop("token", "t-1"), fields.pop("key", MAILGUN_KEY)
    at: datetime = fields.pop("at", NOW)
    stamp = str(fields.pop("seconds", int(at.timestamp())))
    signature = hmac.new(key.encode(), f"{stamp}{token}".encode(), hashlib.sha256).hexdigest()
    data = {"event": event, "recipient": "ada@example.org", "id": f"id-{token}", "timestamp": at.timestamp(), **fields}
    data |= {"delivery-status": status} if status else {}
    return {"signature": {"timestamp": stamp, "token": token, "signature": signature}, "event-data": data}


@pytest.mark.parametrize(
    "body, expected",
    [
        (
            mailgun_body("failed", severity="permanent", status={"code": 550, "message": "no such user"}),
            "hard_bounce",
        ),
        (
            mailgun_body(
                "failed",
                severity="permanent",
                reason="suppress-bounce",
                status={"code": 605, "description": "Not delivering to previously bounced address"},
            ),
            "hard_bounce",
        ),
        (mailgun_body("failed", severity="temporary", status={"code": 452, "message": "full"}), None),
        (
            mailgun_body(
                "failed",
                severity="permanent",
                status={"code": 550, "enhanced-code": "5.7.1", "message": "spam"},
            ),
            None,
        ),
        (mailgun_body("complained"), "complaint"),
        (mailgun_body("unsubscribed"), "unsubscribe"),
        (mailgun_body("opened"), None),
    ],
)
async def test_mailgun_events(browser: Browser, pool: Pool, body: dict[str, Any], expected: str | None) -> None:
    """Temporary failures are not bounces; a block suppresses no address."""
    assert (await browser.post("/v1/feedback/mailgun", json=body)).status == 200
    assert [reason for reason, _, _ in await suppressed(pool)] == ([expected] if expected else [])


async def test_mailgun_token_is_valid_for_one_body(browser: Browser, pool: Pool) -> None:
    """The signature does not cover the body: a reused token cannot suppress another address."""
    await browser.post("/v1/feedback/mailgun", json=mailgun_body("complained"))
    forged = mailgun_body("complained", recipient="victim@example.org", id="another")
    answer = await browser.post("/v1/feedback/mailgun", json=forged)
    assert (answer.status, answer.json["recorded"]) == (200, 0)
    assert await suppressed(pool, "victim@example.org") == []


@pytest.mark.parametrize(
    "body",
    [
        mailgun_body("complained", key="another key"),
        mailgun_body("complained", at=NOW - timedelta(hours=13)),
        mailgun_body("complained", at=NOW + timedelta(hours=13)),
        mailgun_body("complained", seconds=999_999_999_999),  # the year 33658: Python has no datetime for it
    ],
)
async def test_mailgun_without_proof(browser: Browser, pool: Pool, body: dict[str, Any]) -> None:
    """A wrong key or an old timestamp gets 401, and the token is not stored."""
    assert (await browser.post("/v1/feedback/mailgun", json=body)).status == 401
    assert await nothing_is_stored(pool)


# ── Postmark ──────────────────────────────────────────────────────────────────────────────────────────────────────


BASIC = {"authorization": "Basic " + base64.b64encode(f"postmark:{POSTMARK_SECRET}".encode()).decode()}
HEADER = {"x-postroom-secret": POSTMARK_SECRET}


def postmark(kind: str, **fields: Any) -> dict[str, Any]:
    return {"RecordType": kind, "ID": 42, "MessageID": "u-1", "Email": "ada@example.org", **fields}


@pytest.mark.parametrize(
    "body, expected",
    [
        (
            postmark("Bounce", Type="HardBounce", Details="550 5.1.1 unknown", BouncedAt="2030-06-01T11:00:00Z"),
            "hard_bounce",
        ),
        (postmark("Bounce", Type="HardBounce", Details="550 blocked by spamhaus"), None),
        (postmark("Bounce", Type="SoftBounce", Details="452 full"), "soft_bounce"),
        (postmark("Bounce", Type="Blocked", Details="blocked"), None),
        (postmark("Bounce", Type="AutoResponder", Details="on holiday"), None),
        (postmark("Bounce", Type="Transient", Details="later"), None),
        (postmark("SpamComplaint", Type="SpamComplaint"), "complaint"),
        (
            postmark(
                "SubscriptionChange",
                Recipient="ada@example.org",
                SuppressSending=True,
                SuppressionReason="ManualSuppression",
            ),
            "unsubscribe",
        ),
        (postmark("SubscriptionChange", Recipient="ada@example.org", SuppressSending=False), None),
        (postmark("Open"), None),
    ],
)
@pytest.mark.parametrize("headers", [BASIC, HEADER])
async def test_postmark_events(
    browser: Browser, pool: Pool, body: dict[str, Any], expected: str | None, headers: dict[str, str]
) -> None:
    """Events are accepted with basic authentication or our header."""
    assert (await browser.post("/v1/feedback/postmark", json=body, headers=headers)).status == 200
    assert [reason for reason, _, _ in await suppressed(pool)] == ([expected] if expected else [])


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"x-postroom-secret": "guess"},
        {"authorization": "Basic !!!"},
        {"authorization": f"Bearer {POSTMARK_SECRET}"},
    ],
)
async def test_postmark_without_proof(browser: Browser, pool: Pool, headers: dict[str, str]) -> None:
    """A request without the secret gets 401, and nothing is stored."""
    answer = await browser.post("/v1/feedback/postmark", json=postmark("SpamComplaint"), headers=headers)
    assert answer.status == 401
    assert await nothing_is_stored(pool)


@pytest.mark.parametrize("provider", ["ses", "sendgrid", "mailgun", "postmark"])
async def test_unconfigured_provider_returns_404(room: Room, provider: str) -> None:
    """A provider without a configured secret cannot be verified, and its endpoint returns 404."""
    app = HttpApplication(room, provider_api.endpoints(ProviderOptions()), auth=Authenticator(room.pool))
    assert (await Browser(app).post(f"/v1/feedback/{provider}", json={})).status == 404
