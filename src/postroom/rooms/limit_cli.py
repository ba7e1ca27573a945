"""`postroom rooms limit`: the limits of a room, and their use. Only the command line changes them.

A key of the room, even one with every scope, cannot: only the operator of the servers sets these limits.
"""

from typing import Annotated

import typer

from postroom.limits.cli import DailyQuota, Expires, FromDomain, Rate, read_limits
from postroom.runtime.terminal import AsJson, actor, print_json, print_record, say


def limit(  # noqa: PLR0913 - one parameter per option
    name: Annotated[str, typer.Argument(help="Name of the room.")],
    *,
    server: Annotated[str | None, typer.Option("--server", help="Name of the server in POSTROOM_SERVERS.")] = None,
    expires: Expires = None,
    rate: Rate = None,
    daily_quota: DailyQuota = None,
    from_domain: FromDomain = None,
    as_json: AsJson = False,
) -> None:
    """Set limits of a room, or show them if no option sets one. An expired room accepts no mail."""
    from postroom.rooms.cli import on_servers
    from postroom.rooms.limiting import limit_room

    changes = read_limits(expires, rate, daily_quota, from_domain)
    limits, uses = on_servers(lambda servers: limit_room(servers, name, changes, server=server, actor=actor()))
    if as_json:
        print_json({**limits.columns, **{f"{use.holder}_today": use.day_used for use in uses}})
        return
    if limits.are_none:
        say(f"The room {name!r} has no limits.")
        return
    print_record(limits)
    for use in uses:
        say(f"{use.day_used} mails {'accepted' if use.holder == 'room' else 'sent'} today")
