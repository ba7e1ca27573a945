"""One function per statement of `queries.sql`, under the same name. Rows become models here and nowhere else."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import asyncpg

from postroom.db.queries import Connection, load
from postroom.feedback.attribution import SentDelivery
from postroom.feedback.model import ReceivedReport, Suppression, SuppressionChange
from postroom.runtime.record import read_row

QUERIES = load("postroom.feedback")


@dataclass(frozen=True, slots=True)
class Unreported:
    """The complaints of one notice."""

    complaints: int
    campaigns: int
    delivery_ids: tuple[int, ...]


def _suppression(row: asyncpg.Record) -> Suppression:
    return read_row(Suppression, row)


async def clear_soft(connection: Connection, *, addresses: Sequence[str], now: datetime | None) -> int:
    return int((await QUERIES["clear_soft"].one(connection, addresses=addresses, now=now))["cleared"])


async def delete_old_bounces(
    connection: Connection, *, retention: timedelta, batch_limit: int, now: datetime | None
) -> int:
    return await QUERIES["delete_old_bounces"].exec(connection, retention=retention, batch_limit=batch_limit, now=now)


async def delete_old_tokens(
    connection: Connection, *, retention: timedelta, batch_limit: int, now: datetime | None
) -> int:
    return await QUERIES["delete_old_tokens"].exec(connection, retention=retention, batch_limit=batch_limit, now=now)


async def delete_old_unread(
    connection: Connection, *, retention: timedelta, batch_limit: int, now: datetime | None
) -> int:
    return await QUERIES["delete_old_unread"].exec(connection, retention=retention, batch_limit=batch_limit, now=now)


async def find_erased(
    connection: Connection, *, addresses: Sequence[str], delivery_ids: Sequence[int]
) -> dict[str, str]:
    """Pseudonyms by address."""
    rows = await QUERIES["find_erased"].many(connection, addresses=addresses, delivery_ids=delivery_ids)
    return {row["address"]: row["pseudonym"] for row in rows}


async def find_sent(connection: Connection, *, delivery_ids: Sequence[int]) -> dict[int, SentDelivery]:
    rows = await QUERIES["find_sent"].many(connection, delivery_ids=delivery_ids)
    return {row["id"]: SentDelivery(row["id"], row["created_at"], tuple(row["recipients"])) for row in rows}


async def find_suppressions(connection: Connection, *, address: str) -> list[Suppression]:
    return [_suppression(row) for row in await QUERIES["find_suppressions"].many(connection, address=address)]


async def forget_soft_bounces(connection: Connection, *, address: str) -> int:
    return await QUERIES["forget_soft_bounces"].exec(connection, address=address)


async def keep_unread(
    connection: Connection, *, now: datetime | None, most: int, most_per_peer: int, **columns: Sequence[Any]
) -> int:
    return await QUERIES["keep_unread"].exec(connection, now=now, most=most, most_per_peer=most_per_peer, **columns)


async def lift(connection: Connection, *, address: str, reason: str | None) -> list[Suppression]:
    return [_suppression(row) for row in await QUERIES["lift"].many(connection, address=address, reason=reason)]


async def list_bounces(connection: Connection, **filters: Any) -> list[ReceivedReport]:
    return [read_row(ReceivedReport, row) for row in await QUERIES["list_bounces"].many(connection, **filters)]


async def list_changes(connection: Connection, *, address: str, page_limit: int) -> list[SuppressionChange]:
    rows = await QUERIES["list_changes"].many(connection, address=address, page_limit=page_limit)
    return [read_row(SuppressionChange, row) for row in rows]


async def list_export(connection: Connection, *, after_id: int | None, page_limit: int) -> list[Suppression]:
    rows = await QUERIES["list_export"].many(connection, after_id=after_id, page_limit=page_limit)
    return [_suppression(row) for row in rows]


async def list_suppressions(connection: Connection, **filters: Any) -> list[Suppression]:
    return [_suppression(row) for row in await QUERIES["list_suppressions"].many(connection, **filters)]


async def mark_complaints_reported(connection: Connection, *, now: datetime | None) -> Unreported:
    row = await QUERIES["mark_complaints_reported"].one(connection, now=now)
    return Unreported(row["complaints"], row["campaigns"], tuple(row["delivery_ids"] or ()))


async def merge_suppressions(connection: Connection, *, now: datetime | None, **columns: Sequence[Any]) -> int:
    return int((await QUERIES["merge_suppressions"].one(connection, now=now, **columns))["written"])


async def record_feedback(connection: Connection, *, now: datetime | None, **columns: Sequence[Any]) -> int:
    """Store reports; returns the number of new ones."""
    return int((await QUERIES["record_feedback"].one(connection, now=now, **columns))["recorded"])


async def say_who(connection: Connection, *, actor: str, note: str, quiet: bool) -> None:
    await QUERIES["say_who"].exec(connection, actor=actor, note=note, quiet=quiet)


async def use_token(connection: Connection, *, token: str, now: datetime | None) -> bool:
    return await QUERIES["use_token"].maybe(connection, token=token, now=now) is not None
