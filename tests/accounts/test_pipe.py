"""Lines for another program: format, no missed line, and no open transaction for a slow reader."""

import asyncio
import csv
import fcntl
import os
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import msgspec
import pytest
from structlog.testing import capture_logs
from structlog.typing import EventDict
from tests.support.accounts import KEY, LETTERHEAD, run_once, settle, sign_up, token
from tests.support.patience import PATIENCE_S

from postroom.accounts.model import Action
from postroom.accounts.pipe import Pipe, csv_line, json_line
from postroom.accounts.signature import verify
from postroom.accounts.worker import Collector
from postroom.db.pool import Pool
from postroom.errors import OutputLost

IMPATIENT = timedelta(milliseconds=50)


class Reader:
    """The reading end of a pipe."""

    def __init__(self) -> None:
        self.end, self.descriptor = os.pipe()
        os.set_blocking(self.end, False)

    def close(self) -> None:
        os.close(self.end)
        os.close(self.descriptor)

    def read(self) -> str:
        """All written text."""
        read = b""
        while True:
            try:
                piece = os.read(self.end, 65536)
            except BlockingIOError:
                return read.decode()
            read += piece

    def collector(self, pool: Pool) -> Collector:
        pipe = Pipe(self.descriptor, LETTERHEAD, form=csv_line, patience=IMPATIENT)
        return Collector(pool, pipe, ready=pipe.ready)


@pytest.fixture
def reader() -> Iterator[Reader]:
    opened = Reader()
    yield opened
    opened.close()


async def sign_up_many(pool: Pool, count: int) -> None:
    await pool.execute(
        "INSERT INTO accounts (email, login) SELECT n || '@example.org', n FROM generate_series(1, $1::integer) n",
        count,
    )
    await settle(pool)


async def until_paused(pool: Pool, said: list[EventDict]) -> None:
    """Wait until the collector has timed out once."""
    async with asyncio.timeout(PATIENCE_S):
        while not any(line["event"] == "collection_paused" for line in said):
            await pool.fetchval("SELECT 1")


async def test_a_batch_is_one_line(pool: Pool, reader: Reader) -> None:
    """A line repeats action,email,login,secret,code per token; 1 is activation, 2 is recovery; secrets are signed."""
    ada = await sign_up(pool, "ada")
    bob = await sign_up(pool, "bob", status="active")
    await pool.execute("INSERT INTO tokens (account, action) VALUES ($1, 'password_recovery')", bob)
    assert await run_once(pool, reader.collector(pool)) == 2
    [line] = reader.read().splitlines()
    fields = line.split(",")
    assert fields[:3] == ["1", "ada@example.org", "ada"]
    assert fields[5:8] == ["2", "bob@example.org", "bob"]
    for account_id, action, place in ((ada, Action.ACTIVATION, 3), (bob, Action.PASSWORD_RECOVERY, 8)):
        found = await token(pool, account_id)
        assert verify(KEY, action, fields[place]) == found["secret"]
        assert fields[place + 1] == found["code"]


async def test_a_backlog_is_many_lines(pool: Pool, reader: Reader) -> None:
    """A line has ten tokens, even if one transaction takes more."""
    await sign_up_many(pool, 25)
    await reader.collector(pool).drain()
    assert [len(line.split(",")) for line in reader.read().splitlines()] == [50, 50, 25]


def test_json_lines_have_the_same_fields() -> None:
    """A JSON line is an array of objects, with codes as strings."""
    line = json_line([(1, "a@example.org", "ada", "s", "00123")])
    expected = {"action": 1, "email": "a@example.org", "login": "ada", "secret": "s", "code": "00123"}
    assert line.endswith("\n")
    assert msgspec.json.decode(line) == [expected]


def test_csv_quotes_commas_in_logins() -> None:
    """A login with commas and quotes is quoted and parsed back unchanged."""
    row = (1, "a@example.org", 'Lovelace, "Ada"', "s", "00123")
    assert next(csv.reader([csv_line([row, row])])) == [str(value) for value in (*row, *row)]


async def test_closed_pipe_ends_the_collector_without_loss(pool: Pool, reader: Reader) -> None:
    """A closed pipe rolls back the batch and ends the collector instead of retrying."""
    await sign_up(pool, "ada")
    gone = Reader()
    os.close(gone.end)
    with pytest.raises(OutputLost) as lost:
        await asyncio.wait_for(gone.collector(pool).loop().run(asyncio.Event()), PATIENCE_S)
    os.close(gone.descriptor)
    assert isinstance(lost.value.__cause__, BrokenPipeError)
    await run_once(pool, reader.collector(pool))
    assert reader.read().startswith("1,ada@example.org,ada,")


async def test_full_disk_is_reported(pool: Pool) -> None:
    """The error is the one of the operating system, and no token is collected."""
    await sign_up(pool, "ada")
    full = os.open("/dev/full", os.O_WRONLY)
    with pytest.raises(OutputLost, match="No space left on device"):
        await run_once(pool, Collector(pool, Pipe(full, LETTERHEAD, form=csv_line)))
    os.close(full)
    assert await pool.fetchval("SELECT last_seq FROM jobs") == 0


async def test_a_file_gets_every_line(pool: Pool, tmp_path: Path) -> None:
    """A file on disk is always writable."""
    await sign_up_many(pool, 25)
    file = os.open(tmp_path / "lines", os.O_WRONLY | os.O_CREAT)
    pipe = Pipe(file, LETTERHEAD, form=csv_line)
    await Collector(pool, pipe, ready=pipe.ready).drain()
    os.close(file)
    assert len((tmp_path / "lines").read_text().splitlines()) == 3


async def test_a_reader_that_pauses_holds_no_transaction(pool: Pool, reader: Reader) -> None:
    """The collector waits outside a transaction; a reader that continues gets every line once."""
    fcntl.fcntl(reader.descriptor, fcntl.F_SETPIPE_SZ, 8192)
    await sign_up_many(pool, 200)
    worker = reader.collector(pool)
    with capture_logs() as said:
        draining = asyncio.create_task(worker.drain())
        await until_paused(pool, said)
    open_ = (
        "SELECT count(*) FROM pg_stat_activity WHERE state LIKE 'idle in transaction%' AND datname = current_database()"
    )
    async with asyncio.timeout(PATIENCE_S):
        while await pool.fetchval(open_):
            pass
    read = ""
    async with asyncio.timeout(PATIENCE_S):
        while not draining.done():
            read += reader.read()
            await asyncio.sleep(0)
    read += reader.read()
    assert await draining == 200
    logins = [login for line in csv.reader(read.splitlines()) for login in line[2::5]]
    assert logins == [str(number) for number in range(1, 201)]
    assert await pool.fetchval("SELECT last_seq FROM jobs") == 200


async def test_a_collector_whose_reader_pauses_can_be_stopped(pool: Pool, reader: Reader) -> None:
    """A stop ends the wait for the reader, and no unwritten token is collected."""
    fcntl.fcntl(reader.descriptor, fcntl.F_SETPIPE_SZ, 8192)
    await sign_up_many(pool, 200)
    worker = reader.collector(pool)
    with capture_logs() as said:
        running = asyncio.create_task(worker.loop().run(worker.stop))
        await until_paused(pool, said)
    worker.stop.set()
    await asyncio.wait_for(running, PATIENCE_S)
    whole = reader.read().rpartition("\n")[0].splitlines()
    taken = await pool.fetchval("SELECT last_seq FROM jobs")
    assert taken <= sum(len(line) // 5 for line in csv.reader(whole)) < 200
