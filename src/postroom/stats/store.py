"""One function per statement of `queries.sql`, under the same name. Rows become models here and nowhere else."""

from collections.abc import Sequence
from datetime import datetime, timedelta

import asyncpg
import msgspec

from postroom.db.queries import Connection, load
from postroom.stats.model import METRICS, Figures, StatsRow

QUERIES = load("postroom.stats")

_amounts = msgspec.json.Decoder(dict[str, int]).decode


async def campaign_figures(connection: Connection, *, campaign_id: int) -> Figures:
    row = await QUERIES["campaign_figures"].one(connection, campaign_id=campaign_id)
    return Figures.of(_amounts(row["figures"]))


async def delete_old_hours(
    connection: Connection, *, retention: timedelta, batch_limit: int, now: datetime | None
) -> int:
    return await QUERIES["delete_old_hours"].exec(connection, retention=retention, batch_limit=batch_limit, now=now)


async def fold(connection: Connection, *, batch_limit: int) -> int:
    return int((await QUERIES["fold"].one(connection, batch_limit=batch_limit))["folded"])


async def index_custom_data(connection: Connection) -> None:
    await QUERIES["index_custom_data"].exec(connection)


async def measure(  # noqa: PLR0913 - a selection, column by column
    connection: Connection,
    *,
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
        groups=groups,
        campaign_id=campaign_id,
        sender_account_id=sender_account_id,
        domain=domain,
        begin_hour=begin_hour,
        end_hour=end_hour,
        page_limit=page_limit,
    )
    return [_line(row) for row in rows]


async def rebuild(connection: Connection) -> int:
    return int((await QUERIES["rebuild"].one(connection))["steps"])


def _line(row: asyncpg.Record) -> StatsRow:
    return StatsRow(
        moment=row["moment"],
        campaign_id=row["campaign_id"],
        sender_account_id=row["sender_account_id"],
        domain=row["domain"],
        figures=Figures(**{metric: row[metric] for metric in METRICS}),
    )
