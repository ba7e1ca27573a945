"""Operators at the command line: people who sign in to the dashboard."""

from collections.abc import Awaitable, Callable
from typing import Annotated

import typer

from postroom.db.pool import Pool
from postroom.db.room import Room
from postroom.http import operators as service
from postroom.http.model import Operator, Role
from postroom.runtime.terminal import AsJson, Cursor, Limit, actor, in_room, print_page, print_record, say

operators = typer.Typer()

_LISTED = ("id", "email", "role", "origin", "created_at", "last_sign_in_at", "disabled_at")

Email = Annotated[str, typer.Argument(help="Address of the operator.")]
Emails = Annotated[list[str], typer.Argument(help="Addresses of operators.")]


@operators.command()
def add(
    email: Email,
    *,
    role: Annotated[Role, typer.Option(help="Bundle of scopes; docs/reference/roles.md lists them.")],
    as_json: AsJson = False,
) -> None:
    """Add a person, who signs in to the dashboard with a code that is mailed to this address."""
    made = in_room(lambda room: service.add_operator(room.pool, email, role, actor=actor()))
    print_record(made, columns=_LISTED, as_json=as_json)


@operators.command("list")
def list_(*, limit: Limit = 50, cursor: Cursor = None, as_json: AsJson = False) -> None:
    """List operators, newest first."""
    found = in_room(lambda room: service.list_operators(room.pool, cursor=cursor, limit=limit))
    print_page(*found, columns=_LISTED, as_json=as_json)


@operators.command("role")
def change_role(email: Email, role: Annotated[Role, typer.Argument(help="The new role.")]) -> None:
    """Give an operator another role; open sessions have it from their next request on."""

    async def command(room: Room) -> Operator:
        found = await service.find_by_email(room.pool, email)
        return await service.change_role(room.pool, found.id, role, actor=actor())

    say(f"{in_room(command).email} has the role {role}")


@operators.command()
def disable(emails: Emails) -> None:
    """Refuse sign-ins of operators and end their sessions."""
    _for_each(emails, lambda pool, found: service.disable_operator(pool, found.id, actor=actor()), "disabled")


@operators.command()
def enable(emails: Emails) -> None:
    """Let disabled operators sign in again."""
    _for_each(emails, lambda pool, found: service.enable_operator(pool, found.id, actor=actor()), "enabled")


@operators.command()
def remove(emails: Emails) -> None:
    """Remove operators and end their sessions; the audit log keeps their entries."""
    _for_each(emails, lambda pool, found: service.remove_operator(pool, found.id, actor=actor()), "removed")


def _for_each(emails: list[str], change: Callable[[Pool, Operator], Awaitable[Operator]], result: str) -> None:
    async def command(room: Room) -> None:
        for email in emails:
            found = await service.find_by_email(room.pool, email)
            await change(room.pool, found)
            say(f"{found.email} {result}")

    in_room(command)
