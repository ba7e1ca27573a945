"""`postroom serve`: the front doors without the work: HTTP API, dashboard, SMTP submission."""

from typing import TYPE_CHECKING, Annotated

import typer

from postroom.runtime.terminal import actor, load_settings, run, say
from postroom.settings import Settings

if TYPE_CHECKING:
    from postroom.cli.lifetime import Lifetime


NO_KEY = "There is no API key yet. Create one with: postroom keys create app --scope '*'\n"


def serve(
    *,
    rooms: Annotated[
        str | None,
        typer.Option("--rooms", help="Serve HTTP and SMTP for all rooms that match, such as 'tenant_*'."),
    ] = None,
    migrate: Annotated[bool, typer.Option("--migrate", help="Migrate the room first.")] = False,
) -> None:
    """Answer on POSTROOM_HTTP_ADDR and POSTROOM_SMTP_ADDR, until SIGTERM or Ctrl-C."""
    from postroom.cli.lifetime import live

    settings = load_settings()

    async def main(life: "Lifetime") -> None:
        if rooms is None:
            await serve_here(settings, life, migrating=migrate)
        else:
            from postroom.cli.serve_rooms import serve_rooms

            await serve_rooms(settings, rooms, life)

    if rooms is not None and migrate:
        raise typer.BadParameter("--migrate is for one room; run `postroom rooms migrate` first")
    run(live(main, grace=settings.shutdown_grace))


async def serve_here(settings: Settings, life: "Lifetime", *, migrating: bool) -> None:
    from postroom.cli.listeners import keep_doors, take_doors
    from postroom.db.room import open_room
    from postroom.http.service import list_keys
    from postroom.mail.publishing import publish_files
    from postroom.runtime.secret_key import with_secret_key

    with take_doors(settings) as doors:
        async with open_room(with_secret_key(settings, making=False), migrating=migrating) as room:
            await publish_files(room, actor=actor())
            life.running()
            hint = "" if (await list_keys(room.pool, limit=1))[0] else NO_KEY

            await keep_doors(
                room, doors, stop=life.stop, on_ready=lambda: say(f"{hint}Postroom answers at {doors.url}")
            )
