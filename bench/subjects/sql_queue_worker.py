"""The worker of a queue in SQL: claim 500, do nothing or send a prepared mail, complete, until nothing waits.

python -m bench.subjects.sql_queue_worker <queue> <database url> [sink port]
"""

import sys
import uuid
from pathlib import Path

import asyncpg
import uvloop

from bench.letters import SENDER, prepared_message
from bench.statements import read_statements
from bench.subjects.smtp_pipeline import PipelinedConnection, connect_all, send_over

CLAIM = 500
CONNECTIONS = 20


async def work(queue: str, url: str, sink_port: int | None) -> None:
    sql = read_statements(Path(__file__).with_name(f"{queue}.sql"))
    database = await asyncpg.connect(url)
    wire: list[PipelinedConnection] = []
    if sink_port:
        wire = await connect_all(sink_port, CONNECTIONS, SENDER, prepared_message())
    complete = sql["complete_without_log"] if wire else sql["complete"]
    while claimed := await database.fetch(sql["claim"], claim := uuid.uuid4(), CLAIM):
        if wire:
            await send_over(wire, [row["recipient"] for row in claimed])
        await database.execute(complete, claim, [row["id"] for row in claimed])
    for connection in wire:
        connection.close()
    await database.close()


if __name__ == "__main__":
    uvloop.run(work(sys.argv[1], sys.argv[2], int(sys.argv[3]) if len(sys.argv) > 3 else None))
