"""HTTP endpoints of dead letters: list, redrive, settle."""

from enum import StrEnum
from functools import partial
from typing import Annotated

import msgspec

from postroom.delivery import service
from postroom.delivery.contents import Contents
from postroom.delivery.model import DeadLetter, DeadLetterFilter, DeliveryId, DeliveryState
from postroom.delivery.shapes import in_utc
from postroom.runtime.endpoint import Answer, Call, Endpoint
from postroom.runtime.page import Page, PageQuery, page_of
from postroom.runtime.record import Moment, Shape, Text, answer, response

READ = "deliveries:read"
OPERATE = "deliveries:operate"

Id = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]


class Reason(StrEnum):
    """The reason why a delivery was given up."""

    ATTEMPTS_EXHAUSTED = "attempts_exhausted"
    MAX_AGE = "max_age"
    AMBIGUOUS = "ambiguous"


class DeadLetterQuery(PageQuery, frozen=True, kw_only=True):
    """Filter and page of dead letters."""

    reason: Reason | None = None


class RedriveBody(Shape, frozen=True, kw_only=True):
    """Filter of the dead letters to redrive, all without one; with `dry_run` they are only counted."""

    reason: Reason | None = None
    source: Text | None = None
    template: Text | None = None
    created_before: Moment | None = None
    delivery_ids: Annotated[list[Id], msgspec.Meta(max_length=10_000)] | None = None
    dry_run: bool = False


DeadLetterShape = response(DeadLetter, "DeadLetterShape", rename={"template_id": "template"})


class RedriveResult(msgspec.Struct, frozen=True):
    """The number of redriven dead letters, or of those that would be; `skipped` belong to a cancelled campaign."""

    count: int
    skipped: int
    dry_run: bool


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


async def redrive_dead_letters(call: Call) -> Answer:
    body: RedriveBody = call.body
    chosen = DeadLetterFilter(
        reason=body.reason.value if body.reason else None,
        source=body.source,
        template_id=body.template,
        created_before=in_utc("created_before", body.created_before),
        delivery_ids=None if body.delivery_ids is None else tuple(map(DeliveryId, body.delivery_ids)),
    )
    done = await service.redrive(call.room.pool, chosen, actor=call.actor, dry_run=body.dry_run)
    return Answer(RedriveResult(done.count, done.skipped, body.dry_run))


async def settle_dead_letter(call: Call) -> Answer:
    await service.settle(call.room.pool, call.path["delivery_id"], actor=call.actor)
    return Answer(Settled(call.path["delivery_id"], DeliveryState.SENT.value))


_endpoint = partial(Endpoint, tag="dead letters")

ENDPOINTS = [
    _endpoint(
        "GET", "/v1/dead-letters", list_dead_letters, "List deliveries that were given up, newest first.", scope=READ,
        query=DeadLetterQuery, answers={200: page_of(DeadLetterShape)},
    ),
    _endpoint(
        "POST", "/v1/dead-letters/redrive", redrive_dead_letters,
        "Return dead letters to the queue with all their attempts, or count those that would return.", scope=OPERATE,
        body=RedriveBody, answers={200: RedriveResult}, problems=(404,),
    ),
    _endpoint(
        "POST", "/v1/dead-letters/{delivery_id:int}/settle", settle_dead_letter,
        "Mark an ambiguous dead letter as sent: it did arrive, and is not sent again.", scope=OPERATE,
        answers={200: Settled},
    ),
]  # fmt: skip
