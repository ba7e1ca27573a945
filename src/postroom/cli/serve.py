"""`postroom serve`: the HTTP API, alone."""

from typing import TYPE_CHECKING, Annotated

import typer

from postroom.runtime.terminal import load_settings, run, say
from postroom.settings import Settings

if TYPE_CHECKING:
    from postroom.cli.lifetime import Life


def serve(*, migrate: Annotated[bool, typer.Option("--migrate", help="Migrate the room first.")] = False) -> None:
    """Answer the HTTP API on POSTROOM_HTTP_ADDR, until SIGTERM or Ctrl-C."""
    from postroom.cli.lifetime import live

    settings = load_settings()

    async def main(life: "Life") -> None:
        await serve_here(settings, life, migrating=migrate)

    run(live(main))


async def serve_here(settings: Settings, life: "Life", *, migrating: bool) -> None:
    from postroom.app import load_catalog
    from postroom.cli.first_run import with_secret_key
    from postroom.db.room import open_room
    from postroom.http import build_app
    from postroom.runtime import uvicorn_server

    with uvicorn_server.bind(settings.http_addr) as listener:
        async with open_room(with_secret_key(settings, making=False), migrating=migrating) as room:
            app = build_app(room, catalog=load_catalog(settings))
            url = uvicorn_server.url_of(listener)
            life.running()
            await uvicorn_server.serve(
                app,
                listener,
                life.stop,
                grace=settings.shutdown_grace,
                on_ready=lambda: say(f"Postroom answers at {url}"),
            )
