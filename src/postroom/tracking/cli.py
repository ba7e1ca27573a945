"""Commands of clicks: by link of a campaign, and by person."""

import sys
from collections.abc import Awaitable, Callable, Sequence
from typing import Annotated, Any

import msgspec
import typer

from postroom.db.room import Room
from postroom.runtime.terminal import LARGEST_ID, AsJson, Cursor, Limit, in_room, print_page
from postroom.tracking import service
from postroom.tracking.api import csv_of
from postroom.tracking.model import ClickedLink, LinkFigures

clicks = typer.Typer()

AsCsv = Annotated[bool, typer.Option("--csv", help="Print all rows as CSV; ignores the limit.")]
CampaignId = Annotated[int, typer.Argument(min=1, max=LARGEST_ID, help="Campaign id.")]

_CSV_PAGE = 1000  # rows per statement


@clicks.command("list")
def list_(  # noqa: PLR0913 - one parameter per option
    *,
    campaign: Annotated[
        int | None, typer.Option(min=1, max=LARGEST_ID, help="Clicks on mail of this campaign.")
    ] = None,
    email: Annotated[str | None, typer.Option(help="Clicks of this person.")] = None,
    url: Annotated[str | None, typer.Option(help="Clicks on this link.")] = None,
    limit: Limit = 50,
    cursor: Cursor = None,
    as_json: AsJson = False,
    as_csv: AsCsv = False,
) -> None:
    """List clicks by person and link. Give a campaign, a person or a link."""

    async def page(room: Room, cursor: str | None, limit: int) -> tuple[Sequence[Any], str | None]:
        return await service.list_clicks(
            room.pool, campaign_id=campaign, email=email, url=url, cursor=cursor, limit=limit
        )

    _print(ClickedLink, page, limit=limit, cursor=cursor, as_json=as_json, as_csv=as_csv)


@clicks.command()
def links(
    campaign_id: CampaignId, *, limit: Limit = 50, cursor: Cursor = None, as_json: AsJson = False, as_csv: AsCsv = False
) -> None:
    """List the links of a campaign with their clicks, the most clicked first."""

    async def page(room: Room, cursor: str | None, limit: int) -> tuple[Sequence[Any], str | None]:
        return await service.list_links(room.pool, campaign_id, cursor=cursor, limit=limit)

    _print(LinkFigures, page, limit=limit, cursor=cursor, as_json=as_json, as_csv=as_csv)


def _print(
    kind: type[msgspec.Struct],
    page: Callable[[Room, str | None, int], Awaitable[tuple[Sequence[Any], str | None]]],
    *,
    limit: int,
    cursor: str | None,
    as_json: bool,
    as_csv: bool,
) -> None:
    if as_csv:
        in_room(lambda room: _write_csv(room, kind, page))
        return
    found, more = in_room(lambda room: page(room, cursor, limit))
    print_page(found, more, columns=kind.__struct_fields__, as_json=as_json)


async def _write_csv(
    room: Room,
    kind: type[msgspec.Struct],
    page: Callable[[Room, str | None, int], Awaitable[tuple[Sequence[Any], str | None]]],
) -> None:
    found, cursor = await page(room, None, _CSV_PAGE)
    sys.stdout.write(csv_of(kind, found, header=True))
    while cursor is not None:
        found, cursor = await page(room, cursor, _CSV_PAGE)
        sys.stdout.write(csv_of(kind, found, header=False))
