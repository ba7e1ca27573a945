"""A writer or a collector of accounts in its own process, which tests kill.

python -m tests.support.accounts_process write <url> <name> <count>
python -m tests.support.accounts_process collect <url>
"""

import asyncio
import random
import sys
from datetime import timedelta

import asyncpg


async def write(url: str, name: str, count: int) -> None:
    """Sign people up, several per transaction, so that ids and commits have different orders."""
    connection = await asyncpg.connect(url, server_settings={"search_path": "postroom"})
    number = 0
    while number < count:
        async with connection.transaction():
            for _ in range(min(random.randint(1, 4), count - number)):
                number += 1
                login = f"{name}-{number}"
                await connection.execute(
                    "INSERT INTO accounts (email, login) VALUES ($1, $2)", f"{login}@example.org", login
                )
    await connection.close()


async def collect(url: str) -> None:
    """Collect small batches until the process is killed."""
    from tests.support.accounts import KEY  # imported here, so that writers start faster

    from postroom.accounts.worker import run_collector
    from postroom.db.room import open_room
    from postroom.settings import Settings

    settings = Settings(
        database_url=url, secret_key=KEY, batch_limit=3, batch_timeout=timedelta(milliseconds=10), pool_size=3
    )
    async with open_room(settings) as room:
        sys.stdout.write("collecting\n")
        sys.stdout.flush()
        await run_collector(room, stop=asyncio.Event())


if __name__ == "__main__":
    if sys.argv[1] == "write":
        asyncio.run(write(sys.argv[2], sys.argv[3], int(sys.argv[4])))
    else:
        asyncio.run(collect(sys.argv[2]))
