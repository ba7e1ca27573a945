"""Commands for mass actions: cancel, retry or resend all deliveries that a filter selects."""

import asyncio
from typing import Annotated, Any

import msgspec
import typer

from postroom.db.room import Room
from postroom.delivery.filter import DeliveryFilter
from postroom.delivery.mass import service
from postroom.delivery.mass.api import action_shape
from postroom.delivery.mass.model import MassAction, MassKind, MassPreview
from postroom.delivery.selection import DeliverySelection, filter_of
from postroom.runtime.terminal import (
    LARGEST_ID,
    AsJson,
    Cursor,
    Limit,
    actor,
    in_room,
    parse_pair,
    print_json,
    print_page,
    print_record,
    say,
)
from postroom.runtime.wrong_field import find_wrong_field

mass_actions = typer.Typer()

HELD_INTERVAL_S = 0.5
"""The interval at which a command looks again at mail that workers hold, or at an action that they continue."""

_LISTED = ("id", "kind", "changed", "skipped", "created_at", "finished_at", "actor", "filter")
_DONE = {
    MassKind.CANCEL: ("cancelled", "would be cancelled"),
    MassKind.RETRY: ("made due", "would be made due"),
    MassKind.RESEND: ("resent", "would be resent"),
}

Where = Annotated[
    list[str] | None,
    typer.Option(help="Filter as name=value, with the names of GET /v1/deliveries; may be repeated."),
]


@mass_actions.command()
def run(
    kind: Annotated[MassKind, typer.Argument(help="Change to make: cancel, retry or resend.")],
    *,
    where: Where = None,
    everything: Annotated[bool, typer.Option("--all", help="Change all; required without a filter.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only count them.")] = False,
    as_json: AsJson = False,
) -> None:
    """Cancel, retry or resend all deliveries that a filter selects, until all are done.

    A cancel ends when nothing that it covers can still leave: mail that a worker holds is sent, or cancelled when it
    returns.
    """
    chosen = _chosen(where or [])
    if chosen == DeliveryFilter() and not everything and not dry_run:
        raise typer.BadParameter("give a filter with --where, or --all for every delivery")
    run_action(kind, chosen, _DONE[kind], dry_run=dry_run, as_json=as_json)


def run_action(kind: MassKind, chosen: DeliveryFilter, done: tuple[str, str], *, dry_run: bool, as_json: bool) -> None:
    """Run a mass action until it is finished, or only count; `done` says what was, and would be, the result."""

    async def command(room: Room) -> MassAction:
        action = await service.start(room.pool, kind, chosen, actor=actor())
        while action.finished_at is None:
            if not await service.run_steps(room.pool, action.id, steps=service.FIRST_STEPS):
                await asyncio.sleep(HELD_INTERVAL_S)
            action = await service.get_mass_action(room.pool, action.id)
        return action

    if dry_run:
        counted = in_room(lambda room: service.preview(room.pool, kind, chosen))
        _print(counted, done[1], as_json=as_json)
    else:
        _print(in_room(command), done[0], as_json=as_json)


def _chosen(pairs: list[str]) -> DeliveryFilter:
    try:
        return filter_of(msgspec.convert(dict(map(parse_pair, pairs)), DeliverySelection, strict=False))
    except msgspec.ValidationError as error:
        field, message = find_wrong_field(str(error), DeliverySelection)
        raise typer.BadParameter(f"--where: {field} {message}") from None


def _print(counted: MassPreview | MassAction, verb: str, *, as_json: bool) -> None:
    if as_json:
        print_json(counted if isinstance(counted, MassPreview) else action_shape(counted))
        return
    is_part = isinstance(counted, MassPreview) and not counted.is_complete
    say(f"{'at least ' if is_part else ''}{counted.changed} {verb}")
    for reason, count in counted.skipped.items():
        say(f"{count} skipped: {reason.replace('_', ' ')}")


@mass_actions.command("list")
def list_(*, limit: Limit = 50, cursor: Cursor = None, as_json: AsJson = False) -> None:
    """List mass actions, newest first."""
    found, more = in_room(lambda room: service.list_mass_actions(room.pool, cursor=cursor, limit=limit))
    print_page([action_shape(each) for each in found], more, columns=_LISTED, as_json=as_json)


@mass_actions.command()
def show(
    action_id: Annotated[int, typer.Argument(min=0, max=LARGEST_ID, help="Id of the mass action.")],
    *,
    as_json: AsJson = False,
) -> None:
    """Show one mass action and its progress."""
    found: Any = action_shape(in_room(lambda room: service.get_mass_action(room.pool, action_id)))
    print_record(found, columns=_LISTED, as_json=as_json)
