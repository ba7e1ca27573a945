"""One function per statement of `queries.sql`, under the same name. Only this module converts rows to models."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import asyncpg

from postroom.db.queries import Connection, load
from postroom.runtime.record import read_row
from postroom.senders.model import (
    DestinationLimits,
    SealedAccount,
    SenderAccount,
    SenderFigures,
    SenderId,
)

QUERIES = load("postroom.senders")


async def change_sender(connection: Connection, **columns: Any) -> bool:
    return await QUERIES["change_sender"].maybe(connection, **columns) is not None


async def decay_backoff(connection: Connection, *, domains: Sequence[str], now: datetime | None) -> int:
    return await QUERIES["decay_backoff"].exec(connection, domains=domains, now=now)


async def delete_domain(connection: Connection, *, domain: str) -> bool:
    return await QUERIES["delete_domain"].maybe(connection, domain=domain) is not None


async def delete_sender(connection: Connection, *, id: int) -> str | None:  # noqa: A002 - the column's name
    row = await QUERIES["delete_sender"].maybe(connection, id=id)
    return None if row is None else str(row["email"])


async def find_sender(connection: Connection, *, id: int) -> SealedAccount | None:  # noqa: A002 - the column's name
    row = await QUERIES["find_sender"].maybe(connection, id=id)
    return None if row is None else _sealed(row)


async def has_turns(connection: Connection, *, lane: str, now: datetime | None) -> bool:
    return bool((await QUERIES["has_turns"].one(connection, lane=lane, now=now))["has_turns"])


async def insert_sender(connection: Connection, **columns: Any) -> SenderId:
    return SenderId((await QUERIES["insert_sender"].one(connection, **columns))["id"])


async def list_domains(connection: Connection, *, after_domain: str | None, page_limit: int) -> list[DestinationLimits]:
    rows = await QUERIES["list_domains"].many(connection, after_domain=after_domain, page_limit=page_limit)
    return [read_row(DestinationLimits, row) for row in rows]


async def list_sealed(connection: Connection) -> list[SenderId]:
    return [SenderId(row["id"]) for row in await QUERIES["list_sealed"].many(connection)]


async def list_senders(
    connection: Connection,
    *,
    ids: Sequence[int] | None = None,
    after_id: int | None = None,
    page_limit: int | None = None,
) -> list[SealedAccount]:
    rows = await QUERIES["list_senders"].many(connection, ids=ids, after_id=after_id, page_limit=page_limit)
    return [_sealed(row) for row in rows]


async def lock_sender(connection: Connection, *, id: int) -> bool:  # noqa: A002 - the column's name
    return await QUERIES["lock_sender"].maybe(connection, id=id) is not None


async def pause_sender(
    connection: Connection,
    *,
    id: int,  # noqa: A002 - the column's name
    reason: str | None,
) -> bool:
    return await QUERIES["pause_sender"].maybe(connection, id=id, reason=reason) is not None


async def pause_unhealthy(connection: Connection, *, account_id: Sequence[int], reason: Sequence[str]) -> int:
    return await QUERIES["pause_unhealthy"].exec(connection, account_id=account_id, reason=reason)


async def put_domain(
    connection: Connection, *, domain: str, max_connections: int | None, messages_per_second: float | None
) -> DestinationLimits:
    row = await QUERIES["put_domain"].one(
        connection, domain=domain, max_connections=max_connections, messages_per_second=messages_per_second
    )
    return read_row(DestinationLimits, row)


async def raise_backoff(
    connection: Connection, *, domain: Sequence[str], count: Sequence[int], now: datetime | None
) -> int:
    return await QUERIES["raise_backoff"].exec(connection, domain=domain, count=count, now=now)


async def record_results(
    connection: Connection, *, health_window: timedelta, now: datetime | None, **columns: Sequence[Any]
) -> dict[int, SenderFigures]:
    """Count results given as columns; returns the figures of each account."""
    rows = await QUERIES["record_results"].many(connection, health_window=health_window, now=now, **columns)
    return {
        row["account_id"]: SenderFigures(row["tried"], row["bounces"], row["errors"], row["consecutive_errors"])
        for row in rows
    }


async def release_senders(
    connection: Connection,
    *,
    account_id: Sequence[int],
    claim_id: Sequence[int],
    since_start: Sequence[timedelta],
    now: datetime | None,
) -> int:
    return await QUERIES["release_senders"].exec(
        connection, account_id=account_id, claim_id=claim_id, since_start=since_start, now=now
    )


async def replace_secret(
    connection: Connection,
    *,
    id: int,  # noqa: A002 - the column's name
    secret: str,
    key_id: str,
) -> int:
    return await QUERIES["replace_secret"].exec(connection, id=id, secret=secret, key_id=key_id)


async def reserve_id(connection: Connection) -> SenderId:
    return SenderId((await QUERIES["reserve_id"].one(connection))["id"])


async def resume_sender(connection: Connection, *, id: int) -> bool:  # noqa: A002 - the column's name
    return await QUERIES["resume_sender"].maybe(connection, id=id) is not None


async def roll_days(connection: Connection, *, now: datetime | None) -> int:
    return int((await QUERIES["roll_days"].one(connection, now=now))["rolled"])


def _sealed(row: asyncpg.Record) -> SealedAccount:
    return SealedAccount(read_row(SenderAccount, row), row["secret"], row["key_id"])
