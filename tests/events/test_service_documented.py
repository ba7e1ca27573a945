"""The examples of docs/how-to/event-store.md run as they are."""

import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from tests.events.conftest import Opener

from postroom.errors import IdempotencyConflict
from postroom.events import AppendCondition, Cursor, Event, EventStore, Query, period_tag

PAGE = (Path(__file__).parents[2] / "docs" / "how-to" / "event-store.md").read_text("utf-8")
OCTOBER, NOVEMBER, DECEMBER = (period_tag("month", datetime(2026, month, 1, tzinfo=UTC)) for month in (10, 11, 12))
WALLET = "wallet=1"


def shown(heading: str, language: str = "python") -> str:
    """The first block of this language below a heading."""
    found = re.search(rf"^## {heading}\n.*?^```{language}\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    assert found is not None
    return found[1]


def names(heading: str) -> dict[str, Any]:
    """The names that the code below a heading defines."""
    space: dict[str, Any] = {}
    exec(shown(heading), space)
    return space


def amount(kind: str, value: int, *tags: str) -> Event:
    return Event(kind, {"amount": value}, (WALLET, *tags))


async def test_closed_books(store: EventStore) -> None:
    """The balance is carried over once, and a closed month rejects entries."""
    page = names("Close the books")
    await store.append([amount("Deposited", 10, OCTOBER), amount("Withdrawn", 3, OCTOBER)])
    assert await page["take"](store, WALLET, 2, OCTOBER, NOVEMBER)
    assert not await page["take"](store, WALLET, 6, OCTOBER, NOVEMBER)
    for _ in range(2):
        await page["close"](store, WALLET, OCTOBER, NOVEMBER)
    [opened], _ = await store.read(Query.of("BooksOpened"))
    assert opened.data == {"balance": 5}
    assert not await page["take"](store, WALLET, 1, OCTOBER, NOVEMBER)
    assert await page["take"](store, WALLET, 5, NOVEMBER, DECEMBER)
    assert not await page["take"](store, WALLET, 1, NOVEMBER, DECEMBER)


async def test_commands(store: EventStore) -> None:
    """A command runs once per id; the id with other data is a conflict; the place is that of the last event."""
    page = names("Commands")
    await store.append(amount("Deposited", 10))
    first, again = [await page["withdraw"](store, 7, 4) for _ in range(2)]
    assert (first.value, again.value, again.replayed) == ({"left": 6}, {"left": 6}, True)
    assert first.place == again.place == (await store.read(Query.of("Withdrawn"))).events[0].place
    with pytest.raises(IdempotencyConflict):
        await page["withdraw"](store, 7, 5)
    assert (await page["withdraw"](store, 8, 100)).place is None


async def test_a_kept_state(store: EventStore, opened: Opener) -> None:
    """Only new events are folded into the state, and its cursor is valid for an append."""
    page, connection = names("Keep a state with its cursor"), await opened()
    await connection.execute("CREATE TABLE wallet_states (wallet text PRIMARY KEY, balance bigint, cursor text)")
    await store.append(amount("Deposited", 10))
    assert (await page["learn"](store, connection, WALLET))[0] == 10
    await store.append(amount("Withdrawn", 4))
    total, seen = await page["learn"](store, connection, WALLET)
    assert (total, await connection.fetchval("SELECT balance FROM wallet_states")) == (6, 6)
    await store.append(amount("Withdrawn", total), AppendCondition(Query.of(tags=[WALLET]), seen))


async def test_an_import(store: EventStore) -> None:
    """A batch that was imported before is skipped."""
    bring, moment = names("Import events")["bring"], datetime(1999, 12, 31, tzinfo=UTC)
    facts = [amount("Deposited", number, f"n={number}") for number in range(300)]
    assert [await bring(store, "1", facts, moment) for _ in range(2)] == [True, False]
    events, _ = await store.read(Query.all())
    assert ([event.data["amount"] for event in events[:-1]], {event.occurred_at for event in events}) == (
        list(range(300)),
        {moment},
    )


async def test_sql(store: EventStore, opened: Opener) -> None:
    """The reading statement returns its cursor."""
    connection = await opened()
    await store.append(amount("Deposited", 10))
    cursor, total = await read_once(connection)
    assert total == 10
    append = "SELECT append_events('{X}', '{\"{wallet=1}\"}', ARRAY['{}'::jsonb], $1::text::jsonb) ->> 'success'"
    condition = AppendCondition(Query.of(tags=[WALLET]), Cursor.parse(cursor)).json
    assert [await connection.fetchval(append, condition) for _ in range(2)] == ["true", "false"]


async def test_every_parameter_of_the_sql_functions_is_documented(opened: Opener) -> None:
    """The documented parameters have the order of the functions."""
    section = PAGE.partition("\n## From SQL")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| `(\w+)` \|(.*?)\|", section, re.MULTILINE)
    assert [name for name, _ in rows] == [
        "append_events", "append_events_batch", "append_events_if", "read_events", "event_cursor_now",
    ]  # fmt: skip
    connection = await opened()
    for name, told in rows:
        parameters = "SELECT proargnames[:pronargs] FROM pg_proc WHERE oid = $1::text::regproc"
        assert re.findall(r"`(p_\w+)", told) == (await connection.fetchval(parameters, name) or [])


async def read_once(connection: asyncpg.Connection) -> tuple[str, int]:
    row = await connection.fetchrow(shown("From SQL", "sql"))
    assert row is not None
    return row[0], row[1]
