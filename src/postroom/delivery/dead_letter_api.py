"""HTTP endpoints of dead letters: list, settle. A redrive is a mass action: a retry of dead letters."""

from enum import StrEnum
from functools import partial

import msgspec

from postroom.delivery import service
from postroom.delivery.contents import Contents
from postroom.delivery.model import DeadLetter, DeliveryState
from postroom.runtime.endpoint import Answer, Call, Endpoint
from postroom.runtime.page import Page, PageQuery, page_of
from postroom.runtime.record import answer, response

READ = "deliveries:read"
OPERATE = "deliveries:operate"


class Reason(StrEnum):
    """The reason why a delivery was given up."""

    ATTEMPTS_EXHAUSTED = "attempts_exhausted"
    MAX_AGE = "max_age"
    AMBIGUOUS = "ambiguous"


class DeadLetterQuery(PageQuery, frozen=True, kw_only=True):
    """Filter and page of dead letters."""

    reason: Reason | None = None


DeadLetterShape = response(DeadLetter, "DeadLetterShape", rename={"template_id": "template"})


class Settled(msgspec.Struct, frozen=True):
    """An ambiguous delivery that an operator has marked as sent."""

    id: int
    status: str


async def list_dead_letters(call: Call) -> Answer:
    query: DeadLetterQuery = call.query
    reason = query.reason.value if query.reason else None
    found, more = await service.list_dead_letters(call.room.pool, reason=reason, cursor=query.cursor, limit=query.limit)
    found = await call.tool(Contents).fill_subjects(found)
    return Answer(Page([answer(DeadLetterShape, letter) for letter in found], more))


async def settle_dead_letter(call: Call) -> Answer:
    await service.settle(call.room.pool, call.path["delivery_id"], actor=call.actor)
    return Answer(Settled(call.path["delivery_id"], DeliveryState.SENT.value))


_endpoint = partial(Endpoint, tag="dead letters")

ENDPOINTS = [
    _endpoint(
        "GET", "/v1/dead-letters", list_dead_letters, "List deliveries that were given up, newest first.", scope=READ,
        query=DeadLetterQuery, from_replica=True, answers={200: page_of(DeadLetterShape)},
    ),
    _endpoint(
        "POST", "/v1/dead-letters/{delivery_id:int}/settle", settle_dead_letter,
        "Mark an ambiguous dead letter as sent: it did arrive, and is not sent again.", scope=OPERATE,
        answers={200: Settled},
    ),
]  # fmt: skip
