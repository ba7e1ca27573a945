"""A mail in a listing for clients of Resend."""

from dataclasses import dataclass
from datetime import datetime

from postroom.delivery.model import DeliveryState, Lane, Recipient
from postroom.post.address import Address


@dataclass(frozen=True, slots=True)
class ListedEmail:
    """One line of the listing: a delivery without its bodies."""

    id: int
    state: DeliveryState
    lane: Lane
    attempt_count: int
    next_attempt_at: datetime | None
    created_at: datetime
    sender: Address | None
    subject: str | None
    recipients: tuple[Recipient, ...]
