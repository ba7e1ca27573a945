"""`postroom secrets`: everything that is sealed with the installation's key, after a change of the key."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from postroom.runtime.terminal import actor, in_room, run, say

if TYPE_CHECKING:
    from postroom.db.room import Room
    from postroom.settings import Settings

secrets = typer.Typer(no_args_is_help=True)


@dataclass(frozen=True, slots=True)
class Rotation:
    """The result in one room: the number of sealed secrets by kind, and the last delivery that was accepted before."""

    room: str
    sealed: dict[str, int]
    last_delivery_id: int


@secrets.callback()
def group() -> None:
    """A group although it has one command."""


@secrets.command()
def rotate(
    *,
    rooms: Annotated[
        str | None, typer.Option("--rooms", metavar="PATTERN", help="Rotate in many rooms, such as 'tenant_*'.")
    ] = None,
) -> None:
    """Seal every secret again with POSTROOM_SECRET_KEY or the AWS KMS key, and print the end of the old keys.

    Passwords and keys of senders, secrets of webhooks, second factors of operators. Start all processes with the new
    key first, and with the old one in POSTROOM_OLD_SECRET_KEYS. It can be interrupted and run again.
    """
    from postroom.runtime.terminal import load_settings

    if rooms is None:
        done, settings = in_room(_with_settings)
    else:
        settings = load_settings()
        done = run(_rotate_many(settings, rooms))
    for each in done:
        counts = ", ".join(f"{number} {kind}" for kind, number in each.sealed.items())
        say(f"{each.room}: sealed {counts}")
    if not done:
        say(f"No room matches {rooms!r}.")
    elif (setting := ended_keys(settings, done)) is not None:
        say("\nThe old keys have signed links of mail up to here. Set this in all processes, with the keys in full:\n")
        say(f"POSTROOM_OLD_SECRET_KEYS={setting}")


async def _with_settings(room: "Room") -> "tuple[list[Rotation], Settings]":
    return [await rotate_room(room)], room.settings


async def _rotate_many(settings: "Settings", pattern: str) -> list[Rotation]:
    async with _rooms(settings, pattern) as found:
        return [await rotate_room(room) for room in found]


@asynccontextmanager
async def _rooms(settings: "Settings", pattern: str) -> "AsyncIterator[list[Room]]":
    from postroom.errors import ConflictError
    from postroom.rooms.service import find_rooms, open_servers
    from postroom.rooms.sharing import connections_shared
    from postroom.runtime.secret_key import with_secret_key

    keyed = with_secret_key(settings, making=False)
    async with open_servers(keyed) as servers, connections_shared(servers) as shared:
        found = await find_rooms(servers, pattern)
        if found.failures:
            unreachable = "; ".join(f"{each.server}: {each.reason}" for each in found.failures)
            raise ConflictError(f"Nothing was sealed: {unreachable}. Run the command when all servers respond.")
        yield [shared[each.server].room(each.name) for each in found.rooms]


async def rotate_room(room: "Room") -> Rotation:
    """Seal everything in a room again. Raises `ConfigurationError` for a secret of an unknown key."""
    from postroom.delivery.service import find_last_id
    from postroom.http import second_factor
    from postroom.outbox.webhooks import service as webhooks
    from postroom.runtime.secrets import SecretBox
    from postroom.senders import service as senders
    from postroom.senders.tools import sealer_of

    box = SecretBox(room.settings.sealing_keys)
    sealed = {
        "senders": await senders.rotate_keys(room.pool, sealer_of(room.settings), actor=actor()),
        "webhooks": await webhooks.rotate_keys(room.pool, box, actor=actor()),
        "second factors": await second_factor.rotate_keys(room.pool, box, actor=actor()),
    }
    return Rotation(room.name, sealed, await find_last_id(room.pool))


def ended_keys(settings: "Settings", done: list[Rotation]) -> str | None:
    """The value of POSTROOM_OLD_SECRET_KEYS with an end for each key that has none; None if all have one.

    A key is named by its first characters: the terminal may be recorded.
    """
    if all(each.ends is not None for each in settings.old_secret_keys):
        return None
    now = {each.room: each.last_delivery_id for each in done}
    written = []
    for each in settings.old_secret_keys:
        ends = now if each.ends is None else each.ends
        shown = "".join(f"@{number if len(ends) == 1 else f'{room}:{number}'}" for room, number in ends.items())
        written.append(f"{each.key.hex()[:4]}…{shown}")
    return ",".join(written)
