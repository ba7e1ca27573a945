"""Commands for dead letters: list, redrive, or mark ambiguous ones as sent."""

from dataclasses import replace
from typing import Annotated

import typer

from postroom.db.room import Room
from postroom.delivery import service
from postroom.delivery.dead_letter_api import DeadLetterShape
from postroom.delivery.filter import DeliveryFilter, StateFilter
from postroom.delivery.mass.cli import run_action
from postroom.delivery.mass.model import MassKind
from postroom.delivery.model import DeadLetter
from postroom.runtime.page import Found
from postroom.runtime.record import answer
from postroom.runtime.terminal import (
    LARGEST_ID,
    AsJson,
    Cursor,
    Limit,
    actor,
    in_room,
    parse_moment,
    print_page,
    say,
)

dead_letters = typer.Typer()

_LISTED = ("delivery_id", "reason", "created_at", "lane", "source", "attempt_count", "recipients", "subject", "detail")

_DEAD = DeliveryFilter(state=StateFilter.DEAD_LETTER)

Reason = Annotated[str | None, typer.Option(help="attempts_exhausted, max_age or ambiguous.")]


@dead_letters.command("list")
def list_(
    context: typer.Context,
    *,
    reason: Reason = None,
    limit: Limit = 50,
    cursor: Cursor = None,
    as_json: AsJson = False,
) -> None:
    """List dead letters, newest first."""

    async def read(room: Room) -> Found[DeadLetter]:
        found, more = await service.list_dead_letters(room.pool, reason=_known(reason), cursor=cursor, limit=limit)
        return await context.obj(room).fill_subjects(found), more

    found, more = in_room(read)
    print_page([answer(DeadLetterShape, letter) for letter in found], more, columns=_LISTED, as_json=as_json)


@dead_letters.command()
def redrive(  # noqa: PLR0913 - one parameter per option
    delivery_ids: Annotated[
        list[int] | None, typer.Argument(min=0, max=LARGEST_ID, help="Only these deliveries.")
    ] = None,
    *,
    reason: Reason = None,
    source: Annotated[str | None, typer.Option(help="Only those from this source.")] = None,
    template: Annotated[str | None, typer.Option(help="Only dead letters of this template.")] = None,
    before: Annotated[str | None, typer.Option(help="Only those given up before this time.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="Redrive all; required without a filter.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only count them.")] = False,
    as_json: AsJson = False,
) -> None:
    """Return dead letters to the queue, with all their attempts, until all are done."""
    chosen = replace(
        _DEAD,
        reason=_known(reason),
        source=source,
        template_id=template,
        finished_before=parse_moment(before, "--before") if before else None,
        ids=tuple(delivery_ids) if delivery_ids else None,
    )
    if chosen == _DEAD and not everything and not dry_run:
        raise typer.BadParameter("give ids or a filter, or --all for every dead letter")
    done = ("returned to the queue", "would return to the queue")
    run_action(MassKind.RETRY, chosen, done, dry_run=dry_run, as_json=as_json)


@dead_letters.command()
def settle(
    delivery_id: Annotated[int, typer.Argument(min=0, max=LARGEST_ID, help="Id of an ambiguous delivery.")],
) -> None:
    """Mark an ambiguous dead letter as sent: it did arrive, and is not sent again."""
    in_room(lambda room: service.settle(room.pool, delivery_id, actor=actor()))
    say(f"{delivery_id} is sent")


def _known(reason: str | None) -> str | None:
    reasons = ("attempts_exhausted", "max_age", "ambiguous")
    if reason is not None and reason not in reasons:
        raise typer.BadParameter(f"the reason must be one of {', '.join(reasons)}")
    return reason
