"""Record a provider's events, and tie them to deliveries by our Message-ID."""

from collections.abc import Sequence

from postroom.db.queries import Connection
from postroom.feedback import record, store
from postroom.feedback.attribution import SentDelivery
from postroom.feedback.metrics import WEBHOOKS
from postroom.feedback.model import LONGEST_TEXT, BounceClass, Feedback, report_identity
from postroom.feedback.providers.model import ProviderNotice, ProviderReports
from postroom.post.address import find_address
from postroom.post.keyed_hash import RoomKey
from postroom.post.message_id import find_message_ids, is_message_id_of
from postroom.post.text import storable

_LARGEST_CODE = 999  # SMTP replies have three digits


async def receive(connection: Connection, batch: ProviderReports, *, provider: str, keys: Sequence[RoomKey]) -> int:
    """Record the events of a verified request in the caller's transaction; returns the number of new events.

    `keys` verify the room's Message-IDs: without them no event is tied to a delivery.
    """
    notices = [notice for notice in batch.notices if find_address(notice.address) is not None]
    ids = {found[0] for notice in notices for found in find_message_ids(notice.trace)}
    known = await store.find_sent(connection, delivery_ids=sorted(ids)) if ids else {}
    feedback = [_feedback(notice, provider, _delivery(notice, known, keys)) for notice in notices]
    recorded = await record.record(connection, feedback)
    WEBHOOKS.labels(provider, "recorded").inc(recorded)
    WEBHOOKS.labels(provider, "repeated").inc(len(notices) - recorded)
    WEBHOOKS.labels(provider, "ignored").inc(batch.ignored + len(batch.notices) - len(notices))
    return recorded


def _feedback(notice: ProviderNotice, provider: str, delivery_id: int | None) -> Feedback:
    address = find_address(notice.address) or ""
    identity = report_identity(provider, notice.kind.value, notice.event_id, address.lower())
    return Feedback(
        kind=notice.kind,
        classification=notice.classification or BounceClass.RECIPIENT_SOFT,
        code=notice.code if notice.code is not None and notice.code <= _LARGEST_CODE else None,
        enhanced=storable(notice.enhanced, 20) if notice.enhanced else None,
        address=address,
        origin=provider,
        report_id=identity,
        is_verified=True,
        delivery_id=delivery_id,
        text=storable(notice.text, LONGEST_TEXT),
        reported_at=notice.reported_at,
    )


def _delivery(notice: ProviderNotice, known: dict[int, SentDelivery], keys: Sequence[RoomKey]) -> int | None:
    """The delivery whose Message-ID the event carries, if it went to this recipient."""
    address = find_address(notice.address) or ""
    for message_id in find_message_ids(notice.trace):
        sent = known.get(message_id[0])
        if sent is not None and _went_to(sent, address) and is_message_id_of(sent.created_at, message_id, keys=keys):
            return sent.delivery_id
    return None


def _went_to(sent: SentDelivery, address: str) -> bool:
    recipients: Sequence[str] = sent.recipients
    return address.lower() in {recipient.lower() for recipient in recipients}
