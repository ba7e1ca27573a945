"""A room as one SQL file: psql installs it, and Postroom uses it."""

import asyncio
import os
import subprocess
from uuid import uuid4

import asyncpg
import pytest
from tests.conftest import TestServer, postgres_major

from postroom.db.install import EVENT_STORE, room_script
from postroom.db.migrate import check_migrated, migrate
from postroom.db.pool import Pool, connect, open_pool
from postroom.embedded.binaries import find_binaries
from postroom.events import Event, EventStore
from postroom.events.service import index_event_tags


@pytest.fixture
async def empty_url(server: TestServer) -> str:
    """An empty database."""
    name = f"empty_{uuid4().hex}"
    connection = await asyncpg.connect(server.url)
    await connection.execute(f'CREATE DATABASE "{name}"')
    await connection.close()
    return server.database(name)


async def psql(url: str, script: str) -> None:
    """Run a script with psql."""
    program = str(find_binaries(postgres_major()).tool("psql"))
    done = await asyncio.to_thread(
        subprocess.run,
        [program, "--quiet", "--no-psqlrc", "--set=ON_ERROR_STOP=1", url],
        input=script,
        text=True,
        capture_output=True,
        check=False,
        env={"PATH": os.environ["PATH"]},
    )
    assert done.returncode == 0, done.stderr


async def test_psql_installs_a_room(empty_url: str) -> None:
    """`postroom migrate` has nothing to do, and mail is accepted at once."""
    await psql(empty_url, room_script("office"))
    connection = await connect(empty_url, "office")
    try:
        await check_migrated(connection, "office")
        sent = "SELECT office.send('{ada@example.org}', p_subject => 's', p_text => 't')"
        assert await connection.fetchval(sent) == 1
    finally:
        await connection.close()
    assert (await migrate(empty_url, "office")).is_empty


async def test_event_store_is_installed_without_mail_tables(empty_url: str) -> None:
    """It appends, appends under a condition, reads, and takes a command by a plain INSERT."""
    await psql(empty_url, room_script("facts", only=EVENT_STORE))
    async with await open_pool(empty_url, "facts") as pool:
        assert await pool.fetchval("SELECT to_regclass('deliveries')") is None
        store = EventStore(pool)
        await store.append(Event.of("WalletOpened", wallet=1))
        await pool.execute("SELECT append_events_batch(ARRAY['DepositMade'], ARRAY['{wallet=1}'], ARRAY['{}'::jsonb])")
        await pool.execute(
            "INSERT INTO commands (transaction_id, type, data, metadata)"
            " VALUES (pg_current_xact_id(), 'Deposit', '{\"amount\": 1}', NULL)"
        )
        assert await pool.fetchval("SELECT length(command_id) > 10 FROM commands")
        assert await pool.fetchval(
            "SELECT array_agg(type ORDER BY position) FROM events WHERE tags @> '{wallet=1}'"
        ) == [
            "WalletOpened",
            "DepositMade",
        ]


async def test_event_tags_of_a_large_room_can_be_indexed(pool: Pool) -> None:
    """The command makes the index that the migration left out, once; see `test_containment_of_tags_uses_an_index`."""
    await pool.execute("DROP INDEX events_tags_idx")
    assert [await index_event_tags(pool, actor="test") for _ in range(2)] == [True, False]


async def test_event_store_can_become_a_whole_room(empty_url: str) -> None:
    """`postroom migrate` adds the rest, and the events stay."""
    await psql(empty_url, room_script("facts", only=EVENT_STORE))
    async with await open_pool(empty_url, "facts") as pool:
        await EventStore(pool).append(Event.of("WalletOpened", wallet=1))
        await migrate(empty_url, "facts")
        assert await pool.fetchval("SELECT count(*) FROM events") == 1
        assert await pool.fetchval("SELECT count(*) FROM deliveries") == 0
