"""`postroom work`: render and deliver, in this process or in several supervised ones."""

from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated

import typer

from postroom.errors import PostroomError
from postroom.runtime.terminal import actor, load_settings, run
from postroom.settings import Settings

if TYPE_CHECKING:
    from postroom.cli.lifetime import Lifetime

SUPERVISED_LEAD = timedelta(seconds=1)  # a supervised worker ends so long before its supervisor, which reports it
KILL_LEAD = timedelta(seconds=0.5)  # and is killed so long before


def work(
    *,
    processes: Annotated[int, typer.Option(min=1, help="How many worker processes; one works right here.")] = 1,
    until_empty: Annotated[
        bool, typer.Option("--until-empty", help="Collect account mail, then end when nothing is due.")
    ] = False,
    migrate: Annotated[bool, typer.Option("--migrate", help="Migrate the room first.")] = False,
    rooms: Annotated[
        str | None, typer.Option(help="Work for all rooms that match, such as 'tenant_*', on all POSTROOM_SERVERS.")
    ] = None,
    supervised: Annotated[bool, typer.Option("--supervised", hidden=True)] = False,
) -> None:
    """Render and deliver queued mail, until SIGTERM or Ctrl-C.

    Stopping finishes attempts in flight within POSTROOM_SHUTDOWN_GRACE and releases the rest.
    """
    from postroom.cli.lifetime import live

    settings = load_settings()
    if rooms is not None and (until_empty or migrate):
        raise typer.BadParameter("cannot be used with --until-empty or --migrate.", param_hint="--rooms")

    async def main(life: "Lifetime") -> None:
        if supervised:
            from postroom.runtime.processes import stop_with_parent

            stop_with_parent(life.end)
        if rooms is not None:
            await work_for_rooms(settings, rooms, processes, life)
        elif processes > 1:
            await work_in_processes(settings, processes, life, until_empty=until_empty, migrating=migrate)
        else:
            await work_here(settings, life, until_empty=until_empty, migrating=migrate)

    grace = settings.shutdown_grace
    run(live(main, grace=_earlier(grace, SUPERVISED_LEAD) if supervised else grace))


def _earlier(grace: timedelta, lead: timedelta) -> timedelta:
    """The grace time less a lead, which takes at most a sixth of it for each second."""
    return grace - min(lead, grace / 6 * lead.total_seconds())


async def work_here(settings: Settings, life: "Lifetime", *, until_empty: bool, migrating: bool) -> None:
    """Run the worker in this process."""
    from postroom.app import run_worker
    from postroom.db.room import open_room
    from postroom.mail.publishing import publish_files
    from postroom.runtime.metrics_server import metrics_served
    from postroom.runtime.secret_key import with_secret_key

    async with open_room(with_secret_key(settings, making=False), migrating=migrating) as room:
        await publish_files(room, actor=actor())
        with metrics_served(None if until_empty else settings.metrics_addr):
            life.running()
            await run_worker(room, stop=life.stop, until_empty=until_empty)


async def work_for_rooms(settings: Settings, pattern: str, processes: int, life: "Lifetime") -> None:
    """Run a worker of many rooms in this process, or supervise several."""
    if processes > 1:
        life.running()
        await supervise_workers(processes, life, settings, arguments=("--rooms", pattern))
        return
    from postroom.app import run_fleet
    from postroom.runtime.metrics_server import metrics_served
    from postroom.runtime.secret_key import with_secret_key

    with metrics_served(settings.metrics_addr):
        await run_fleet(with_secret_key(settings, making=False), pattern, stop=life.stop, ready=life.running)


async def work_in_processes(
    settings: Settings, processes: int, life: "Lifetime", *, until_empty: bool, migrating: bool
) -> None:
    """Check once that a worker could start, then keep several running.

    Without a database of one's own, the room stays open here: the embedded server must not stop between two children.
    """
    from postroom.cli.prepare import prepare
    from postroom.db.room import open_room

    async with open_room(settings, migrating=migrating) as room:
        await prepare(room)
        life.running()
        await supervise_workers(processes, life, settings, until_empty=until_empty)


async def supervise_workers(
    processes: int,
    life: "Lifetime",
    settings: Settings,
    *,
    until_empty: bool = False,
    environment: dict[str, str] | None = None,
    arguments: Sequence[str] = (),
) -> None:
    """Keep worker processes running until `life.stop`; raises if one had to be killed."""
    from postroom.runtime.processes import Supervisor, SupervisorOptions, own_command

    # A worker ends itself within its grace time; one that does not even do that is killed a little later.
    options = SupervisorOptions(grace=_earlier(settings.shutdown_grace, KILL_LEAD), until_done=until_empty)
    command = own_command("work", "--supervised", *(["--until-empty"] if until_empty else []), *arguments)
    if not await Supervisor(command, processes, options=options, environment=environment).run(life.stop):
        raise PostroomError("A worker did not stop within POSTROOM_SHUTDOWN_GRACE and was killed.")
