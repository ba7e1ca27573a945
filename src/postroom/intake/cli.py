"""The command line of malformed commands: list, inspect, correct and resubmit, dismiss."""

import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from postroom.db.room import Room
from postroom.intake import service
from postroom.intake.model import MalformedFilter, MalformedSummary
from postroom.runtime.terminal import (
    AsJson,
    Cursor,
    Limit,
    actor,
    existing,
    in_room,
    parse_pair,
    print_json,
    print_page,
    print_record,
    printable,
    say,
    say_or_json,
)

malformed = typer.Typer()

_LISTED = ("id", "recorded_at", "source", "reason", "detail")
_ENDED = ("resubmitted_at", "delivery_id", "dismissed_at")

Id = Annotated[int, typer.Argument(help="The id of a malformed command.")]


@malformed.command("list")
def list_(
    *,
    reason: Annotated[str | None, typer.Option(help="bad_field, bad_payload, idempotency_conflict…")] = None,
    source: Annotated[str | None, typer.Option(help="Only commands from this source.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="Include resubmitted and dismissed commands.")] = False,
    limit: Limit = 50,
    cursor: Cursor = None,
    as_json: AsJson = False,
) -> None:
    """List commands that could not be accepted, newest first."""
    no = None if everything else False
    chosen = MalformedFilter(reason=reason, source=source, resubmitted=no, dismissed=no)

    async def look(room: Room) -> "tuple[list[MalformedSummary], str | None, int]":
        found, more = await service.list_malformed_commands(room.pool, chosen, cursor=cursor, limit=limit)
        return found, more, await service.count_malformed_commands(room.pool)

    found, more, waiting = in_room(look)
    if as_json:
        print_json({"items": found, "next_cursor": more, "waiting": waiting})
    else:
        print_page(found, more, columns=(*_LISTED, *_ENDED) if everything else _LISTED, as_json=False)
        say(f"{waiting}{' or more' if waiting == service.COUNT_LIMIT else ''} waiting")


@malformed.command()
def show(
    command_id: Id,
    *,
    raw: Annotated[bool, typer.Option("--raw", help="Print only the received bytes.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show a malformed command: why it was rejected, and its fields."""
    command = in_room(lambda room: service.get_malformed_command(room.pool, command_id))
    if raw:
        sys.stdout.buffer.write(command.raw)
    elif as_json:
        print_json({**asdict(command.summary), "raw": command.raw})
    else:
        print_record(command.summary, columns=(*_LISTED, "entry", "size", *_ENDED))
        say("\n" + printable(command.raw.decode("utf-8", "backslashreplace")))


@malformed.command()
def resubmit(
    command_id: Id,
    *,
    payload: Annotated[Path | None, typer.Option(help="File with the new payload; `-` reads standard input.")] = None,
    change: Annotated[
        list[str] | None, typer.Option("--set", help="Field to change, name=value; `name=` removes it. Repeatable.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Correct and accept a malformed command, and print the id of its delivery."""
    changes: dict[str, Any] = {name: value or None for name, value in map(parse_pair, change or [])}
    if payload is not None:
        changes["payload_json"] = _read_payload(payload)
    accepted = in_room(
        lambda room: service.resubmit(
            room.pool,
            command_id,
            actor=actor(),
            changes=changes,
            idempotency_ttl=room.settings.idempotency_ttl,
        )
    )
    shape = {"id": command_id, "delivery_id": accepted.id, "replayed": accepted.replayed}
    say_or_json(str(accepted.id), shape, as_json=as_json)


def _read_payload(path: Path) -> str:
    existing(path)
    try:
        return (sys.stdin.buffer.read() if str(path) == "-" else path.read_bytes()).decode()
    except OSError as error:
        raise typer.BadParameter(f"the payload cannot be read: {error.strerror}", param_hint="--payload") from None
    except UnicodeDecodeError:
        raise typer.BadParameter("the payload is not UTF-8", param_hint="--payload") from None


@malformed.command()
def dismiss(
    command_ids: Annotated[list[int], typer.Argument(help="Ids of malformed commands.")],
) -> None:
    """Dismiss malformed commands: they are kept, but no longer counted as waiting."""
    dismissed = in_room(lambda room: service.dismiss(room.pool, command_ids, actor=actor()))
    say(f"{len(dismissed)} dismissed")
