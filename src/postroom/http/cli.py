"""API keys, and operators, who are the people that sign in to the dashboard, at the command line."""

from collections.abc import Awaitable, Callable
from typing import Annotated

import typer

from postroom.db.room import Room
from postroom.dropins.ses.cli import ses_credentials
from postroom.http import operators as people
from postroom.http import service
from postroom.http.model import ALL, SCOPES, OpenSession, Operator, Role
from postroom.http.notices import notifier
from postroom.http.second_factor import remove_second_factor
from postroom.http.sessions import list_operator_sessions
from postroom.limits.cli import DailyQuota, Expires, FromDomain, Rate, read_limits
from postroom.runtime.page import Found
from postroom.runtime.terminal import (
    LARGEST_ID,
    AsJson,
    Cursor,
    Limit,
    actor,
    in_room,
    print_page,
    print_record,
    say,
    say_or_json,
)

keys = typer.Typer()
operators = typer.Typer()
keys.command("ses-credentials")(ses_credentials)

_KEYS = ("id", "name", "prefix", "scopes", "created_at", "last_used_at", "expires_at", "revoked_at")
_OPERATORS = ("id", "email", "role", "origin", "created_at", "last_sign_in_at", "second_factor_since", "disabled_at")
_SESSIONS = ("began_at", "seen_at", "method", "client", "browser")
_SCOPES = ", ".join((*SCOPES, f"'{ALL}' for all"))

Email = Annotated[str, typer.Argument(help="Address of the operator.")]
Emails = Annotated[list[str], typer.Argument(help="Addresses of operators.")]


@keys.command()
def create(  # noqa: PLR0913 - one parameter per option
    name: Annotated[str, typer.Argument(help="Name of the key; becomes the source of its deliveries.")],
    *,
    scope: Annotated[list[str], typer.Option(help=f"Scope of the key; repeatable: {_SCOPES}.")],
    expires: Expires = None,
    rate: Rate = None,
    daily_quota: DailyQuota = None,
    from_domain: FromDomain = None,
    as_json: AsJson = False,
) -> None:
    """Create an API key and print it once."""
    limits = read_limits(expires, rate, daily_quota, from_domain)
    key, row = in_room(lambda room: service.create_key(room.pool, name, scopes=scope, actor=actor(), limits=limits))
    shape = {"id": row.id, "name": row.name, "scopes": row.scopes, **row.limits.columns, "key": key}
    say_or_json(key, shape, as_json=as_json)


@keys.command()
def change(
    key_id: Annotated[int, typer.Argument(min=0, max=LARGEST_ID, help="Id of the key.")],
    *,
    expires: Expires = None,
    rate: Rate = None,
    daily_quota: DailyQuota = None,
    from_domain: FromDomain = None,
    as_json: AsJson = False,
) -> None:
    """Change the limits of an API key; running servers apply them within seconds."""
    changes = read_limits(expires, rate, daily_quota, from_domain)
    changed = in_room(lambda room: service.change_key(room.pool, key_id, changes, actor=actor()))
    print_record(changed, as_json=as_json)


@keys.command("list")
def list_keys(*, limit: Limit = 50, cursor: Cursor = None, as_json: AsJson = False) -> None:
    """List API keys, newest first, without the keys themselves, which are not stored."""
    found = in_room(lambda room: service.list_keys(room.pool, cursor=cursor, limit=limit))
    print_page(*found, columns=_KEYS, as_json=as_json)


@keys.command()
def revoke(wanted: Annotated[list[str], typer.Argument(metavar="KEYS...", help="Ids or names of keys.")]) -> None:
    """Revoke keys permanently; running servers reject them within seconds."""

    async def command(room: Room) -> None:
        for key in wanted:
            row = await service.revoke_key(room.pool, await service.find_key_id(room.pool, key), actor=actor())
            say(f"{row.id} ({row.name}) revoked")

    in_room(command)


@operators.command()
def add(
    email: Email,
    *,
    role: Annotated[Role, typer.Option(help="Bundle of scopes; docs/reference/roles.md lists them.")],
    as_json: AsJson = False,
) -> None:
    """Add a person, who signs in to the dashboard with a code that is mailed to this address."""
    made = in_room(lambda room: people.add_operator(room.pool, email, role, actor=actor()))
    print_record(made, columns=_OPERATORS, as_json=as_json)


@operators.command("list")
def list_operators(*, limit: Limit = 50, cursor: Cursor = None, as_json: AsJson = False) -> None:
    """List operators, newest first."""
    found = in_room(lambda room: people.list_operators(room.pool, cursor=cursor, limit=limit))
    print_page(*found, columns=_OPERATORS, as_json=as_json)


@operators.command("role")
def change_role(email: Email, role: Annotated[Role, typer.Argument(help="The new role.")]) -> None:
    """Give an operator another role; open sessions have it from their next request on."""

    async def command(room: Room) -> Operator:
        found = await people.find_by_email(room.pool, email)
        return await people.change_role(room.pool, found.id, role, actor=actor())

    say(f"{in_room(command).email} has the role {role}")


@operators.command()
def disable(emails: Emails) -> None:
    """Refuse sign-ins of operators and end their sessions."""
    _for_each(emails, lambda room, found: people.disable_operator(room.pool, found.id, actor=actor()), "disabled")


@operators.command()
def enable(emails: Emails) -> None:
    """Let disabled operators sign in again."""
    _for_each(emails, lambda room, found: people.enable_operator(room.pool, found.id, actor=actor()), "enabled")


@operators.command()
def sessions(email: Email, *, as_json: AsJson = False) -> None:
    """List the open sessions of an operator, newest first."""

    async def command(room: Room) -> Found[OpenSession]:
        return await list_operator_sessions(room.pool, (await people.find_by_email(room.pool, email)).id)

    print_page(*in_room(command), columns=_SESSIONS, as_json=as_json)


@operators.command("end-sessions")
def end_sessions(emails: Emails) -> None:
    """End all sessions of operators, who can sign in again."""
    _for_each(emails, lambda room, found: people.end_sessions(room.pool, found.id, actor=actor()), "signed out")


@operators.command("remove-second-factor")
def drop_second_factor(emails: Emails) -> None:
    """Remove the second factor of operators, for example after the loss of the phone; they get a mail about it."""

    def change(room: Room, found: Operator) -> Awaitable[Operator]:
        notify = notifier(room.settings, client="command line", agent="")
        return remove_second_factor(room.pool, found.id, actor=actor(), notify=notify)

    _for_each(emails, change, "signs in without a second factor")


@operators.command()
def remove(emails: Emails) -> None:
    """Remove operators and end their sessions; the audit log keeps their entries."""
    _for_each(emails, lambda room, found: people.remove_operator(room.pool, found.id, actor=actor()), "removed")


def _for_each(emails: list[str], change: Callable[[Room, Operator], Awaitable[Operator]], result: str) -> None:
    async def command(room: Room) -> None:
        for email in emails:
            found = await people.find_by_email(room.pool, email)
            await change(room, found)
            say(f"{found.email} {result}")

    in_room(command)
