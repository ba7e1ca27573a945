"""SendGrid's signed event webhook."""

import base64
import binascii
from collections.abc import Mapping

import msgspec
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import load_der_public_key

from postroom.feedback.model import BounceClass, FeedbackKind, classify
from postroom.feedback.providers.model import ProviderNotice, ProviderReports, moment
from postroom.post.meaning import find_code

SIGNATURE = "x-twilio-email-event-webhook-signature"
TIMESTAMP = "x-twilio-email-event-webhook-timestamp"

_DROPPED = {
    "bounced address": (FeedbackKind.BOUNCE, BounceClass.RECIPIENT_HARD),
    "invalid": (FeedbackKind.BOUNCE, BounceClass.RECIPIENT_HARD),
    "spam reporting address": (FeedbackKind.COMPLAINT, None),
    "unsubscribed address": (FeedbackKind.UNSUBSCRIBE, None),
}
_KINDS = {
    "spamreport": FeedbackKind.COMPLAINT,
    "unsubscribe": FeedbackKind.UNSUBSCRIBE,
    "group_unsubscribe": FeedbackKind.UNSUBSCRIBE,
}


class SendgridEvent(msgspec.Struct, frozen=True):
    """One event of many in a request."""

    event: str = ""
    email: str = ""
    type: str = ""
    status: str | None = None
    reason: str | None = None
    timestamp: float | None = None
    sg_event_id: str = ""
    smtp_id: str = msgspec.field(default="", name="smtp-id")


_events = msgspec.json.Decoder(list[SendgridEvent])


def is_genuine(raw: bytes, headers: Mapping[str, str], *, key: str) -> bool:
    """True if the body has a valid signature for the configured public key."""
    try:
        public = load_der_public_key(base64.b64decode(key))
        signature = base64.b64decode(headers.get(SIGNATURE, ""), validate=True)
        if not isinstance(public, ec.EllipticCurvePublicKey):
            return False
        public.verify(signature, headers.get(TIMESTAMP, "").encode() + raw, ec.ECDSA(SHA256()))
    except (InvalidSignature, binascii.Error, ValueError):
        return False
    return True


def read(raw: bytes) -> ProviderReports:
    """The events of a request; raises `msgspec.MsgspecError`."""
    events = _events.decode(raw)
    notices = [notice for event in events if (notice := _notice(event)) is not None]
    return ProviderReports(notices, len(events) - len(notices))


def _notice(event: SendgridEvent) -> ProviderNotice | None:
    kind, found = _KINDS.get(event.event), None
    said = event.reason or ""
    if event.event == "bounce":
        # SendGrid's "blocked" means this mail or our server was rejected, whatever the status says
        kind = FeedbackKind.BOUNCE
        found = BounceClass.POLICY if event.type == "blocked" else classify(find_code(said), event.status, said)
    elif event.event == "dropped":
        kind, found = _DROPPED.get(said.strip().lower(), (None, None))
    if kind is None or not event.email:
        return None
    return ProviderNotice(
        kind=kind,
        address=event.email,
        event_id=event.sg_event_id,
        classification=found,
        code=find_code(said),
        enhanced=event.status,
        text=said,
        trace=event.smtp_id,
        reported_at=moment(event.timestamp),
    )
