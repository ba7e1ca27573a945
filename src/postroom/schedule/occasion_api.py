"""Occasions over HTTP: messages besides the birthday greeting."""

from functools import partial
from typing import Annotated, Any

import msgspec

from postroom.runtime.endpoint import Answer, Call, Endpoint
from postroom.runtime.record import Shape, answer, many, response
from postroom.runtime.service_endpoint import serve
from postroom.schedule import service
from postroom.schedule.api import READ, WRITE, policy
from postroom.schedule.model import Occasion

_PATH = "/v1/users/{user_id:uuid}/occasions"
_RULE = Annotated[
    dict[str, Any],
    msgspec.Meta(
        description="ANNIVERSARY: date, days_before. REMINDER: at, a local time. "
        "RECURRING: every (day, week or month), start, until, at, weekdays, day."
    ),
]


class NewOccasion(Shape, frozen=True, kw_only=True):
    """An anniversary, a reminder or a recurring message, at the person's local time."""

    kind: Annotated[str, msgspec.Meta(max_length=50, description="ANNIVERSARY, REMINDER or RECURRING.")]
    rule: _RULE
    message: Annotated[str, msgspec.Meta(max_length=service.LONGEST_MESSAGE)] = ""
    template: Annotated[
        str | None, msgspec.Meta(description="Mail template; by default the message is subject and text.")
    ] = None


OccasionShape = response(Occasion, "OccasionShape", hide=("user_id", "created_at"))


class OccasionPage(msgspec.Struct, frozen=True):
    """All occasions of a person."""

    items: many(OccasionShape)  # type: ignore[valid-type]  # made by `response`


async def list_occasions(call: Call) -> Answer:
    found = await service.list_occasions(call.room.pool, call.path["user_id"])
    return Answer(OccasionPage([answer(OccasionShape, occasion) for occasion in found]))


_endpoint = partial(Endpoint, tag="users")
_serve = partial(serve, tag="users")

ENDPOINTS = [
    _endpoint(
        "GET", _PATH, list_occasions, "List the occasions of a person: messages besides the birthday greeting.",
        scope=READ, answers={200: OccasionPage},
    ),
    _serve(
        "POST", _PATH, service.add_occasion, "Add an anniversary, a reminder or a recurring message, and plan it.",
        scope=WRITE, body=NewOccasion, answers={201: OccasionShape}, given={"policy": policy},
    ),
    _serve(
        "DELETE", _PATH + "/{occasion_id:uuid}", service.remove_occasion, "Delete an occasion and its planned events.",
        scope=WRITE, answers={204: None},
    ),
]  # fmt: skip
