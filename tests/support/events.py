"""Helpers that append events and detect lock waits."""

import asyncio
from collections.abc import Awaitable, Iterable
from typing import Any

import asyncpg
import msgspec

from postroom.db.queries import Connection
from postroom.events import AppendCondition, Cursor, Event, EventSession, Place, Query
from postroom.events.errors import AppendConditionFailed, DuplicateAppend

WON, REFUSED, RETRY = "won", "refused", "retry"
LEVELS = ("read_committed", "repeatable_read", "serializable")


async def outcome(append: Awaitable[object]) -> str:
    """The result of an append: it succeeded, was rejected, or must be retried."""
    try:
        await append
    except (AppendConditionFailed, DuplicateAppend):
        return REFUSED
    except asyncpg.SerializationError:
        return RETRY
    return WON


async def until_waiting(observer: Connection, waiting: asyncpg.Connection | None) -> None:
    """Wait until this connection, or any, waits for a lock in this database."""
    sql = """
        SELECT 1 FROM pg_locks JOIN pg_database ON database = pg_database.oid
        WHERE datname = current_database() AND NOT granted AND pid = coalesce($1, pid)
    """
    pid = None if waiting is None else waiting.get_server_pid()
    async with asyncio.timeout(60):
        while await observer.fetchrow(sql, pid) is None:  # the query itself takes time, so no sleep is needed
            continue


async def race(
    first: asyncpg.Connection, second: asyncpg.Connection, observer: Connection, level: str, condition: AppendCondition
) -> list[str]:
    """Run two open transactions with one condition each; the first commits while the second appends."""
    event = Event.of("Withdrawn", wallet=1)
    ours, theirs = first.transaction(isolation=level), second.transaction(isolation=level)
    await ours.start()
    await theirs.start()
    await second.fetchval("SELECT 1")  # takes the snapshot at REPEATABLE READ and above
    outcomes = [await outcome(EventSession(first).append(event, condition))]
    append = asyncio.ensure_future(outcome(EventSession(second).append(event, condition)))
    await until_waiting(observer, second)
    await ours.commit()
    outcomes.append(await append)
    await (theirs.commit() if outcomes[1] == WON else theirs.rollback())
    return outcomes


async def append_if(
    connection: Connection,
    *,
    tags: Iterable[str] = ("wallet=1",),
    types: list[str] | None = None,
    condition_tags: list[str] | None = None,
    after: int | None = None,
) -> dict[str, Any]:
    """Call `append_events_if` as an application does."""
    row = await connection.fetchrow(
        "SELECT postroom.append_events_if('{X}', ARRAY[$1::text[]::text], ARRAY['{}'::jsonb], $2, $3, $4)::text AS a",
        list(tags),
        types,
        condition_tags,
        after,
    )
    assert row is not None
    answer: dict[str, Any] = msgspec.json.decode(row["a"])
    return answer


WALLET = Query.of(tags=["wallet=1"])


def seen_up_to(place: Place) -> Cursor:
    """The cursor of a follower at this place, as a progress row stores it."""
    return Cursor(f"{place.transaction_id}:{place.transaction_id}:", own=place)
