"""A consumer in a process of its own that ends itself with SIGKILL at a given step.

python -m tests.support.intake_process redis|nats DATABASE_URL STREAM_URL NAME STEP
"""

import asyncio
import sys
from datetime import timedelta

from tests.support.doom import Doom

from postroom.db.pool import open_pool
from postroom.intake.source import StreamSource
from postroom.intake.worker import open_consumers
from postroom.runtime.loop import run_loops

ACK_WAIT = timedelta(seconds=1)


def make_source(kind: str, url: str, name: str) -> StreamSource:
    if kind == "redis":
        from postroom.intake.redis import RedisOptions, RedisSource

        return RedisSource(url, RedisOptions(stream=name))
    from postroom.intake.nats import NatsOptions, NatsSource

    return NatsSource(url, NatsOptions(subject=name, stream=name.replace(".", "_"), ack_wait=ACK_WAIT))


async def main(kind: str, database_url: str, stream_url: str, name: str, step: str) -> None:
    pool = await open_pool(database_url, "postroom", size=2)
    async with open_consumers(pool, [make_source(kind, stream_url, name)], signal=Doom(step)) as loops:
        await run_loops(loops, stop=asyncio.Event())


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
