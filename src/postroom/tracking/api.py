"""HTTP endpoints of clicks: by link of a campaign, and by person; as JSON and as CSV."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import msgspec

from postroom.runtime.endpoint import Answer, Call, Endpoint
from postroom.runtime.page import Page, PageQuery
from postroom.runtime.record import Text
from postroom.runtime.service_endpoint import serve
from postroom.runtime.spreadsheet import write_rows
from postroom.tracking import service
from postroom.tracking.model import ClickedLink, LinkFigures

READ = "campaigns:read"

_LINKS = "/v1/campaigns/{campaign_id:int}/links"


class ClickQuery(PageQuery, frozen=True, kw_only=True):
    """Filter of clicks by campaign, person and link, and the page."""

    campaign_id: int | None = None
    email: Text | None = None
    url: Text | None = None


async def export_clicks(call: Call) -> Answer:
    page = await service.list_clicks(call.room.pool, **msgspec.structs.asdict(call.query))
    return _csv("clicks.csv", ClickedLink, *page, is_first=call.query.cursor is None)


async def export_links(call: Call) -> Answer:
    query: PageQuery = call.query
    page = await service.list_links(call.room.pool, call.path["campaign_id"], cursor=query.cursor, limit=query.limit)
    return _csv("links.csv", LinkFigures, *page, is_first=query.cursor is None)


def _csv(
    filename: str, kind: type[msgspec.Struct], found: Sequence[msgspec.Struct], cursor: str | None, *, is_first: bool
) -> Answer:
    """One page as CSV; the header `x-next-cursor` names the next."""
    headers = {"content-disposition": f'attachment; filename="{filename}"'}
    if cursor is not None:
        headers["x-next-cursor"] = cursor
    return Answer(csv_of(kind, found, header=is_first).encode(), media_type="text/csv", headers=headers)


def csv_of(kind: type[msgspec.Struct], found: Sequence[msgspec.Struct], *, header: bool) -> str:
    """Records as CSV, a column per field, times in ISO 8601."""
    rows: list[Sequence[Any]] = [kind.__struct_fields__] if header else []
    rows += [list(msgspec.to_builtins(msgspec.structs.asdict(each)).values()) for each in found]
    return write_rows(rows)


_endpoint = partial(Endpoint, scope=READ, tag="campaigns")
_serve = partial(serve, scope=READ, tag="campaigns")

ENDPOINTS = (
    _serve(
        "GET", "/v1/clicks", service.list_clicks, "List clicks by person and link; give campaign_id, email or url.",
        query=ClickQuery, from_replica=True, answers={200: Page[ClickedLink]},
    ),
    _endpoint(
        "GET", "/v1/clicks/export", export_clicks,
        "Export clicks by person and link as CSV; x-next-cursor names the next page.", query=ClickQuery,
        from_replica=True, answers={200: str}, media_type="text/csv",
    ),
    _serve(
        "GET", _LINKS, service.list_links, "List the links of a campaign with their clicks, the most clicked first.",
        query=PageQuery, from_replica=True, answers={200: Page[LinkFigures]},
    ),
    _endpoint(
        "GET", f"{_LINKS}/export", export_links,
        "Export the links of a campaign with their clicks as CSV; x-next-cursor names the next page.", query=PageQuery,
        from_replica=True, answers={200: str}, media_type="text/csv",
    ),
)  # fmt: skip
