"""Scheduled events over HTTP: list them by person or across people, read, move and cancel one."""

from datetime import datetime
from functools import partial
from typing import Annotated, Any, Literal
from uuid import UUID

import msgspec

from postroom.delivery.shapes import in_utc
from postroom.runtime.endpoint import Answer, Call, Endpoint
from postroom.runtime.page import Page, PageQuery, page_of
from postroom.runtime.record import Moment, Shape, answer, response
from postroom.runtime.service_endpoint import serve
from postroom.schedule import scheduled_events as agenda
from postroom.schedule.api import READ, WRITE, policy
from postroom.schedule.model import EventFilter, ScheduledEvent, ScheduledEventStatus

_PATH = "/v1/scheduled-events"
_VERSION = Annotated[int, msgspec.Meta(ge=1, le=2**31 - 1)]


class EventQuery(PageQuery, frozen=True, kw_only=True):
    """Filters, order and page of a list of events. `due_from` and `due_before` limit the target."""

    status: ScheduledEventStatus | None = None
    kind: Annotated[str, msgspec.Meta(max_length=50, description="Kind of event, such as BIRTHDAY.")] | None = None
    user_id: UUID | None = None
    due_from: Moment | None = None
    due_before: Moment | None = None
    late: (
        Annotated[
            bool,
            msgspec.Meta(description="Only events that were handed over late, or only those on time."),
        ]
        | None
    ) = None
    order: Annotated[
        Literal["latest", "soonest"], msgspec.Meta(description="Target that comes first: the latest or the soonest.")
    ] = "latest"


LocalTime = Annotated[
    datetime, msgspec.Meta(tz=False, description="Local time without a zone, such as 2027-01-31T09:00:00.")
]


class EventMove(Shape, frozen=True, kw_only=True):
    """A new local time for a planned event; `version` is the version that was read."""

    at: LocalTime
    version: _VERSION


class EventCancellation(Shape, frozen=True, kw_only=True):
    """With `version`, the event is cancelled only if that is still its version."""

    version: _VERSION | None = None


ScheduledEventShape = response(
    ScheduledEvent,
    "ScheduledEventShape",
    hide=("payload", "late_by", "occasion_id"),
    extra={"late": bool, "target_local": LocalTime},
)


async def list_scheduled_events(call: Call) -> Answer:
    query: EventQuery = call.query
    chosen = EventFilter(
        status=query.status,
        kind=query.kind.upper() if query.kind else None,
        user_id=query.user_id,
        is_late=query.late,
        due_from=in_utc("due_from", query.due_from),
        due_before=in_utc("due_before", query.due_before),
    )
    events, more = await agenda.list_events(
        call.room.pool, chosen, is_soonest_first=query.order == "soonest", cursor=query.cursor, limit=query.limit
    )
    return Answer(Page([_shape(event) for event in events], more))


def _shape(event: ScheduledEvent) -> Any:
    return answer(ScheduledEventShape, event, late=event.late_by is not None)


_endpoint = partial(Endpoint, tag="users")
_serve = partial(serve, tag="users")

ENDPOINTS = [
    _endpoint(
        "GET", _PATH, list_scheduled_events, "List past and planned events, by status, kind, person, time or lateness.",
        scope=READ, query=EventQuery, from_replica=True, answers={200: page_of(ScheduledEventShape)},
    ),
    _serve(
        "GET", _PATH + "/{event_id:uuid}", agenda.get_event, "Read a scheduled event.", scope=READ,
        answers={200: ScheduledEventShape}, name="get_scheduled_event", shape=_shape,
    ),
    _serve(
        "POST", _PATH + "/{event_id:uuid}/move", agenda.move_event,
        "Move a planned event to another local time, which later planning keeps.", scope=WRITE, body=EventMove,
        answers={200: ScheduledEventShape}, problems=(409,), name="move_scheduled_event", shape=_shape,
    ),
    _serve(
        "POST", _PATH + "/{event_id:uuid}/cancel", agenda.cancel_event,
        "Cancel a planned event and plan the next occurrence.", scope=WRITE, body=EventCancellation,
        answers={200: ScheduledEventShape}, problems=(409,), name="cancel_scheduled_event", shape=_shape,
        given={"policy": policy},
    ),
    _serve(
        "GET", "/v1/users/{user_id:uuid}/events", agenda.list_user_events,
        "List the past and planned events of a person, latest first.", scope=READ, query=PageQuery,
        answers={200: page_of(ScheduledEventShape)}, shape=_shape,
    ),
]  # fmt: skip
