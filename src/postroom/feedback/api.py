"""HTTP endpoints of suppressions and reports.

`suppressions:read` permits reading, `suppressions:write` adding, lifting and importing. Lifting overrides a request of
a person or their provider, so the audit log and the address's history record the actor and the reason.
"""

from collections.abc import AsyncIterator
from functools import partial
from typing import Annotated

import msgspec

from postroom.errors import BadInput
from postroom.feedback import service
from postroom.feedback.lists import ListReader, lines_of, write_lines
from postroom.feedback.model import (
    FeedbackKind,
    NewSuppression,
    ReceivedReport,
    Suppression,
    SuppressionChange,
    SuppressionReason,
)
from postroom.runtime.endpoint import MEGABYTE, Answer, Call, Endpoint
from postroom.runtime.page import Page, PageQuery
from postroom.runtime.record import Shape, Text, answer, response
from postroom.runtime.service_endpoint import serve

READ = "suppressions:read"
WRITE = "suppressions:write"
CSV = "text/csv; charset=utf-8"

Email = Annotated[str, msgspec.Meta(min_length=3, max_length=320, pattern=r"^[^\x00]*$")]
ExportLimit = Annotated[int, msgspec.Meta(ge=1, le=100_000, description="Maximum number of rows per page.")]
Number = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
Origin = Annotated[str, msgspec.Meta(min_length=1, max_length=100, pattern=r"^[^\x00-\x1f\x7f]*$")]


class SuppressionQuery(PageQuery, frozen=True, kw_only=True):
    """Filter and page of suppressions."""

    email: Email | None = None
    reason: SuppressionReason | None = None
    origin: Origin | None = None


class LiftQuery(Shape, frozen=True, kw_only=True):
    """The address to lift; with a reason, only its suppressions for that reason. The note is the explanation."""

    email: Email | None = None
    reason: SuppressionReason | None = None
    note: Text = ""


class ReportQuery(PageQuery, frozen=True, kw_only=True, rename={"is_verified": "verified"}):
    """Filter and page of reports."""

    email: Email | None = None
    delivery_id: Number | None = None
    kind: FeedbackKind | None = None
    is_verified: bool | None = None


class ExportQuery(PageQuery, frozen=True, kw_only=True):
    """Page of the export."""

    limit: ExportLimit = 100_000


HistoryStep = response(SuppressionChange, "HistoryStep", hide=("id",))


class AddressShape(msgspec.Struct, frozen=True):
    """One address: its suppressions and their history."""

    items: list[Suppression]
    history: list[HistoryStep]  # type: ignore[valid-type]  # made by `response`


class RefusedLine(msgspec.Struct, frozen=True):
    """A rejected line of a file."""

    line: int
    message: str


class ImportShape(msgspec.Struct, frozen=True):
    """The result of an import; the first thousand rejected lines are listed."""

    total: int
    imported: int
    refused: int
    errors: list[RefusedLine]


async def get_address(call: Call) -> Answer:
    email = call.path["email"]
    found = await service.find_suppressions(call.room.pool, email)
    history = await service.list_history(call.room.pool, email)
    return Answer(AddressShape(found, [answer(HistoryStep, each) for each in history]))


async def lift_suppression(call: Call) -> Answer:
    """The address from the query or a JSON body, because some clients cannot send a DELETE with a body."""
    query: LiftQuery = call.query
    if call.raw.strip():
        try:
            query = msgspec.json.decode(call.raw, type=LiftQuery)
        except msgspec.MsgspecError as error:
            raise BadInput.of("body", str(error)) from None
    if query.email is None:
        raise BadInput.of("email", "is required")
    lifted = await service.lift(
        call.room.pool,
        query.email,
        actor=call.actor,
        reason=query.reason,
        note=query.note,
    )
    return Answer(Page(lifted, None))


async def import_suppressions(call: Call) -> Answer:
    reader = ListReader()
    assert call.chunks is not None
    written = 0
    async for lines in _gathered(lines_of(call.chunks)):
        batch = reader.read(lines)
        if batch:
            written += await service.import_batch(call.room.pool, batch, actor=call.actor)
    result = reader.result
    await service.record_import(call.room.pool, actor=call.actor, imported=written, refused=result.refused)
    errors = [RefusedLine(number, problem) for number, problem in result.problems]
    return Answer(ImportShape(result.lines, written, result.refused, errors))


async def _gathered(pieces: AsyncIterator[list[str]], size: int = 5000) -> AsyncIterator[list[str]]:
    """Group lines into batches of one statement each."""
    waiting: list[str] = []
    async for lines in pieces:
        waiting += lines
        while len(waiting) >= size:
            yield waiting[:size]
            waiting = waiting[size:]
    if waiting:
        yield waiting


async def export_suppressions(call: Call) -> Answer:
    """One page of CSV. Responses are built in memory, so a page is bounded and a header names the next page."""
    query: ExportQuery = call.query
    found, cursor = await service.export_page(call.room.pool, cursor=query.cursor, limit=query.limit)
    text = write_lines(found, header=query.cursor is None)
    headers = {"content-disposition": 'attachment; filename="suppressions.csv"'}
    if cursor is not None:
        headers["x-next-cursor"] = cursor
    return Answer(text.encode(), media_type=CSV, headers=headers)


_endpoint = partial(Endpoint, tag="suppressions")
_serve = partial(serve, tag="suppressions")

ENDPOINTS = [
    _serve(
        "GET", "/v1/suppressions", service.list_suppressions, "List suppressions, newest first.", scope=READ,
        query=SuppressionQuery, from_replica=True, answers={200: Page[Suppression]},
    ),
    _serve(
        "POST", "/v1/suppressions", service.suppress,
        "Suppress an address. An existing suppression for a more severe reason is kept.", scope=WRITE,
        body=NewSuppression, answers={201: Suppression}, name="add_suppression",
    ),
    _endpoint(
        "DELETE", "/v1/suppressions", lift_suppression, "Lift the suppressions of an address; the history stays.",
        scope=WRITE, query=LiftQuery, most_body=MEGABYTE, answers={200: Page[Suppression]}, problems=(404,),
    ),
    _endpoint(
        "POST", "/v1/suppressions/import", import_suppressions, "Suppress every address of a CSV file of any size.",
        scope=WRITE, accepts=("text/csv",), stream=True, answers={200: ImportShape},
    ),
    _endpoint(
        "GET", "/v1/suppressions/export", export_suppressions,
        "All suppressions as CSV, oldest first; X-Next-Cursor names the next page.", scope=READ, query=ExportQuery,
        from_replica=True, answers={200: None}, media_type=CSV,
    ),
    _endpoint(
        "GET", "/v1/suppressions/{email}", get_address, "One address: what is suppressed now, and its history.",
        scope=READ, answers={200: AddressShape},
    ),
    _serve(
        "GET", "/v1/bounces", service.list_reports, "List reported bounces, complaints and unsubscribes, newest first.",
        scope=READ, query=ReportQuery, from_replica=True, answers={200: Page[ReceivedReport]}, name="list_bounces",
    ),
]  # fmt: skip
