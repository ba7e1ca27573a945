"""`postroom intake`: only the consumers of a stream, for hosts that take commands in and deliver nothing."""

from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from postroom.intake.source import StreamKind
from postroom.runtime.terminal import load_settings, run
from postroom.settings import Settings

if TYPE_CHECKING:
    from postroom.cli.lifetime import Lifetime

intake = typer.Typer()

Consumers = Annotated[int, typer.Option(min=1, help="How many consumers of the group run in this process.")]


@intake.command()
def redis(*, consumers: Consumers = 1) -> None:
    """Bring commands from the stream at POSTROOM_REDIS_URL into the room, until SIGTERM or Ctrl-C."""
    _run(StreamKind.REDIS, consumers)


@intake.command()
def nats(*, consumers: Consumers = 1) -> None:
    """Bring commands from JetStream at POSTROOM_NATS_URL into the room, until SIGTERM or Ctrl-C."""
    _run(StreamKind.NATS, consumers)


def _run(kind: StreamKind, consumers: int) -> None:
    from postroom.cli.lifetime import live

    settings = load_settings()

    async def main(life: "Lifetime") -> None:
        await _consume_here(settings, life, kind=kind, consumers=consumers)

    run(live(main, grace=settings.shutdown_grace))


async def _consume_here(settings: Settings, life: "Lifetime", *, kind: StreamKind, consumers: int) -> None:
    """Run the consumers; on stop, each finishes its current batch."""
    from postroom.db.failures import record_loop_failure
    from postroom.db.room import open_room
    from postroom.intake.source import open_source
    from postroom.intake.worker import open_consumers
    from postroom.mail.template_check import TemplateCheck
    from postroom.runtime.loop import run_loops
    from postroom.runtime.metrics_server import metrics_served

    sources = [open_source(kind, settings) for _consumer in range(consumers)]
    async with open_room(settings) as room:
        with metrics_served(settings.metrics_addr):
            life.running()
            async with open_consumers(
                room.pool, sources, idempotency_ttl=settings.idempotency_ttl, check=TemplateCheck(room.pool)
            ) as loops:
                await run_loops(loops, stop=life.stop, failed=partial(record_loop_failure, room.pool))
