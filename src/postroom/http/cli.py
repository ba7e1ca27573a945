"""API keys at the command line."""

from typing import Annotated

import typer

from postroom.db.room import Room
from postroom.dropins.ses.cli import ses_credentials
from postroom.http import service
from postroom.http.model import ALL, SCOPES
from postroom.limits.cli import DailyQuota, Expires, FromDomain, Rate, read_limits
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
keys.command("ses-credentials")(ses_credentials)

_LISTED = ("id", "name", "prefix", "scopes", "created_at", "last_used_at", "expires_at", "revoked_at")
_SCOPES = ", ".join((*SCOPES, f"'{ALL}' for all"))


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
def list_(*, limit: Limit = 50, cursor: Cursor = None, as_json: AsJson = False) -> None:
    """List API keys, newest first, without the keys themselves, which are not stored."""
    found = in_room(lambda room: service.list_keys(room.pool, cursor=cursor, limit=limit))
    print_page(*found, columns=_LISTED, as_json=as_json)


@keys.command()
def revoke(key_ids: Annotated[list[int], typer.Argument(min=0, max=LARGEST_ID, help="Ids of keys.")]) -> None:
    """Revoke keys permanently; running servers reject them within seconds."""

    async def command(room: Room) -> None:
        for key_id in key_ids:
            row = await service.revoke_key(room.pool, key_id, actor=actor())
            say(f"{key_id} ({row.name}) revoked")

    in_room(command)
