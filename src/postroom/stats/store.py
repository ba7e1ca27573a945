"""One function per statement of `queries.sql`, under the same name. Rows become models here and nowhere else."""

from collections.abc import Sequence
from typing import Any

import asyncpg
import msgspec

from postroom.db.queries import Connection, column, load, model
from postroom.events.model import Place
from postroom.stats.model import METRICS, Figures, LaneLatency, StatsRow, StepCounts

QUERIES = load("postroom.stats")

_amounts = msgspec.json.Decoder(dict[str, int]).decode


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


campaign_figures = QUERIES["campaign_figures"].one_as(lambda row: Figures.of(_amounts(row["figures"])))


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


delete_old_dimension_hours = QUERIES["delete_old_dimension_hours"].exec
delete_old_hours = QUERIES["delete_old_hours"].exec
fold = QUERIES["fold"].one_as(column("folded", int))


async def measure(connection: Connection, *, dimension: str | None, **selection: Any) -> list[StatsRow]:
    rows = await QUERIES["measure"].many(connection, dimension=dimension, **selection)
    return [_line(row, dimension) for row in rows]


measure_latency = QUERIES["measure_latency"].many_as(model(LaneLatency))
rebuild = QUERIES["rebuild"].one_as(column("steps", int))
