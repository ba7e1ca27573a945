"""The filter of deliveries as JSON or query parameters, shared by listings and mass actions."""

from typing import Annotated, Any

import msgspec

from postroom.delivery.check import parse_tag
from postroom.delivery.filter import DeliveryFilter, StateFilter
from postroom.delivery.model import Lane
from postroom.delivery.shapes import in_utc
from postroom.errors import BadInput
from postroom.runtime.record import Moment, Shape, Text

Id = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]


class DeliverySelection(Shape, frozen=True, kw_only=True):
    """A filter of deliveries; absent fields select all."""

    status: StateFilter | None = None
    lane: Lane | None = None
    recipient: Text | None = None
    recipient_contains: Annotated[Text, msgspec.Meta(description="A part of an address, case-insensitive.")] | None = (
        None
    )
    recipient_domain: Text | None = None
    template: Text | None = None
    source: Text | None = None
    idempotency_key: Text | None = None
    message_id: Text | None = None
    tag: Annotated[Text, msgspec.Meta(description="A tag as `name=value`.")] | None = None
    campaign_id: Id | None = None
    campaign: Annotated[Text, msgspec.Meta(description="The `campaign` in its custom data.")] | None = None
    sender_account_id: Id | None = None
    created_from: Moment | None = None
    created_before: Moment | None = None
    finished_before: Moment | None = None
    reason: Annotated[Text, msgspec.Meta(description="The reason of its last attempt or its end.")] | None = None
    custom_data: Annotated[Text, msgspec.Meta(description="JSON object contained in its custom data.")] | None = None


def filter_of(selection: DeliverySelection) -> DeliveryFilter:
    """The filter of a selection. Raises `BadInput`."""
    return DeliveryFilter(
        state=selection.status,
        lane=selection.lane,
        recipient=selection.recipient,
        recipient_contains=selection.recipient_contains,
        recipient_domain=selection.recipient_domain,
        template_id=selection.template,
        source=selection.source,
        idempotency_key=selection.idempotency_key,
        message_id=selection.message_id,
        campaign_id=selection.campaign_id,
        sender_account_id=selection.sender_account_id,
        tags=parse_tag(selection.tag),
        custom_data=_custom_data(selection),
        created_from=in_utc("created_from", selection.created_from),
        created_before=in_utc("created_before", selection.created_before),
        finished_before=in_utc("finished_before", selection.finished_before),
        reason=selection.reason,
    )


def _custom_data(selection: DeliverySelection) -> dict[str, Any] | None:
    named = None if selection.campaign is None else {"campaign": selection.campaign}  # of X-Postroom-Campaign
    if selection.custom_data is None:
        return named
    decoded = _decode_custom_data(selection.custom_data)
    if named is not None and "campaign" in decoded:
        raise BadInput.of("campaign", "is in custom_data already")
    return {**decoded, **(named or {})}


def _decode_custom_data(text: str) -> dict[str, Any]:
    try:
        decoded: dict[str, Any] = msgspec.json.decode(text, type=dict[str, Any])
        msgspec.json.encode(decoded)
    except (msgspec.MsgspecError, ValueError, OverflowError, RecursionError):
        raise BadInput.of("custom_data", "is not a JSON object") from None
    if "\\u0000" in text:
        raise BadInput.of("custom_data", "contains a NUL")
    return decoded
