"""Mail rules, and the mails they create for events. Pure."""

import re
from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any

from msgspec import Meta

from postroom.delivery.model import DeliveryRequest, Lane
from postroom.errors import BadInput, FieldError
from postroom.outbox.model import NAME
from postroom.outbox.publisher import SOURCE, Message, find_path
from postroom.post.address import parse_address
from postroom.runtime.record import Shape

_PATH = re.compile(r"[A-Za-z0-9_-]{1,64}(\.[A-Za-z0-9_-]{1,64}){0,9}")


_Path = Annotated[str, Meta(max_length=200, pattern=r"^[^\x00]*$")]


class NewRule(Shape, frozen=True, kw_only=True):
    """Send a mail for each event of this type in this topic, to the address at a path in its data: customer.email."""

    topic: Annotated[str, Meta(pattern=NAME)]
    event_type: Annotated[str, Meta(min_length=1, max_length=64, pattern=r"^[^\x00]*$")]
    template: Annotated[str, Meta(pattern=r"^[a-z0-9][a-z0-9._-]{0,99}$")]
    recipient_path: _Path
    locale_path: _Path | None = None
    lane: Lane = Lane.TRANSACTIONAL


class MailRule(NewRule, frozen=True, kw_only=True):
    """A stored rule: events of one type in a topic become mails."""

    id: int = 0
    created_at: datetime | None = None


def check_rule(rule: NewRule) -> None:
    errors = [
        FieldError(name, "must be a path such as customer.email")
        for name, path in (("recipient_path", rule.recipient_path), ("locale_path", rule.locale_path))
        if path is not None and not _PATH.fullmatch(path)
    ]
    if errors:
        raise BadInput(errors)


def mail_for(rule: MailRule, message: Message) -> DeliveryRequest:
    """The mail that a rule creates for an event; raises ValueError with the reason if it cannot."""
    address = find_path(message.data, rule.recipient_path)
    if not isinstance(address, str):
        problem = f"the event at position {message.position} has no address at {rule.recipient_path}"
        raise ValueError(problem)  # noqa: TRY004 - the data are invalid, not an argument of the wrong type
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
