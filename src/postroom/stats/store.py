"""One function per statement of `queries.sql`, under the same name. Rows become models here and nowhere else."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import asyncpg
import msgspec

from postroom.db.queries import Connection, load
from postroom.events.model import Place
from postroom.runtime.record import read_row
from postroom.stats.model import METRICS, Figures, LaneLatency, StatsRow, StepCounts

QUERIES = load("postroom.stats")

_amounts = msgspec.json.Decoder(dict[str, int]).decode


async def campaign_figures(connection: Connection, *, campaign_id: int) -> Figures:
    row = await QUERIES["campaign_figures"].one(connection, campaign_id=campaign_id)
    return Figures.of(_amounts(row["figures"]))


async def count_steps_after(
    connection: Connection, *, transaction_id: int, position: int, bound: int
) -> StepCounts | None:
    rows = await QUERIES["count_steps_after"].many(
        connection, transaction_id=transaction_id, position=position, bound=bound
    )
    return _step_counts(rows, Place(transaction_id, position)) if rows else None


async def count_steps_before(
    connection: Connection, *, transaction_id: int | None, position: int | None, bound: int
) -> StepCounts | None:
    rows = await QUERIES["count_steps_before"].many(
        connection, transaction_id=transaction_id, position=position, bound=bound
    )
    if not rows:
        return None
    last = Place(rows[0]["last_transaction_id"], rows[0]["last_position"])
    return _step_counts(rows, Place(rows[0]["transaction_id"], rows[0]["position"]), last)


async def delete_old_dimension_hours(
    connection: Connection, *, retention: timedelta, batch_limit: int, now: datetime | None
) -> int:
    return await QUERIES["delete_old_dimension_hours"].exec(
        connection, retention=retention, batch_limit=batch_limit, now=now
    )


async def delete_old_hours(
    connection: Connection, *, retention: timedelta, batch_limit: int, now: datetime | None
) -> int:
    return await QUERIES["delete_old_hours"].exec(connection, retention=retention, batch_limit=batch_limit, now=now)


async def fold(connection: Connection, *, batch_limit: int) -> int:
    return int((await QUERIES["fold"].one(connection, batch_limit=batch_limit))["folded"])


async def measure(  # noqa: PLR0913 - a selection, column by column
    connection: Connection,
    *,
    dimension: str | None,
    value: str | None,
    groups: Sequence[str],
    campaign_id: int | None,
    sender_account_id: int | None,
    domain: str | None,
    begin_hour: datetime | None,
    end_hour: datetime | None,
    page_limit: int,
) -> list[StatsRow]:
    rows = await QUERIES["measure"].many(
        connection,
        dimension=dimension,
        value=value,
        groups=groups,
        campaign_id=campaign_id,
        sender_account_id=sender_account_id,
        domain=domain,
        begin_hour=begin_hour,
        end_hour=end_hour,
        page_limit=page_limit,
    )
    return [_line(row, dimension) for row in rows]


async def measure_latency(connection: Connection, *, since: datetime, bound: int) -> list[LaneLatency]:
    rows = await QUERIES["measure_latency"].many(connection, since=since, bound=bound)
    return [read_row(LaneLatency, row) for row in rows]


async def rebuild(connection: Connection) -> int:
    return int((await QUERIES["rebuild"].one(connection))["steps"])


def _step_counts(rows: Sequence[asyncpg.Record], first: Place, last: Place | None = None) -> StepCounts:
    """The counts of one read; without `last`, its rows have the last place."""
    counts = {(row["minute"], row["step"]): row["steps"] for row in rows}
    return StepCounts(counts, first, last or Place(rows[0]["transaction_id"], rows[0]["position"]))


def _line(row: asyncpg.Record, dimension: str | None) -> StatsRow:
    figures = Figures(**{metric: row[metric] for metric in METRICS})
    ids = {name: row[name] for name in ("campaign_id", "sender_account_id")}
    return StatsRow(moment=row["moment"], **{**ids, **_value(dimension, row["value"])}, figures=figures)


def _value(dimension: str | None, value: str | None) -> dict[str, Any]:
    """The column of the row that has the value of a dimension; None: the figures are not grouped by it."""
    if value is None or dimension is None:
        return {"domain": value}
    ids = {"campaign": "campaign_id", "sender": "sender_account_id"}
    return {ids[dimension]: int(value)} if dimension in ids else {dimension: value}
