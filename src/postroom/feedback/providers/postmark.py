"""Postmark's webhooks. They are not signed: a secret in a header or basic authentication verifies the sender."""

import base64
import binascii
import hmac
from collections.abc import Mapping

import msgspec

from postroom.feedback.model import BounceClass, FeedbackKind, classify
from postroom.feedback.providers.model import ProviderNotice, ProviderReports, parsed_moment
from postroom.post.meaning import find_code, find_enhanced

HEADER = "x-postroom-secret"

_BOUNCES = {
    "HardBounce": BounceClass.RECIPIENT_HARD,
    "BadEmailAddress": BounceClass.RECIPIENT_HARD,
    "ManuallyDeactivated": BounceClass.RECIPIENT_HARD,
    "SoftBounce": BounceClass.RECIPIENT_SOFT,
    "Undeliverable": BounceClass.RECIPIENT_SOFT,
    "DnsError": BounceClass.INFRASTRUCTURE,
    "Unknown": BounceClass.RECIPIENT_SOFT,
    "Blocked": BounceClass.POLICY,
    "SpamNotification": BounceClass.POLICY,
    "VirusNotification": BounceClass.POLICY,
    "DMARCPolicy": BounceClass.POLICY,
    "SMTPApiError": BounceClass.MESSAGE,
    "TemplateRenderingFailed": BounceClass.MESSAGE,
}
"""Bounce classes by Postmark's type; other types (an automatic reply, a delay) are not bounces."""


class PostmarkEvent(msgspec.Struct, frozen=True, rename="pascal"):
    """One request, which is one event; its fields depend on its type."""

    record_type: str = ""
    type: str = ""
    id: int | None = msgspec.field(default=None, name="ID")
    message_id: str = msgspec.field(default="", name="MessageID")
    email: str = ""
    recipient: str = ""
    description: str | None = None
    details: str | None = None
    bounced_at: str = ""
    changed_at: str = ""
    suppress_sending: bool = False
    suppression_reason: str | None = None


_events = msgspec.json.Decoder(PostmarkEvent)


def is_genuine(headers: Mapping[str, str], *, secret: str) -> bool:
    """True if the secret is in its header, or is the password of basic authentication."""
    given = [headers.get(HEADER, "")]
    scheme, _, encoded = headers.get("authorization", "").partition(" ")
    if scheme.lower() == "basic":
        try:
            given.append(base64.b64decode(encoded, validate=True).decode().partition(":")[2])
        except (binascii.Error, ValueError):
            return False
    return any([hmac.compare_digest(secret.encode(), each.encode()) for each in given])  # noqa: C419 - no short cut


def read(raw: bytes) -> ProviderReports:
    """The event of a request; raises `msgspec.MsgspecError`."""
    event = _events.decode(raw)
    match event.record_type:
        case "Bounce" if event.type in _BOUNCES:
            return ProviderReports([_bounce(event)])
        case "SpamComplaint":
            return ProviderReports([_other(event, FeedbackKind.COMPLAINT, event.email)])
        case "SubscriptionChange" if event.suppress_sending and event.suppression_reason == "ManualSuppression":
            return ProviderReports([_other(event, FeedbackKind.UNSUBSCRIBE, event.recipient)])
        case _:
            return ProviderReports((), 1)


def _bounce(event: PostmarkEvent) -> ProviderNotice:
    said = event.details or event.description or ""
    found, spoken = _BOUNCES[event.type], classify(None, None, said)
    # A block of our server or a full mailbox, even where Postmark classifies it as a hard bounce.
    if spoken in (BounceClass.POLICY, BounceClass.RECIPIENT_SOFT, BounceClass.INFRASTRUCTURE):
        found = spoken if found is BounceClass.RECIPIENT_HARD or spoken is BounceClass.POLICY else found
    return ProviderNotice(
        kind=FeedbackKind.BOUNCE,
        address=event.email,
        event_id=f"{event.id or event.message_id}",
        classification=found,
        code=find_code(said),
        enhanced=find_enhanced(said),
        text=said,
        reported_at=parsed_moment(event.bounced_at),
    )


def _other(event: PostmarkEvent, kind: FeedbackKind, address: str) -> ProviderNotice:
    return ProviderNotice(
        kind=kind,
        address=address,
        event_id=f"{event.id or event.message_id}",
        text=event.description or "",
        reported_at=parsed_moment(event.bounced_at or event.changed_at),
    )
