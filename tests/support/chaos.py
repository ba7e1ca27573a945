"""Killing workers and counting what arrived: the ledger beside the sink."""

import asyncio
import re
import sys
from collections import Counter
from collections.abc import AsyncIterator, Hashable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.support.chaos_worker import Orders
from tests.support.sessions import sessions_end
from tests.support.smtp_server import Message, Server

from postroom.db.pool import Pool

REPOSITORY = Path(__file__).parents[2]
_NAME = re.compile(rb"^Message-ID:\s*<pr\.(\d+)\.", re.MULTILINE)


@asynccontextmanager
async def worker_process(orders: Orders) -> AsyncIterator[asyncio.subprocess.Process]:
    """A worker in a process of its own; gone after the block, whatever happened."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "tests.support.chaos_worker",
        orders.encode(),
        cwd=REPOSITORY,
        stdout=asyncio.subprocess.PIPE,
        env={"PYTHONPATH": f"{REPOSITORY / 'src'}:{REPOSITORY}"},
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def run_to_its_end(orders: Orders) -> int:
    """Start a worker and wait until it has ended, one way or the other."""
    async with sessions_end(orders.url), worker_process(orders) as process, asyncio.timeout(60):
        return await process.wait()


async def silence(server: Server) -> None:
    """Wait until the server has read everything that dead clients had written."""
    async with asyncio.timeout(60):
        for visit in server.visits:
            await visit.closed.wait()


def delivery_of(message: Message) -> int:
    """The delivery by the name that its message carries."""
    match = _NAME.search(message.content)
    assert match is not None, message
    return int(match[1])


def received(server: Server) -> Counter[int]:
    """How often each delivery arrived."""
    return Counter(map(delivery_of, server.messages))


@dataclass(frozen=True)
class Entry:
    """One delivery as the ledger tells it."""

    id: int
    lane: str
    state: str
    sent: int
    ambiguous: int

    @property
    def key(self) -> Hashable:
        """The part of the ledger that copies are counted for."""
        return self.id

    @property
    def must_have_arrived(self) -> bool:
        return self.state == "sent"


async def ledger(pool: Pool) -> list[Entry]:
    async with pool.acquire() as connection:
        rows = await connection.fetch(
            """
            SELECT d.id, d.lane::text, d.state::text,
                count(*) FILTER (WHERE a.outcome = 'sent') AS sent,
                count(*) FILTER (WHERE a.outcome = 'ambiguous') AS ambiguous
            FROM deliveries AS d
            LEFT JOIN attempts AS a ON a.delivery_id = d.id
            GROUP BY d.id
            ORDER BY d.id
            """
        )
    return [Entry(**row) for row in rows]


async def leftovers(pool: Pool) -> tuple[int, int]:
    """The number of claimed deliveries, and of claims."""
    async with pool.acquire() as connection:
        row = await connection.fetchrow(
            "SELECT (SELECT count(*) FROM deliveries WHERE state = 'sending'), (SELECT count(*) FROM claims)"
        )
    return row[0], row[1]
