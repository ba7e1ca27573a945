"""An upgrade without a pause: two releases run side by side on one room, each as real processes from its own source."""

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import aiohttp
from tests.schema.test_queries import statements
from tests.support.chaos import received
from tests.support.command_line import Running, outcome, running
from tests.support.patience import PATIENCE_S
from tests.support.ports import free_port
from tests.support.releases import build_next_release
from tests.support.smtp_server import smtp_server

from postroom.client.asynchronous import Client
from postroom.db.pool import Pool
from postroom.db.room import Room
from postroom.http.service import create_key

PACE_S = 0.05  # between two requests: a constant load
POLL_S = 0.05


def _settings(url: str, smtp_port: int, http_port: int) -> dict[str, str]:
    return {
        "POSTROOM_DATABASE_URL": url,
        "POSTROOM_SECRET_KEY": "0" * 64,
        "POSTROOM_HTTP_ADDR": f"127.0.0.1:{http_port}",
        "POSTROOM_TRANSPORT": "smtp",
        "POSTROOM_SMTP_RELAY": f"smtp://127.0.0.1:{smtp_port}",
        "POSTROOM_FROM": "post@example.org",
        "POSTROOM_LOG_FORMAT": "json",
    }


async def _until(pool: Pool, question: str, answer: int) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while True:
            if await pool.fetchval(question) == answer:
                return
            await asyncio.sleep(POLL_S)


async def _ready(api: str) -> None:
    async with aiohttp.ClientSession() as session, asyncio.timeout(PATIENCE_S):
        while True:
            try:
                async with session.get(f"{api}/readyz") as response:
                    if response.status == 200:
                        return
            except aiohttp.ClientError:
                pass
            await asyncio.sleep(POLL_S)


@asynccontextmanager
async def _load(api: str, key: str, known: set[int]) -> AsyncIterator[None]:
    """Accept deliveries for as long as the block runs, and wait until at least some were accepted."""
    stop, some = asyncio.Event(), asyncio.Event()

    async def accept() -> None:
        async with Client(api, key, retries=0) as client:
            for number in range(100_000):
                if stop.is_set():
                    return
                sent = await client.deliveries.send(to="ada@example.org", subject=f"Mail {number}", text="Hello")
                known.add(sent.id)
                if number == 20:
                    some.set()
                await asyncio.sleep(PACE_S)

    task = asyncio.create_task(accept())
    try:
        yield
        async with asyncio.timeout(PATIENCE_S):
            await some.wait()
    finally:
        stop.set()
        await task


async def _all_prepare(pool: Pool) -> None:
    """Every statement of the old release is valid on the schema of the first phase."""
    async with pool.acquire() as connection:
        for _package, statement in statements():
            await connection.prepare(statement.sql)


async def _stopped(*processes: Running) -> list[int]:
    return [await asyncio.to_thread(process.stop, signal.SIGTERM) for process in processes]


async def test_two_releases_run_side_by_side(database_url: str, room: Room, tmp_path: Path) -> None:
    """Migrate, start the new release, stop the old one, finish the migration: every delivery is sent once."""
    known: set[int] = set()
    key, _ = await create_key(room.pool, "upgrade", scopes=["*"], actor="tests")
    async with smtp_server() as sink, AsyncExitStack() as stack:
        old, new = (_settings(database_url, sink.port, free_port()) for _ in range(2))
        old_api, new_api = (f"http://{each['POSTROOM_HTTP_ADDR']}" for each in (old, new))
        release = await asyncio.to_thread(build_next_release, tmp_path / "next", new)
        serve = stack.enter_context(running("serve", settings=old))
        work = stack.enter_context(running("work", settings=old))
        await _ready(old_api)
        async with _load(old_api, key, known):
            code, said = await release.outcome("migrate", "--no-backup")
            assert (code, "1 migrations wait" in said) == (0, True), said
            await _all_prepare(room.pool)
            code, said = await release.outcome("migrate", "--after", "--no-backup")
            assert (code, "Processes of an older release run" in said) == (1, True), said
            await stack.enter_async_context(release.running("work"))
            await stack.enter_async_context(release.running("serve"))
            await _until(room.pool, "SELECT count(hostname) FROM workers", 1)
            await _ready(new_api)
            restarted = stack.enter_context(running("work", settings=old))  # as after a crash during the upgrade
            await _until(room.pool, "SELECT count(host) FROM workers", 2)
            assert (await outcome("migrate", settings=old))[0] == 1
            async with _load(new_api, key, known):
                await _until(room.pool, "SELECT count(*) FROM workers", 3)
        async with _load(new_api, key, known):
            assert await _stopped(restarted, work, serve) == [0, 0, 0]
            code, said = await release.outcome("migrate", "--after", "--no-backup")
            assert code == 0, said
        code, _, errors = await outcome("work", settings=old)
        assert (code, "cannot run on the room" in errors) == (1, True), errors
        await _until(room.pool, "SELECT count(*) FROM deliveries WHERE state <> 'sent'", 0)
        assert set(received(sink).values()) == {1}
        assert received(sink).keys() == known
