"""Writers and collectors in their own processes, with collectors killed repeatedly."""

import asyncio
import os
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from pathlib import Path

from tests.support.accounts import mailed_keys
from tests.support.soak import TIMES

from postroom.db.pool import Pool

ROOT = Path(__file__).parents[2]
WRITERS, COLLECTORS = 8, 3
EACH, KILLS = (50, 4) if TIMES == 1 else (190 * TIMES, 12 * TIMES)  # a soak run takes a minute


async def start(*arguments: str, talks: bool = False) -> Process:
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'src'}"}
    script = ("-m", "tests.support.accounts_process")
    return await asyncio.create_subprocess_exec(
        sys.executable, *script, *arguments, cwd=ROOT, env=environment, stdout=PIPE if talks else DEVNULL
    )


async def start_collector(url: str) -> Process:
    """A collector that has reported that it runs."""
    process = await start("collect", url, talks=True)
    assert process.stdout is not None
    assert await process.stdout.readline() == b"collecting\n"
    return process


async def mailed(pool: Pool, count: int) -> None:
    """Wait until the ledger has this many token mails."""
    while await pool.fetchval("SELECT count(*) FROM deliveries WHERE source = 'accounts'") < count:
        pass


async def kill(process: Process) -> None:
    process.kill()
    await process.wait()


async def test_every_token_is_mailed_exactly_once(pool: Pool, database_url: str) -> None:
    """With eight writers and three collectors that are killed, the ledger has each token exactly once."""
    collectors = list(await asyncio.gather(*(start_collector(database_url) for _ in range(COLLECTORS))))
    writers = [await start("write", database_url, f"w{number}", str(EACH)) for number in range(WRITERS)]
    total = WRITERS * EACH
    try:
        async with asyncio.timeout(300 * TIMES):
            for number in range(KILLS):
                await mailed(pool, total * number // KILLS)
                await kill(collectors.pop(0))
                collectors.append(await start("collect", database_url))
            assert [await writer.wait() for writer in writers] == [0] * WRITERS
            await mailed(pool, total)
    finally:
        for process in (*collectors, *(writer for writer in writers if writer.returncode is None)):
            await kill(process)
    tokens = await pool.fetch("SELECT 'token:' || id AS key FROM tokens")
    assert len(tokens) == total
    assert sorted(await mailed_keys(pool)) == sorted(row["key"] for row in tokens)
    assert await pool.fetchval("SELECT count(DISTINCT email) FROM delivery_recipients") == total
