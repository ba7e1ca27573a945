"""People at the command line: create, show, change, delete, import, list their events; and their occasions."""

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, date, datetime
from io import TextIOWrapper
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, TextIO
from uuid import UUID

import typer

from postroom.db.room import Room
from postroom.errors import BadInput
from postroom.runtime.record import answer
from postroom.runtime.terminal import (
    AsJson,
    Cursor,
    Limit,
    actor,
    existing,
    in_room,
    print_page,
    print_record,
    progressing,
    say,
    say_or_json,
)
from postroom.schedule import scheduled_events as agenda
from postroom.schedule import service
from postroom.schedule.api import UserShape
from postroom.schedule.check import read_date, read_person
from postroom.schedule.event_cli import EVENT
from postroom.schedule.model import Person
from postroom.schedule.people_csv import PersonLine, read_people

BATCH = 500  # people per transaction; an interruption repeats at most these

users = typer.Typer()
occasions = typer.Typer(no_args_is_help=True)
users.add_typer(occasions, name="occasions", help="Anniversaries, reminders and recurring messages.")

Id = Annotated[UUID, typer.Argument(help="User id.")]
FirstName = Annotated[str | None, typer.Option(help="First name.")]
LastName = Annotated[str | None, typer.Option(help="Last name.")]
Born = Annotated[str | None, typer.Option("--born", help="Date of birth, such as 1815-12-10.")]
Zone = Annotated[str | None, typer.Option("--timezone", help="IANA time zone, such as Europe/London.")]
Locale = Annotated[str | None, typer.Option(help="Language of their mail, such as fr or pt-BR; default English.")]
Template = Annotated[str | None, typer.Option(help="Template of their birthday mail; default `birthday`.")]
Email = Annotated[str | None, typer.Option(help="Email address for greetings.")]
Webhook = Annotated[
    str | None, typer.Option(help="Webhook URL for greetings; takes precedence over the email address.")
]

_USER = (
    "id", "first_name", "last_name", "date_of_birth", "timezone", "email", "webhook_url", "locale", "template",
    "version", "created_at",
)  # fmt: skip
_LISTED = ("id", "first_name", "last_name", "date_of_birth", "timezone", "created_at")


@users.command()
def create(  # noqa: PLR0913 - one parameter per option
    *,
    first_name: Annotated[str, typer.Option(help="First name.")],
    last_name: Annotated[str, typer.Option(help="Last name.")],
    born: Annotated[str, typer.Option("--born", help="Date of birth, such as 1815-12-10.")],
    timezone: Annotated[str, typer.Option("--timezone", help="IANA time zone, such as Europe/London.")],
    email: Email = None,
    webhook_url: Webhook = None,
    locale: Locale = None,
    template: Template = None,
    as_json: AsJson = False,
) -> None:
    """Add a person, plan their next birthday greeting, and print their id."""
    given = Person(
        first_name=first_name,
        last_name=last_name,
        date_of_birth=date.min,
        timezone=timezone,
        email=email,
        webhook_url=webhook_url,
        locale=locale,
        template=template,
    )
    person = read_person(given, born, today=datetime.now(UTC).date())
    user = in_room(
        lambda room: service.create_user(room.pool, person, policy=service.policy_of(room.settings), actor=actor())
    )
    say_or_json(str(user.id), answer(UserShape, user, user.person), as_json=as_json)


@users.command()
def delete(user_ids: Annotated[list[UUID], typer.Argument(help="User ids.")]) -> None:
    """Delete people and everything planned for them."""

    async def command(room: Room) -> None:
        for user_id in user_ids:
            await service.delete_user(room.pool, user_id, actor=actor())
            say(f"{user_id} deleted")

    in_room(command)


@users.command()
def events(user_id: Id, *, limit: Limit = 50, cursor: Cursor = None, as_json: AsJson = False) -> None:
    """List the past and planned events of a person, latest first."""
    found, more = in_room(lambda room: agenda.list_user_events(room.pool, user_id, cursor=cursor, limit=limit))
    print_page(found, more, columns=EVENT, as_json=as_json)


@users.command("import")
def import_(
    file: Annotated[Path, typer.Argument(help="CSV with a header; `-` reads standard input.")],
) -> None:
    """Add people from a CSV file; invalid lines are listed, and the exit code is then 1.

    Columns: first_name, last_name, date_of_birth, timezone, and optionally email, webhook_url, locale and template.
    Every line is one person; an unclosed quote invalidates its own line only. The import does not detect duplicates: a
    line that is imported twice becomes two people. Correct the refused lines and import only those.
    """
    existing(file)
    with _opened(file) as text:
        size = file.stat().st_size if file.is_file() else 0  # the size of a pipe is unknown
        added, refused = in_room(lambda room: _import(room, text, size=size))
    for number, problem in sorted(refused):
        sys.stderr.write(f"line {number}: {problem}\n")
    say(f"{added} added, {len(refused)} refused")
    if refused:
        raise typer.Exit(1)


@users.command("list")
def list_(*, limit: Limit = 50, cursor: Cursor = None, as_json: AsJson = False) -> None:
    """List people, newest first."""
    found, more = in_room(lambda room: service.list_users(room.pool, cursor=cursor, limit=limit))
    print_page([answer(UserShape, user, user.person) for user in found], more, columns=_LISTED, as_json=as_json)


@users.command()
def show(user_id: Id, *, as_json: AsJson = False) -> None:
    """Show a person."""
    user = in_room(lambda room: service.get_user(room.pool, user_id))
    print_record(answer(UserShape, user, user.person), columns=_USER, as_json=as_json)


@users.command()
def update(  # noqa: PLR0913 - one parameter per option
    user_id: Id,
    *,
    first_name: FirstName = None,
    last_name: LastName = None,
    born: Born = None,
    timezone: Zone = None,
    email: Annotated[str | None, typer.Option(help="New value; an empty one removes it.")] = None,
    webhook_url: Annotated[str | None, typer.Option(help="New value; an empty one removes it.")] = None,
    locale: Annotated[str | None, typer.Option(help="New value; an empty one removes it.")] = None,
    template: Annotated[str | None, typer.Option(help="New value; an empty one removes it.")] = None,
    version: Annotated[
        int | None, typer.Option(help="Change the person only if this is still the current version.")
    ] = None,
) -> None:
    """Change a person and move their planned greetings accordingly."""
    given = {"first_name": first_name, "last_name": last_name, "timezone": timezone}
    changes: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    if born is not None:
        changes["date_of_birth"] = read_date(born)
    removable = {"email": email, "webhook_url": webhook_url, "locale": locale, "template": template}
    changes |= {name: value or None for name, value in removable.items() if value is not None}
    user, moved = in_room(
        lambda room: service.update_user(
            room.pool, user_id, changes, policy=service.policy_of(room.settings), version=version, actor=actor()
        )
    )
    say(f"{user.id} is version {user.version}; {moved.moved} events moved, {moved.skipped} left alone")


@contextmanager
def _opened(file: Path) -> Iterator[TextIO]:
    """Open the file or standard input. A byte that is not UTF-8 becomes a surrogate, which invalidates its line."""
    if str(file) != "-":
        with file.open(encoding="utf-8-sig", errors="surrogateescape", newline="") as text:
            yield text
        return
    piped = TextIOWrapper(sys.stdin.buffer, encoding="utf-8-sig", errors="surrogateescape", newline="")
    try:
        yield piped
    finally:
        piped.detach()  # otherwise the wrapper would close standard input


async def _import(room: Room, text: Iterable[str], *, size: int) -> tuple[int, list[tuple[int, str]]]:
    """Add people batch by batch, each batch in one transaction."""
    policy, added = service.policy_of(room.settings), 0
    refused: list[tuple[int, str]] = []
    with progressing(text, "importing", size=size) as followed:
        lines = read_people(followed)
        while batch := list(islice(lines, BATCH)):
            refused += [(line.number, line.problem) for line in batch if line.problem is not None]
            good: list[PersonLine] = [line for line in batch if line.person is not None]
            try:
                created, wrong = await service.create_users(
                    room.pool, [line.person for line in good if line.person is not None], policy=policy, actor=actor()
                )
            except BaseException:  # previous batches are committed: print the line to continue from
                sys.stderr.write(f"stopped before line {batch[0].number}: {added} added\n")
                raise
            added += len(created)
            for index, errors in wrong.items():
                refused.append((good[index].number, "; ".join(f"{error.field}: {error.message}" for error in errors)))
    return added, refused


# ── occasions ────────────────────────────────────────────────────────────────────────────────────────────────────────


@occasions.command("add")
def add_occasion(
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
    read = _read_rule(rule)
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
def list_occasions(user_id: Id, *, as_json: AsJson = False) -> None:
    """List the occasions of a person: messages besides the birthday greeting."""
    found = in_room(lambda room: service.list_occasions(room.pool, user_id))
    print_page(found, None, columns=("id", "kind", "rule", "message", "template"), as_json=as_json)


@occasions.command("remove")
def remove_occasion(user_id: Id, occasion_id: Annotated[UUID, typer.Argument(help="Occasion id.")]) -> None:
    """Delete an occasion and its planned events."""
    in_room(lambda room: service.remove_occasion(room.pool, user_id, occasion_id, actor=actor()))
    say(f"{occasion_id} removed")


def _read_rule(rule: str) -> dict[str, Any]:
    import msgspec

    try:
        return msgspec.json.decode(rule, type=dict[str, Any])
    except msgspec.MsgspecError as error:
        raise BadInput.of("rule", f"is not a JSON object: {error}") from error
