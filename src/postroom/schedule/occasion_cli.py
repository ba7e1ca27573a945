"""Occasions at the command line: `postroom users occasions …`."""

from typing import Annotated, Any
from uuid import UUID

import typer

from postroom.errors import BadInput
from postroom.runtime.terminal import AsJson, actor, in_room, print_page, say
from postroom.schedule import service

occasions = typer.Typer(no_args_is_help=True)

Id = Annotated[UUID, typer.Argument(help="User id.")]


@occasions.command()
def add(
    user_id: Id,
    kind: Annotated[str, typer.Argument(help="Kind: anniversary, reminder or recurring.")],
    *,
    rule: Annotated[
        str,
        typer.Option(
            help='Rule in JSON: {"date": "2020-05-01"}, {"at": "2027-01-31T09:00:00"}, '
            '{"every": "week", "start": "2026-11-16", "weekdays": ["mon"], "at": "08:00:00"}.'
        ),
    ],
    message: Annotated[str, typer.Option(help="Message text; default: the text of the kind.")] = "",
    template: Annotated[
        str | None, typer.Option(help="Mail template; by default the message is subject and text.")
    ] = None,
) -> None:
    """Add an anniversary, a reminder or a recurring message, plan it, and print its id."""
    read = _read(rule)
    occasion = in_room(
        lambda room: service.add_occasion(
            room.pool,
            user_id,
            kind.upper(),
            rule=read,
            message=message,
            template=template,
            policy=service.policy_of(room.settings),
            actor=actor(),
        )
    )
    say(str(occasion.id))


@occasions.command("list")
def list_(user_id: Id, *, as_json: AsJson = False) -> None:
    """List the occasions of a person: messages besides the birthday greeting."""
    found = in_room(lambda room: service.list_occasions(room.pool, user_id))
    print_page(found, None, columns=("id", "kind", "rule", "message", "template"), as_json=as_json)


@occasions.command()
def remove(user_id: Id, occasion_id: Annotated[UUID, typer.Argument(help="Occasion id.")]) -> None:
    """Delete an occasion and its planned events."""
    in_room(lambda room: service.remove_occasion(room.pool, user_id, occasion_id, actor=actor()))
    say(f"{occasion_id} removed")


def _read(rule: str) -> dict[str, Any]:
    import msgspec

    try:
        return msgspec.json.decode(rule, type=dict[str, Any])
    except msgspec.MsgspecError as error:
        raise BadInput.of("rule", f"is not a JSON object: {error}") from error
