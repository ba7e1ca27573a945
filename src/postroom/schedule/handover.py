"""From a due event to a delivery: where it goes, what it says, and what becomes of the event if it goes nowhere.

Mail goes out in the lane `bulk`, so that a person who has unsubscribed gets none, and each mail has a link to do so.

A person's own webhook comes first, then their mail address, then the installation's webhook. With none of them the
capture inbox takes it where there is one, and otherwise the event fails and says so.
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
"""The ladder of webhooks: 1, 2 and 4 seconds."""

NO_DESTINATION = "no_destination: neither webhook_url, email nor POSTROOM_SCHEDULE_WEBHOOK_URL is set"
TOO_LATE = "too_late: its time had passed by more than max_lateness"
_SUBJECT = 200

_encode = msgspec.json.Encoder().encode


@dataclass(frozen=True, slots=True)
class HandoverResult:
    """What becomes of a claimed event: a delivery to follow, or an end."""

    event: Claimed
    status: ScheduledEventStatus
    delivery_id: int | None = None
    failure_reason: str | None = None

    @property
    def late_by(self) -> timedelta | None:
        return self.event.lateness if self.event.lateness > LATE_AFTER else None


def refusal(event: Claimed, policy: SchedulePolicy) -> str | None:
    """Why an event is not handed over at all; None if it is."""
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
    """The delivery of an event. Its key is the event's, one per person, kind and occurrence."""
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
    if not message.strip():  # plain SQL may say nothing, and no mail goes without a subject
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
    """The template with its variables, or the message as subject and text without one."""
    template = _template_of(event)
    if template is None:
        return {"subject": " ".join(message.split())[:_SUBJECT], "text": message}
    rule = event.occasion.rule if event.occasion is not None else {}
    names = {"first_name": event.person.first_name, "last_name": event.person.last_name, "message": message}
    return {"template": template, "variables": {**rule, **names}}


def _template_of(event: Claimed) -> str | None:
    """The occasion's own template, or for the birthday the person's own before that of the kind."""
    if event.occasion is not None:
        return event.occasion.template
    kind = KINDS.get(event.kind)
    if kind is None or kind.template is None:
        return None
    return event.person.template or kind.template


def result_of(event: Claimed, accepted: Accepted) -> HandoverResult:
    """What an accepted delivery means for its event; whatever holds the key is this occurrence's delivery."""
    if accepted.state not in ENDED:
        return HandoverResult(event, ScheduledEventStatus.PROCESSING, accepted.id)
    if accepted.state is DeliveryState.SENT:
        return HandoverResult(event, ScheduledEventStatus.COMPLETED, accepted.id)
    if accepted.state is DeliveryState.SUPPRESSED:
        return HandoverResult(event, ScheduledEventStatus.FAILED, accepted.id)  # the statement `hand_over` writes why
    return HandoverResult(
        event,
        ScheduledEventStatus.FAILED,
        accepted.id,
        f"{accepted.state}: its delivery had ended when it was handed over",
    )
