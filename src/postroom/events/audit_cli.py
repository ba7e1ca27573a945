"""`postroom audit`: the audit log at the command line."""

from datetime import datetime
from typing import Annotated, Any

import typer

from postroom.events.audit import list_audit
from postroom.runtime.terminal import AsJson, Cursor, Limit, in_room, parse_moment, print_page

audit = typer.Typer()

_LISTED = ("id", "at", "actor", "action", "subject", "before", "after")


Since = Annotated[datetime | None, typer.Option(parser=parse_moment, metavar="TIME", help="From this time on.")]
Before = Annotated[datetime | None, typer.Option(parser=parse_moment, metavar="TIME", help="Before this time.")]


@audit.callback()
def audit_options() -> None:
    """Manual actions: who did what, and when."""


@audit.command("list")
def list_(  # noqa: PLR0913 - one option per filter
    *,
    actor: Annotated[str | None, typer.Option(help="Only actions of this actor, such as cli:ada or key:7:ci.")] = None,
    action: Annotated[
        str | None, typer.Option(help="Only this action, such as delivery.cancel, or this group, such as delivery.")
    ] = None,
    subject: Annotated[str | None, typer.Option(help="Only actions on this object, such as delivery:42.")] = None,
    since: Since = None,
    before: Before = None,
    limit: Limit = 50,
    cursor: Cursor = None,
    as_json: AsJson = False,
) -> None:
    """List manual actions, newest first: who did what to which object, and the values before and after."""
    chosen: dict[str, Any] = {"actor": actor, "action": action, "subject": subject, "cursor": cursor, "limit": limit}
    found = in_room(lambda room: list_audit(room.pool, **chosen, recorded_from=since, recorded_before=before))
    print_page(*found, columns=_LISTED, as_json=as_json)
