"""pgqueuer's worker in drain mode, with a job that does nothing.

python -m bench.subjects.pgqueuer_worker <database url> <batch size>
"""

import sys

import asyncpg
import uvloop
from pgqueuer import PgQueuer
from pgqueuer.models import Job
from pgqueuer.types import QueueExecutionMode


async def work(url: str, batch_size: int) -> None:
    connection = await asyncpg.connect(url)
    queue = PgQueuer.from_asyncpg_connection(connection)

    @queue.entrypoint("mail")  # type: ignore[untyped-decorator, unused-ignore]
    async def mail(job: Job) -> None:
        pass

    await queue.run(batch_size=batch_size, mode=QueueExecutionMode.drain)


if __name__ == "__main__":
    uvloop.run(work(sys.argv[1], int(sys.argv[2])))
