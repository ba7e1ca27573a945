"""One function per statement of `queries.sql`."""

from collections.abc import Sequence
from datetime import datetime, timedelta

import asyncpg

from postroom.db.queries import Connection, load
from postroom.intake.model import MalformedCommand, MalformedGroup, MalformedSummary

QUERIES = load("postroom.intake")

_SUMMARY = tuple(MalformedSummary.__dataclass_fields__)


def _summary(row: asyncpg.Record) -> MalformedSummary:
    return MalformedSummary(*(row[name] for name in _SUMMARY))


async def count_malformed_commands(connection: Connection, *, count_limit: int) -> int:
    row = await QUERIES["count_malformed_commands"].one(connection, count_limit=count_limit)
    return int(row["waiting"])


async def delete_old_malformed_commands(
    connection: Connection, *, retention: timedelta, batch_limit: int, now: datetime | None
) -> int:
    return await QUERIES["delete_old_malformed_commands"].exec(
        connection, retention=retention, batch_limit=batch_limit, now=now
    )


async def dismiss_malformed_commands(connection: Connection, *, command_ids: Sequence[int]) -> list[int]:
    """Return the ids of newly dismissed commands."""
    rows = await QUERIES["dismiss_malformed_commands"].many(connection, command_ids=command_ids)
    return [row["id"] for row in rows]


async def find_malformed_command(connection: Connection, *, command_id: int) -> MalformedCommand | None:
    row = await QUERIES["find_malformed_command"].maybe(connection, command_id=command_id)
    return MalformedCommand(_summary(row), row["raw"]) if row else None


async def group_malformed_commands(connection: Connection, *, count_limit: int) -> list[MalformedGroup]:
    rows = await QUERIES["group_malformed_commands"].many(connection, count_limit=count_limit)
    return [MalformedGroup(**row) for row in rows]


async def list_malformed_commands(  # noqa: PLR0913 - one for each parameter of the statement
    connection: Connection,
    *,
    reason: str | None,
    source: str | None,
    resubmitted: bool | None,
    dismissed: bool | None,
    before_id: int | None,
    page_limit: int,
) -> list[MalformedSummary]:
    rows = await QUERIES["list_malformed_commands"].many(
        connection,
        reason=reason,
        source=source,
        resubmitted=resubmitted,
        dismissed=dismissed,
        before_id=before_id,
        page_limit=page_limit,
    )
    return [_summary(row) for row in rows]


async def lock_malformed_command(connection: Connection, *, command_id: int) -> MalformedCommand | None:
    row = await QUERIES["lock_malformed_command"].maybe(connection, command_id=command_id)
    return MalformedCommand(_summary(row), row["raw"]) if row else None


async def mark_malformed_notified(connection: Connection, *, now: datetime | None) -> int:
    row = await QUERIES["mark_malformed_notified"].one(connection, now=now)
    return int(row["told"])


async def mark_resubmitted(connection: Connection, *, command_id: int, delivery_id: int) -> bool:
    changed = await QUERIES["mark_resubmitted"].exec(connection, command_id=command_id, delivery_id=delivery_id)
    return changed == 1


async def record_malformed_commands(
    connection: Connection,
    *,
    entry: Sequence[str | None],
    source: Sequence[str],
    reason: Sequence[str],
    detail: Sequence[str],
    raw: Sequence[bytes],
) -> list[str]:
    """Return the reasons of newly recorded commands."""
    rows = await QUERIES["record_malformed_commands"].many(
        connection, entry=entry, source=source, reason=reason, detail=detail, raw=raw
    )
    return [row["reason"] for row in rows]
