"""Lines for another program: their exact form, and that none is missed."""

import csv
import io

import msgspec
import pytest
from tests.support.accounts import KEY, LETTERHEAD, run_once, settle, sign_up, token

from postroom.accounts.model import Action
from postroom.accounts.pipe import Pipe, csv_line, json_line
from postroom.accounts.signature import verify
from postroom.accounts.worker import Collector
from postroom.db.pool import Pool


async def test_a_batch_is_one_line(pool: Pool) -> None:
    """action,email,login,secret,code repeated per token; 1 is activation, 2 is recovery; secrets are signed."""
    ada = await sign_up(pool, "ada")
    bob = await sign_up(pool, "bob", status="active")
    await pool.execute("INSERT INTO tokens (account, action) VALUES ($1, 'password_recovery')", bob)
    out = io.StringIO()
    assert await run_once(pool, Collector(pool, Pipe(out, LETTERHEAD, form=csv_line))) == 2
    [line] = out.getvalue().splitlines()
    fields = line.split(",")
    assert fields[:3] == ["1", "ada@example.org", "ada"]
    assert fields[5:8] == ["2", "bob@example.org", "bob"]
    for account_id, action, place in ((ada, Action.ACTIVATION, 3), (bob, Action.PASSWORD_RECOVERY, 8)):
        found = await token(pool, account_id)
        assert verify(KEY, action, fields[place]) == found["secret"]
        assert fields[place + 1] == found["code"]


async def test_a_backlog_is_many_lines(pool: Pool) -> None:
    """However many are taken at once, a line holds ten."""
    await pool.execute(
        "INSERT INTO accounts (email, login) SELECT n || '@example.org', n FROM generate_series(1, 25) n"
    )
    out = io.StringIO()
    await settle(pool)
    await Collector(pool, Pipe(out, LETTERHEAD, form=csv_line)).drain()
    assert [len(line.split(",")) for line in out.getvalue().splitlines()] == [50, 50, 25]


def test_json_lines_say_the_same() -> None:
    """One array of objects per batch, codes as strings."""
    line = json_line([(1, "a@example.org", "ada", "s", "00123")])
    expected = {"action": 1, "email": "a@example.org", "login": "ada", "secret": "s", "code": "00123"}
    assert line.endswith("\n")
    assert msgspec.json.decode(line) == [expected]


def test_a_comma_does_not_shift_the_fields() -> None:
    """A login with commas and quotes comes back as it was."""
    row = (1, "a@example.org", 'Lovelace, "Ada"', "s", "00123")
    assert next(csv.reader([csv_line([row, row])])) == [str(value) for value in (*row, *row)]


async def test_a_line_that_cannot_be_written_is_written_later(pool: Pool) -> None:
    """When the reader is gone the batch was not taken."""

    class Closed(io.StringIO):
        def flush(self) -> None:
            raise BrokenPipeError

    await sign_up(pool, "ada")
    with pytest.raises(BrokenPipeError):
        await run_once(pool, Collector(pool, Pipe(Closed(), LETTERHEAD, form=csv_line)))
    out = io.StringIO()
    await run_once(pool, Collector(pool, Pipe(out, LETTERHEAD, form=csv_line)))
    assert out.getvalue().startswith("1,ada@example.org,ada,")
