"""Scheduled events at the command line: `postroom schedule …`."""

from datetime import datetime
from typing import Annotated
from uuid import UUID

import typer

from postroom.errors import BadInput
from postroom.runtime.terminal import (
    AsJson,
    Cursor,
    Limit,
    actor,
    in_room,
    parse_moment,
    print_page,
    print_record,
    say,
)
from postroom.schedule import scheduled_events as agenda
from postroom.schedule import service
from postroom.schedule.model import EventFilter, ScheduledEventStatus

schedule = typer.Typer(no_args_is_help=True)

EVENT = (
    "id", "kind", "status", "target_utc", "target_local", "timezone", "retry_count", "late_by", "delivery_id",
    "failure_reason",
)  # fmt: skip
_LISTED = ("id", "user_id", *EVENT[1:])
_SHOWN = (*_LISTED, "version", "moved_from", "executed_at", "idempotency_key", "created_at", "updated_at")

Id = Annotated[UUID, typer.Argument(help="Event id.")]


@schedule.command("list")
def list_(  # noqa: PLR0913 - one parameter per option
    *,
    status: Annotated[
        str | None, typer.Option(help="Only events with this status: PENDING, PROCESSING, COMPLETED or FAILED.")
    ] = None,
    kind: Annotated[str | None, typer.Option(help="Only events of this kind, such as birthday.")] = None,
    user: Annotated[UUID | None, typer.Option(help="Only events of this user id.")] = None,
    due_from: Annotated[
        str | None, typer.Option(help="Due at or after this time, such as 2030-01-31T09:00:00Z.")
    ] = None,
    due_before: Annotated[
        str | None, typer.Option(help="Due before this time, such as 2030-01-31T09:00:00Z or +24h.")
    ] = None,
    late: Annotated[
        bool | None,
        typer.Option("--late/--not-late", help="Only events that were handed over late, or only those on time."),
    ] = None,
    soonest: Annotated[bool, typer.Option("--soonest", help="Soonest first instead of latest first.")] = False,
    limit: Limit = 50,
    cursor: Cursor = None,
    as_json: AsJson = False,
) -> None:
    """List past and planned events, latest first."""
    chosen = EventFilter(
        status=_status(status),
        kind=kind.upper() if kind else None,
        user_id=user,
        is_late=late,
        due_from=parse_moment(due_from, "--due-from") if due_from else None,
        due_before=parse_moment(due_before, "--due-before") if due_before else None,
    )
    found, more = in_room(
        lambda room: agenda.list_events(room.pool, chosen, is_soonest_first=soonest, cursor=cursor, limit=limit)
    )
    print_page(found, more, columns=_LISTED, as_json=as_json)


@schedule.command()
def show(event_id: Id, *, as_json: AsJson = False) -> None:
    """Show a scheduled event."""
    print_record(in_room(lambda room: agenda.get_event(room.pool, event_id)), columns=_SHOWN, as_json=as_json)


@schedule.command()
def move(
    event_id: Id,
    at: Annotated[str, typer.Argument(help="Local time of the person, such as 2027-01-31T09:00.")],
    *,
    version: Annotated[int, typer.Option(help="Move the event only if this is still its version.")],
) -> None:
    """Move a planned event to another local time, which later planning keeps."""
    moment = _local(at)
    event = in_room(lambda room: agenda.move_event(room.pool, event_id, at=moment, version=version, actor=actor()))
    say(f"{event.id} is version {event.version}; due {event.target_local:%Y-%m-%d %H:%M:%S} {event.timezone}")


@schedule.command()
def cancel(
    event_id: Id,
    *,
    version: Annotated[int | None, typer.Option(help="Cancel the event only if this is still its version.")] = None,
) -> None:
    """Cancel a planned event and plan the next occurrence."""
    event = in_room(
        lambda room: agenda.cancel_event(
            room.pool, event_id, version=version, actor=actor(), policy=service.policy_of(room.settings)
        )
    )
    say(f"{event.id} cancelled")


def _status(given: str | None) -> ScheduledEventStatus | None:
    with BadInput.naming("status", f"must be one of {', '.join(ScheduledEventStatus)}"):
        return ScheduledEventStatus(given.upper()) if given else None


def _local(given: str) -> datetime:
    with BadInput.naming("at", "must be a local time such as 2027-01-31T09:00"):
        return datetime.fromisoformat(given)
