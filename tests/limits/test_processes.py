"""Several `postroom serve` share the allowances of a key."""

import asyncio
from collections import Counter
from itertools import cycle, islice

import aiohttp
from tests.support.command_line import running
from tests.support.ports import free_port

from postroom.db.room import Room
from postroom.http import service as keys
from postroom.limits.service import read_use

QUOTA, RATE, CLIENTS, REQUESTS = 150, 10_000, 8, 40
MAIL = {"to": ["ada@example.org"], "subject": "Hello", "text": "Hello"}


async def test_two_processes_never_exceed_a_quota(room: Room, database_url: str) -> None:
    """Concurrent clients of both get exactly the quota; stopped processes return what they did not spend."""
    limits = {"daily_quota": QUOTA, "rate_per_minute": RATE}
    key, row = await keys.create_key(room.pool, "shop", scopes=["deliveries:write"], actor="tests", limits=limits)
    addresses = [f"127.0.0.1:{free_port()}" for _ in range(2)]
    settings = [{"POSTROOM_DATABASE_URL": database_url, "POSTROOM_HTTP_ADDR": address} for address in addresses]
    with running("serve", settings=settings[0]) as first, running("serve", settings=settings[1]) as second:
        for process in (first, second):
            await asyncio.to_thread(process.line, lambda line: "Postroom answers at" in line)
        async with aiohttp.ClientSession(headers={"authorization": f"Bearer {key}"}) as session:
            found = await asyncio.gather(
                *(_send(session, f"http://{address}") for address in islice(cycle(addresses), CLIENTS))
            )
            statuses = sum(found, Counter())
            while statuses[202] < QUOTA:  # one process may hold unspent mails for a second
                statuses += await _send(session, f"http://{addresses[0]}")
    assert statuses[202] == QUOTA
    assert set(statuses) == {202, 429}
    assert await room.pool.fetchval("SELECT count(*) FROM deliveries") == QUOTA
    assert (await read_use(room.pool, [f"key:{row.id}"]))[f"key:{row.id}"].day_used == QUOTA


async def _send(session: aiohttp.ClientSession, url: str) -> Counter[int]:
    statuses: Counter[int] = Counter()
    for _ in range(REQUESTS):
        async with session.post(f"{url}/v1/deliveries", json=MAIL) as response:
            statuses[response.status] += 1
    return statuses
