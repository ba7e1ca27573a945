"""Turn a due event into a delivery: destination, content, and the result for the event.

Mail uses the bulk lane, so that people who have unsubscribed get none and each mail has an unsubscribe link.

The destination is the person's webhook, then their email address, then the installation's webhook. Without any of them
the capture inbox is used if it is enabled; otherwise the event fails with `no_destination`.
"""

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import msgspec

from postroom.delivery.model import ENDED, Accepted, Channel, DeliveryRequest, DeliveryState, Lane
from postroom.post.address import Address, parse_address
from postroom.schedule.kinds import KINDS
from postroom.schedule.model import LATE_AFTER, UNREADABLE, Claimed, ScheduledEventStatus, SchedulePolicy
from postroom.transports.webhook.inbox import CAPTURE_URL

SOURCE = "schedule"
GREETING = "greeting"
"""Retry ladder of webhooks: 1, 2 and 4 seconds."""

NO_DESTINATION = "no_destination: neither webhook_url, email nor POSTROOM_SCHEDULE_WEBHOOK_URL is set"
TOO_LATE = "too_late: due longer ago than POSTROOM_SCHEDULE_MAX_LATENESS allows"
_SUBJECT = 200  # characters; clients show fewer

_encode = msgspec.json.Encoder().encode


@dataclass(frozen=True, slots=True)
class HandoverResult:
    """The result of a claimed event: a delivery, or a final status."""

    event: Claimed
    status: ScheduledEventStatus
    delivery_id: int | None = None
    failure_reason: str | None = None

    @property
    def late_by(self) -> timedelta | None:
        return self.event.lateness if self.event.lateness > LATE_AFTER else None


def refusal(event: Claimed, policy: SchedulePolicy) -> str | None:
    """The reason not to hand over an event, or None."""
    if event.payload is UNREADABLE:
        return "bad_input: delivery_payload cannot be decoded"
    longest = policy.max_lateness.get(event.kind)
    if longest is not None and event.lateness > longest:
        return TOO_LATE
    person = event.person
    if not (person.webhook_url or person.email or policy.webhook_url or policy.captures):
        return NO_DESTINATION
    return None


def request_for(event: Claimed, policy: SchedulePolicy) -> DeliveryRequest:
    """The delivery of an event, with the event's key: one per person, kind and occurrence."""
    if event.person.webhook_url is None and event.person.email is not None:
        return _mail(event, event.person.email)
    url = event.person.webhook_url or policy.webhook_url or CAPTURE_URL
    return DeliveryRequest(
        to=(Address(url),),
        text=_encode(event.payload).decode(),
        channel=Channel.WEBHOOK,
        ladder=GREETING,
        source=SOURCE,
        idempotency_key=event.idempotency_key,
        tags={"kind": event.kind},
    )


def _mail(event: Claimed, email: str) -> DeliveryRequest:
    said = event.payload.get("message") if isinstance(event.payload, dict) else None
    message = str(said or "")
    if not message.strip():  # SQL may store an empty message, and a mail needs a subject
        message = event.kind.capitalize()
    return DeliveryRequest(
        to=(Address(parse_address(email).email, event.person.name),),
        **_content(event, message),
        locale=event.person.locale,
        lane=Lane.BULK,
        source=SOURCE,
        idempotency_key=event.idempotency_key,
        tags={"kind": event.kind},
    )


def _content(event: Claimed, message: str) -> dict[str, Any]:
    """The template with its variables; without a template, the message as subject and text."""
    template = _template_of(event)
    if template is None:
        return {"subject": " ".join(message.split())[:_SUBJECT], "text": message}
    rule = event.occasion.rule if event.occasion is not None else {}
    names = {"first_name": event.person.first_name, "last_name": event.person.last_name, "message": message}
    return {"template": template, "variables": {**rule, **names}}


def _template_of(event: Claimed) -> str | None:
    """The template of the occasion; for a birthday the person's template, otherwise the kind's."""
    if event.occasion is not None:
        return event.occasion.template
    kind = KINDS.get(event.kind)
    if kind is None or kind.template is None:
        return None
    return event.person.template or kind.template


def result_of(event: Claimed, accepted: Accepted) -> HandoverResult:
    """The result for an event whose delivery was accepted; the holder of the key is this occurrence's delivery."""
    if accepted.state not in ENDED:
        return HandoverResult(event, ScheduledEventStatus.PROCESSING, accepted.id)
    if accepted.state is DeliveryState.SENT:
        return HandoverResult(event, ScheduledEventStatus.COMPLETED, accepted.id)
    if accepted.state is DeliveryState.SUPPRESSED:
        return HandoverResult(event, ScheduledEventStatus.FAILED, accepted.id)  # `hand_over` sets the reason
    return HandoverResult(
        event,
        ScheduledEventStatus.FAILED,
        accepted.id,
        f"{accepted.state}: the delivery of this occurrence had already ended",
    )
