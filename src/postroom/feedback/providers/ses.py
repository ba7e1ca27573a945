"""Amazon SES through SNS.

Every customer of Amazon can sign a message with SNS, so a valid signature proves only that Amazon sent it: the topic
must be one of ours. The certificate is fetched only from Amazon's own host, and cached.
"""

import base64
import binascii
import re
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from urllib.parse import urlsplit

import aiohttp
import msgspec
from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
from cryptography.hazmat.primitives.hashes import SHA1, SHA256

from postroom.feedback.model import BounceClass, FeedbackKind, classify
from postroom.feedback.providers.model import ProviderNotice, ProviderReports, parsed_moment
from postroom.post.meaning import find_code

Fetch = Callable[[str], Awaitable[bytes]]
"""Get a small document from a verified URL; raises OSError."""

NOTIFICATION, CONFIRMATION = "Notification", "SubscriptionConfirmation"
TIMEOUT_S = 10  # below the 15 s that SNS waits for our response
LARGEST_DOCUMENT = 64 * 1024  # a certificate of SNS has about 2 kB
MOST_CERTIFICATES = 16  # SNS rotates them rarely; bounds memory against forged URLs

_HOST = re.compile(r"sns\.[a-z0-9-]{3,40}\.amazonaws\.com(?:\.cn)?")
_SIGNED = {
    NOTIFICATION: ("Message", "MessageId", "Subject", "Timestamp", "TopicArn", "Type"),
    CONFIRMATION: ("Message", "MessageId", "SubscribeURL", "Timestamp", "Token", "TopicArn", "Type"),
    "UnsubscribeConfirmation": ("Message", "MessageId", "SubscribeURL", "Timestamp", "Token", "TopicArn", "Type"),
}
_KINDS = {
    ("Permanent", ""): BounceClass.RECIPIENT_HARD,
    ("Transient", "ContentRejected"): BounceClass.MESSAGE,
    ("Transient", "AttachmentRejected"): BounceClass.MESSAGE,
    ("Transient", "MessageTooLarge"): BounceClass.MESSAGE,
}
"""Bounce classes by type, used if neither status nor diagnostics are specific."""


class SnsEnvelope(msgspec.Struct, frozen=True):
    """A message of SNS."""

    Type: str
    MessageId: str
    TopicArn: str
    Message: str
    Timestamp: str
    Signature: str
    SigningCertURL: str
    SignatureVersion: str = "1"
    Subject: str | None = None
    SubscribeURL: str | None = None
    Token: str | None = None


class SesRecipient(msgspec.Struct, frozen=True, rename="camel"):
    email_address: str
    status: str | None = None
    diagnostic_code: str | None = None


class BounceBody(msgspec.Struct, frozen=True, rename="camel"):
    bounce_type: str = "Undetermined"
    bounce_sub_type: str = ""
    bounced_recipients: list[SesRecipient] = []
    timestamp: str = ""
    feedback_id: str = ""


class ComplaintBody(msgspec.Struct, frozen=True, rename="camel"):
    complained_recipients: list[SesRecipient] = []
    complaint_feedback_type: str | None = None
    timestamp: str = ""
    feedback_id: str = ""


class SesMailHeader(msgspec.Struct, frozen=True, rename="camel"):
    name: str = ""
    value: str = ""


class Mail(msgspec.Struct, frozen=True, rename="camel"):
    message_id: str = ""
    headers: list[SesMailHeader] = []


class SesEvent(msgspec.Struct, frozen=True, rename="camel"):
    """An SES notification or published event."""

    notification_type: str = ""
    event_type: str = ""
    bounce: BounceBody | None = None
    complaint: ComplaintBody | None = None
    mail: Mail = Mail()


_events = msgspec.json.Decoder(SesEvent)
read_envelope = msgspec.json.Decoder(SnsEnvelope).decode
"""Decode a request; raises `msgspec.MsgspecError`."""


def is_amazon(url: str | None) -> bool:
    """True for a URL on the host of SNS itself, over TLS."""
    try:
        parts = urlsplit(url or "")
        port = parts.port
    except ValueError:
        return False
    is_plain = parts.username is None and port in (None, 443)
    return parts.scheme == "https" and is_plain and _HOST.fullmatch(parts.hostname or "") is not None


class Verifier:
    """Verifies signatures and caches the certificates."""

    def __init__(self, topics: Sequence[str], fetch: Fetch) -> None:
        self._topics, self._fetch = frozenset(topics), fetch
        self._keys: dict[str, tuple[rsa.RSAPublicKey, datetime, datetime]] = {}

    async def is_genuine(self, envelope: SnsEnvelope, *, now: datetime) -> bool:
        """True if Amazon signed the message for one of our topics; OSError if its certificate is unavailable."""
        names = _SIGNED.get(envelope.Type)
        if names is None or envelope.TopicArn not in self._topics or not is_amazon(envelope.SigningCertURL):
            return False
        if not urlsplit(envelope.SigningCertURL).path.endswith(".pem"):
            return False
        key = await self._key(envelope.SigningCertURL, now)
        algorithm = {"1": SHA1, "2": SHA256}.get(
            envelope.SignatureVersion
        )  # version 1 (SHA-1) is still Amazon's default
        if key is None or algorithm is None:
            return False
        try:
            signature = base64.b64decode(envelope.Signature, validate=True)
            key.verify(signature, signed_text(envelope, names), PKCS1v15(), algorithm())
        except (InvalidSignature, binascii.Error, ValueError):
            return False
        return True

    async def confirm(self, envelope: SnsEnvelope) -> bool:
        """Confirm a subscription of one of our topics."""
        if not is_amazon(envelope.SubscribeURL):
            return False
        await self._fetch(envelope.SubscribeURL or "")
        return True

    async def _key(self, url: str, now: datetime) -> rsa.RSAPublicKey | None:
        if url not in self._keys:
            try:
                certificate = x509.load_pem_x509_certificate(await self._fetch(url))
            except ValueError:
                return None
            key = certificate.public_key()
            if not isinstance(key, rsa.RSAPublicKey):
                return None
            if len(self._keys) >= MOST_CERTIFICATES:
                self._keys.clear()
            self._keys[url] = (key, certificate.not_valid_before_utc, certificate.not_valid_after_utc)
        key, begins, ends = self._keys[url]
        return key if begins <= now <= ends else None


def signed_text(envelope: SnsEnvelope, names: Sequence[str] | None = None) -> bytes:
    """The text that SNS signs: names and values of some fields, in alphabetical order."""
    pairs = [(name, getattr(envelope, name)) for name in names or _SIGNED[envelope.Type]]
    return "".join(f"{name}\n{value}\n" for name, value in pairs if value is not None).encode()


def read(envelope: SnsEnvelope) -> ProviderReports:
    """The events inside a notification; raises `msgspec.MsgspecError`."""
    event = _events.decode(envelope.Message)
    trace = " ".join(header.value for header in event.mail.headers if header.name.lower() == "message-id")
    match event.notification_type or event.event_type:
        case "Bounce" if event.bounce is not None:
            return ProviderReports(
                [_bounce(event.bounce, person, trace, event.mail) for person in event.bounce.bounced_recipients]
            )
        case "Complaint" if event.complaint is not None and event.complaint.complaint_feedback_type != "not-spam":
            complaint = event.complaint
            return ProviderReports(
                [_complaint(complaint, person, trace, event.mail) for person in complaint.complained_recipients]
            )
        case _:
            return ProviderReports((), 1)


def _bounce(bounce: BounceBody, person: SesRecipient, trace: str, mail: Mail) -> ProviderNotice:
    said = (person.diagnostic_code or "").partition(";")[2].strip() or person.diagnostic_code or ""
    if person.status or said:
        found = classify(None, person.status, said)
    else:
        kind = bounce.bounce_type
        found = _KINDS.get((kind, bounce.bounce_sub_type)) or _KINDS.get((kind, ""), BounceClass.RECIPIENT_SOFT)
    return ProviderNotice(
        kind=FeedbackKind.BOUNCE,
        address=person.email_address,
        event_id=bounce.feedback_id or mail.message_id,
        classification=found,
        code=find_code(said),
        enhanced=person.status,
        text=said or f"{bounce.bounce_type} {bounce.bounce_sub_type}".strip(),
        trace=trace,
        reported_at=parsed_moment(bounce.timestamp),
    )


def _complaint(complaint: ComplaintBody, person: SesRecipient, trace: str, mail: Mail) -> ProviderNotice:
    return ProviderNotice(
        kind=FeedbackKind.COMPLAINT,
        address=person.email_address,
        event_id=complaint.feedback_id or mail.message_id,
        text=complaint.complaint_feedback_type or "abuse",
        trace=trace,
        reported_at=parsed_moment(complaint.timestamp),
    )


async def fetch_document(url: str) -> bytes:
    """Get a small document without redirects, because only the first URL was verified."""
    timeout = aiohttp.ClientTimeout(total=TIMEOUT_S)
    try:
        async with (
            aiohttp.ClientSession(timeout=timeout) as session,
            session.get(url, allow_redirects=False) as answer,
        ):
            if answer.status != 200:  # noqa: PLR2004 - OK
                raise OSError(f"the server answered {answer.status}")
            return await answer.content.read(LARGEST_DOCUMENT)
    except (aiohttp.ClientError, TimeoutError) as error:
        raise OSError(str(error)) from error
