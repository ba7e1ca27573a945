"""Commands of statistics: a table, and a plot over time."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Annotated

import typer

from postroom.db.room import Room
from postroom.runtime.terminal import (
    LARGEST_ID,
    AsJson,
    Limit,
    actor,
    in_room,
    parse_moment,
    print_json,
    print_table,
    say,
)
from postroom.stats import service
from postroom.stats.api import FiguresShape, shape_line
from postroom.stats.model import COLUMNS, METRICS, Figures, Grouping, Selection, StatsRow
from postroom.stats.plot import bar, sparkline

stats = typer.Typer()

_BAR_WIDTH = 40  # with time and number, a line fits 80 columns
_SHOWN = (
    "accepted",
    "sent",
    "delivered",
    "bounced",
    "refused",
    "deferred",
    "suppressed",
    "cancelled",
    "dead_lettered",
    "opened_unique",
    "clicked_unique",
    "unsubscribed",
    "complained",
)

Campaign = Annotated[
    int | None, typer.Option("--campaign", min=0, max=LARGEST_ID, help="Campaign id; 0: mail without a campaign.")
]
Sender = Annotated[
    int | None, typer.Option("--sender", min=0, max=LARGEST_ID, help="Sender id; 0: mail without a sender.")
]
Domain = Annotated[str | None, typer.Option(help="Recipient domain.")]
Template = Annotated[str | None, typer.Option(help="Template id, without another filter but the period; '': none.")]
Tag = Annotated[str | None, typer.Option(help="Tag as key=value, without another filter but the period; '': none.")]
From = Annotated[
    datetime | None, typer.Option("--from", parser=parse_moment, help="Start of the period; rounded down to the hour.")
]
To = Annotated[
    datetime | None,
    typer.Option("--to", parser=parse_moment, help="End of the period; hours that begin before it are included."),
]
Groups = Annotated[list[Grouping] | None, typer.Option("--by", help="Group by this dimension; repeatable.")]


@stats.command()
def show(  # noqa: PLR0913 - every filter is an option
    *,
    by: Groups = None,
    campaign: Campaign = None,
    sender: Sender = None,
    domain: Domain = None,
    template: Template = None,
    tag: Tag = None,
    begin: From = None,
    end: To = None,
    limit: Limit = 50,
    as_json: AsJson = False,
) -> None:
    """Show figures: one total, or a row per campaign, sender, domain, template, tag, hour or day."""
    groups = by or []
    selection = Selection(
        campaign_id=campaign,
        sender_account_id=sender,
        domain=domain,
        template=template,
        tag=tag,
        begin=begin,
        end=end,
    )
    lines = in_room(lambda room: _measure(room, selection, groups, limit))
    if as_json:
        print_json(_as_json(lines, groups))
        return
    keys = list(dict.fromkeys(COLUMNS[group] for group in groups))
    print_table([*keys, *_SHOWN], _rows(lines, keys))


def _rows(lines: list[StatsRow], keys: list[str]) -> Iterator[list[object]]:
    """The cells of a table. Accepted mail is counted without domain and sender, so such tables have no value for it."""
    is_hidden = bool({"domain", "sender_account_id"} & set(keys))
    for line in lines:
        figures = replace(line.figures, accepted=0) if is_hidden else line.figures
        if is_hidden and figures == Figures():
            continue
        shown = {name: getattr(figures, name) for name in _SHOWN}
        yield [
            *(getattr(line, key) for key in keys),
            *("-" if is_hidden and name == "accepted" else value for name, value in shown.items()),
        ]


@stats.command()
def series(  # noqa: PLR0913 - every filter is an option
    *,
    metric: Annotated[str, typer.Option(help="Metric to plot: " + ", ".join((*METRICS, "delivered")) + ".")] = "sent",
    hourly: Annotated[bool, typer.Option("--hourly", help="Plot by hour instead of by day.")] = False,
    campaign: Campaign = None,
    sender: Sender = None,
    domain: Domain = None,
    template: Template = None,
    tag: Tag = None,
    begin: From = None,
    end: To = None,
    as_json: AsJson = False,
) -> None:
    """Plot one metric over time: by default the last two days by hour, or the last thirty days."""
    if metric not in (*METRICS, "delivered"):
        raise typer.BadParameter(f"{metric!r} is not a metric", param_hint="--metric")
    group = Grouping.HOUR if hourly else Grouping.DAY
    begin = begin or datetime.now(UTC) - (timedelta(days=2) if hourly else timedelta(days=30))
    selection = Selection(
        campaign_id=campaign,
        sender_account_id=sender,
        domain=domain,
        template=template,
        tag=tag,
        begin=begin,
        end=end,
    )
    lines = in_room(lambda room: _measure(room, selection, [group], None))
    if as_json:
        print_json(_as_json(lines, [group]))
        return
    _plot(lines, metric, group)


@stats.command()
def rebuild() -> None:
    """Count all steps of deliveries in the database again, month by month; archived months keep their counts."""
    steps = in_room(lambda room: service.rebuild(room.pool, actor=actor()))
    say(f"counted {steps} steps")


async def _measure(room: Room, selection: Selection, groups: list[Grouping], limit: int | None) -> list[StatsRow]:
    return await service.measure(room.pool, selection, groups=groups, limit=limit or service.MOST_LINES)


def _as_json(lines: list[StatsRow], groups: list[Grouping]) -> dict[str, list[FiguresShape] | None]:
    return {"items": [shape_line(line, groups) for line in lines], "next_cursor": None}


def _plot(lines: list[StatsRow], metric: str, group: Grouping) -> None:
    amounts = [int(getattr(line.figures, metric)) for line in lines]
    most = max(amounts, default=0)
    for line, amount in zip(lines, amounts, strict=True):
        assert line.moment is not None
        moment = line.moment.astimezone(UTC).strftime("%Y-%m-%d %H:00" if group is Grouping.HOUR else "%Y-%m-%d")
        say(f"{moment}  {bar(amount, most, width=_BAR_WIDTH):<{_BAR_WIDTH}}  {amount}")
    say(f"{metric} {sum(amounts)}  {sparkline(amounts)}".rstrip())
