"""`postroom up`: the whole of Postroom by one command, for development, demonstrations and small installations.

The address is taken first, so that a second `up` changes nothing. Then, in order: the database answers, the room is
migrated, templates parse and the way out makes sense, keys exist, and only now the API listens and the workers begin.
Stopping goes backwards, and the embedded server ends last.
"""

import asyncio
import os
import shlex
import sys
from collections.abc import Callable, Coroutine
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from postroom.runtime.terminal import actor, load_settings, own_command, run, say
from postroom.settings import Settings

if TYPE_CHECKING:
    from postroom.cli.lifetime import Lifetime
    from postroom.cli.listeners import BoundSockets
    from postroom.db.pool import Pool
    from postroom.db.room import Room

_API_KEY_FILE = "api-key"
_EXAMPLE = '{"to":["you@example.org"],"subject":"Hello","text":"It works."}'


def up(
    *,
    workers: Annotated[
        int, typer.Option(min=0, help="Number of worker processes; 0 runs the worker in this process.")
    ] = 0,
) -> None:
    """Start everything: database (embedded unless POSTROOM_DATABASE_URL is set), API and workers. Ctrl-C stops."""
    from postroom.cli.lifetime import live

    settings = load_settings()

    async def main(life: "Lifetime") -> None:
        await start_everything(settings, life, workers=workers)

    run(live(main, grace=settings.shutdown_grace))


async def start_everything(settings: Settings, life: "Lifetime", *, workers: int) -> None:
    from postroom.cli.listeners import take_doors
    from postroom.cli.prepare import prepare
    from postroom.db.room import open_room
    from postroom.rooms.lifecycle import settle_room
    from postroom.runtime.secret_key import with_secret_key

    with take_doors(settings) as doors:
        settings = with_secret_key(with_loopback_webhooks(settings), making=True)
        async with open_room(settings, migrating=True) as room:
            await settle_room(room.direct_url, settings, actor=actor())
            await prepare(room)
            key_file, made = await _admin_key(room.pool, settings.data_dir.absolute() / _API_KEY_FILE)
            link, database = await _sign_in_link(room, doors), await _describe_database(room)

            def ready() -> None:
                say(banner(room, doors, database=database, key_file=key_file, made=made, link=link))

            life.running()
            work = _worker(room, life, workers=workers)
            await _run(room, doors, life=life, work=work, ready=ready)


async def _admin_key(pool: "Pool", path: Path) -> tuple[Path | None, str | None]:
    """The file that holds the administrator's key, if it does, and the key itself if it was made just now."""
    from postroom.http.service import ensure_admin_key
    from postroom.runtime.secret_key import write_private

    made, row = await ensure_admin_key(pool, actor=actor())
    if made is not None:
        write_private(path, made)
        return path, made
    return (path if _holds(path, row.prefix) else None), None


def _holds(path: Path, prefix: str) -> bool:
    """True if the file's key is the one whose first characters the room knows, not one of another room."""
    from postroom.runtime.secret_key import read_private

    return path.exists() and read_private(path).startswith(prefix)


def with_loopback_webhooks(settings: Settings) -> Settings:
    """Let a developer receive webhooks on the same machine: while mail is captured and the API is on loopback only."""
    from postroom.transports.smtp.relay import is_loopback

    if settings.webhook_allow_loopback is not None:
        return settings
    is_local = settings.transport == "capture" and is_loopback(settings.http_addr[0])
    return replace(settings, webhook_allow_loopback=is_local)


async def _sign_in_link(room: "Room", doors: "BoundSockets") -> str | None:
    """A link that signs in with the administrator's key.

    None if the server does not listen on loopback, and without a terminal: a journal or a log keeps what it is given.
    """
    from postroom.dashboard.links import make_link
    from postroom.http.service import get_admin_key
    from postroom.runtime.peers import LOOPBACK, is_within

    if not sys.stdout.isatty() or not is_within(doors.http.getsockname()[0], LOOPBACK):
        return None
    return await make_link(room, await get_admin_key(room.pool), url=doors.url, actor=actor())


def _worker(room: "Room", life: "Lifetime", *, workers: int) -> Callable[[], Coroutine[Any, Any, None]]:
    """The work, in this process or in supervised ones with the same secret key."""

    async def work() -> None:
        if workers == 0:
            from postroom.app import run_worker

            await run_worker(room, stop=life.stop)
            return
        from postroom.cli.work import supervise_workers

        await supervise_workers(workers, life, room.settings, environment=worker_environment(room.settings))

    return work


def worker_environment(settings: Settings) -> dict[str, str]:
    """The environment of worker processes: this one's, and the settings that `up` has chosen."""
    secret = settings.secret_key
    return {
        **os.environ,
        **({"POSTROOM_SECRET_KEY": secret.hex()} if secret else {}),
        "POSTROOM_WEBHOOK_ALLOW_LOOPBACK": "1" if settings.webhook_allow_loopback else "0",
    }


async def _run(
    room: "Room",
    doors: "BoundSockets",
    *,
    life: "Lifetime",
    work: Callable[[], Coroutine[Any, Any, None]],
    ready: Callable[[], None],
) -> None:
    """The doors and the workers side by side; if one fails, the other is not left alone."""
    from postroom.cli.listeners import keep_doors

    async with asyncio.TaskGroup() as together:
        together.create_task(keep_doors(room, doors, stop=life.stop, on_ready=ready), name="doors")
        together.create_task(work(), name="work")


async def _describe_database(room: "Room") -> str:
    """The version of PostgreSQL, and for the embedded server the folder of its programs."""
    from postroom.embedded.binaries import find_binaries

    async with room.pool.acquire() as connection:
        version = connection.get_server_version()
    shown = f"PostgreSQL {version.major}.{version.minor}"
    if room.settings.database_url is not None:
        return f"your {shown}"
    binaries = await asyncio.to_thread(find_binaries, version.major)
    return f"the embedded {shown} ({binaries.bin_dir})"


def banner(
    room: "Room",
    doors: "BoundSockets",
    *,
    database: str,
    key_file: Path | None,
    made: str | None,
    link: str | None,
) -> str:
    """The text printed after the start: addresses, sign-in link, API key and a first request."""
    command, url = own_command(), doors.url
    lines = [
        "",
        "  Postroom is up.",
        "",
        f"  Dashboard  {url}/",
    ]
    if link is None:
        lines.append(f"  Sign in    `{command} sign-in-link` prints a link that works once, on this machine")
    else:
        lines.append(f"  Sign in    {link}")
        lines.append(f"             (works once, for 10 minutes; `{command} sign-in-link` prints another)")
    lines.append(f"  API        {url}/v1, described at {url}/openapi.json")
    if doors.smtp_address is not None:
        password = "any password" if room.settings.smtp_any_login else "the API key as password"
        lines.append(f"  SMTP       {doors.smtp_address}, any user name, {password}")
    if room.settings.transport == "capture":
        lines.append(f"  Inbox      {url}/inbox, or `{command} inbox list`: all mail is captured, none leaves,")
        lines.append("             also not through sender accounts, until you set POSTROOM_TRANSPORT")
        lines.append(f"  Demo       `{command} demo` in another terminal: a story of a minute, for the dashboard")
    lines.append(f"  Database   `{command} psql`: {database}, room {room.name!r}")
    if made is not None:
        # The key itself goes to a terminal only, like the link.
        shown = f"{made}  (shown this once; kept in {key_file})" if sys.stdout.isatty() else f"kept in {key_file}"
        lines.append(f"  API key    {shown}")
    lines += ["", "  Send a first mail:", "", f"  {curl_line(url, key_file)}", "", "  Ctrl-C stops.", ""]
    return "\n".join(lines)


def curl_line(url: str, key_file: Path | None) -> str:
    """A command to paste. The key is read from its file, so that it does not end up in a shell's history."""
    if key_file is None:
        bearer = '"Authorization: Bearer $KEY"'
        note = "  # KEY=… from `postroom keys create me --scope '*'`"
    else:
        bearer, note = f'"Authorization: Bearer $(cat {shlex.quote(str(key_file))})"', ""
    return f"curl -sS {url}/v1/deliveries -H {bearer} -H 'Content-Type: application/json' -d '{_EXAMPLE}'{note}"
