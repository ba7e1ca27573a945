"""The source of a delivery, for readers: the message composed again from its content.

The composer gives the same Message-ID, date and parts as for the attempts, and the From and Reply-To of the sender
account of the last one. Three things are added only when mail leaves: the DKIM signature, whose keys are at the
workers, the personal link for one-click unsubscription, and counted links.
"""

from datetime import UTC, datetime

from postroom.delivery.model import ClaimId, Delivery, Outgoing
from postroom.mail.compose import Composer, written_by
from postroom.post.address import parse_address
from postroom.post.message_id import room_keys
from postroom.senders.model import SenderAccount
from postroom.settings import Settings


def compose_source(settings: Settings, delivery: Delivery, account: SenderAccount | None) -> bytes:
    """The bytes of a delivery whose content is rendered, as they leave through this account.

    ValueError names the part that cannot be encoded.
    """
    composer = Composer(
        default_sender=parse_address(settings.default_from),
        message_domain=settings.message_domain,
        keys=room_keys(settings.secret_keys, settings.schema),
    )
    outgoing = Outgoing(
        id=delivery.id,
        claim_id=ClaimId(0),
        channel=delivery.channel,
        lane=delivery.lane,
        ladder=delivery.ladder,
        attempt_no=delivery.attempt_count,
        attempt_base=0,
        created_at=delivery.created_at,
        dated_at=delivery.dated_at,
        expires_at=delivery.expires_at,
        traceparent=None,
        recipients=delivery.recipients,
        sender=delivery.sender,
        subject=delivery.subject or "",
        text=delivery.text,
        html=delivery.html,
        headers=delivery.headers,
        attachments=delivery.attachments,
    )
    outgoing = outgoing if account is None else written_by(outgoing, account)
    _envelope, content = composer.compose(outgoing, now=datetime.now(UTC))
    return content.encode(eight_bit=True)
