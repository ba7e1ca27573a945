"""The bare worker: claim 500, do nothing or send a prepared mail, complete, until nothing waits.

python -m bench.subjects.postgresql_worker <database url> [sink port]
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
SQL = read_statements(Path(__file__).with_name("postgresql.sql"))


async def work(url: str, sink_port: int | None) -> None:
    database = await asyncpg.connect(url)
    wire: list[PipelinedConnection] = []
    if sink_port:
        wire = await connect_all(sink_port, CONNECTIONS, SENDER, prepared_message())
    complete = SQL["complete_without_log"] if wire else SQL["complete"]
    while claimed := await database.fetch(SQL["claim"], claim := uuid.uuid4(), CLAIM):
        if wire:
            await send_over(wire, [row["recipient"] for row in claimed])
        await database.execute(complete, claim, [row["id"] for row in claimed])
    for connection in wire:
        connection.close()
    await database.close()


if __name__ == "__main__":
    uvloop.run(work(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else None))
