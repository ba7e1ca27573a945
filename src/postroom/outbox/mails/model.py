"""What a rule is, and what it makes of an event. Pure."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from postroom.delivery.model import DeliveryRequest, Lane
from postroom.errors import BadInput, FieldError
from postroom.outbox.publisher import SOURCE, Message, find_path
from postroom.post.address import parse_address

_PATH = re.compile(r"[A-Za-z0-9_-]{1,64}(\.[A-Za-z0-9_-]{1,64}){0,9}")


@dataclass(frozen=True, slots=True, kw_only=True)
class MailRule:
    """Which events of a topic become which mail."""

    topic: str
    event_type: str
    template: str
    recipient_path: str
    locale_path: str | None = None
    lane: Lane = Lane.TRANSACTIONAL
    id: int = 0
    created_at: datetime | None = None


def check_rule(rule: MailRule) -> None:
    errors = [
        FieldError(name, "must be a path such as customer.email")
        for name, path in (("recipient_path", rule.recipient_path), ("locale_path", rule.locale_path))
        if path is not None and not _PATH.fullmatch(path)
    ]
    if errors:
        raise BadInput(errors)


def mail_for(rule: MailRule, message: Message) -> DeliveryRequest:
    """The mail that a rule makes of an event; ValueError says why it cannot be."""
    address = find_path(message.data, rule.recipient_path)
    if not isinstance(address, str):
        problem = f"there is no address at {rule.recipient_path} of the event at position {message.position}"
        raise ValueError(problem)  # noqa: TRY004 - the data are wrong, not the program
    locale = find_path(message.data, rule.locale_path) if rule.locale_path else None
    variables: Mapping[str, Any] = message.data if isinstance(message.data, Mapping) else {"data": message.data}
    return DeliveryRequest(
        to=(parse_address(address),),
        template=rule.template,
        variables=variables,
        locale=locale if isinstance(locale, str) else None,
        lane=rule.lane,
        source=SOURCE,
        idempotency_key=f"{message.id}:rule:{rule.id}",
        tags={"topic": rule.topic, "event": message.type},
        custom_data={"message": message.id},
    )
