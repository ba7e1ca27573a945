"""Read figures. Every read is one statement, so its figures are consistent."""

from collections.abc import Sequence
from datetime import datetime

from postroom.db.pool import Pool
from postroom.db.queries import Connection
from postroom.errors import BadInput
from postroom.events.audit import audited
from postroom.stats import store
from postroom.stats.model import ALONE, HOUR, TIMES, Figures, Grouping, LaneLatency, Selection, StatsRow, in_order

MOST_LINES = 10_000
"""Maximum rows of one response: a year of hours."""

LATENCY_STEPS = 2000
"""Steps of deliveries that a latency is computed from."""


async def measure(
    pool: Pool, selection: Selection, *, groups: Sequence[Grouping], limit: int = MOST_LINES
) -> list[StatsRow]:
    """Figures of a selection by any of the groupings: ordered by time, or by the number of sent mails."""
    _check(selection, groups)
    async with pool.acquire() as connection:
        return await _read(connection, selection, groups, limit)


async def total(pool: Pool, selection: Selection) -> Figures:
    """The total of a selection."""
    _check(selection, ())
    async with pool.acquire() as connection:
        lines = await _read(connection, selection, (), 1)
    return lines[0].figures if lines else Figures()


async def campaign_figures(connection: Connection, campaign_id: int) -> Figures:
    """All counts of one campaign, in the caller's transaction."""
    return await store.campaign_figures(connection, campaign_id=campaign_id)


async def measure_latency(pool: Pool, *, now: datetime) -> list[LaneLatency]:
    """The latency of each lane in the last hour, of the newest mail up to `LATENCY_STEPS`."""
    return await store.measure_latency(pool, since=now - HOUR, bound=LATENCY_STEPS)


async def rebuild(pool: Pool, *, actor: str) -> int:
    """Count all steps in the database again; returns their number. Readers see the old figures until it is done."""
    async with audited(pool, actor, "stats.rebuild", "stats") as (connection, note):
        steps = await store.rebuild(connection)
        note.after = {"steps": steps}
    return steps


async def _read(connection: Connection, selection: Selection, groups: Sequence[Grouping], limit: int) -> list[StatsRow]:
    used = _dimensions(selection, groups)
    return await store.measure(
        connection,
        dimension=_source(used),
        value=next(iter(selection.values.values()), None),
        groups=[group.value for group in in_order(groups)],
        campaign_id=selection.campaign_id,
        sender_account_id=selection.sender_account_id,
        domain=selection.values.get(Grouping.DOMAIN),
        begin_hour=selection.begin_hour,
        end_hour=selection.end_hour,
        page_limit=limit,
    )


def _check(selection: Selection, groups: Sequence[Grouping]) -> None:
    if selection.begin is not None and selection.end is not None and selection.begin >= selection.end:
        raise BadInput.of("to", "must be later than from")
    if Grouping.HOUR in groups and Grouping.DAY in groups:
        raise BadInput.of("by", "takes hour or day, not both")
    used = _dimensions(selection, groups)
    if used & ALONE and len(used) > 1:
        alone = min(used & ALONE)
        raise BadInput.of(alone.value, f"cannot be combined with {', '.join(sorted(used - {alone}))}")


def _dimensions(selection: Selection, groups: Sequence[Grouping]) -> set[Grouping]:
    """The dimensions that a question is about, besides time."""
    return {*groups, *selection.values} - TIMES


def _source(used: set[Grouping]) -> str | None:
    """The dimension whose counts answer the question; None: those by campaign, sender and domain together."""
    if not used:
        return "total"
    return min(used).value if len(used) == 1 and used != {Grouping.DOMAIN} else None
