"""Suppressions and reports over HTTP.

`suppressions:read` looks, `suppressions:write` adds, lifts and imports. Lifting is undoing what a person or their
provider asked for, so it says who did it and why, in the audit log and in the address's history.
"""

from collections.abc import AsyncIterator
from datetime import datetime
from typing import Annotated, Literal

import msgspec

from postroom.errors import BadInput
from postroom.feedback import service
from postroom.feedback.lists import ListReader, lines_of, write_lines
from postroom.feedback.model import FeedbackKind, NewSuppression, Reason, ReportRow, Scope, Suppression
from postroom.feedback.service import ReportFilter, SuppressionFilter
from postroom.runtime.endpoint import MEGABYTE, Answer, Call, Endpoint
from postroom.runtime.page import Cursor, Limit
from postroom.runtime.record import Shape, Text

READ = "suppressions:read"
WRITE = "suppressions:write"
CSV = "text/csv; charset=utf-8"

Email = Annotated[str, msgspec.Meta(min_length=3, max_length=320, pattern=r"^[^\x00]*$")]
ReasonName = Literal["hard_bounce", "soft_bounce", "complaint", "unsubscribe", "manual"]
ExportLimit = Annotated[int, msgspec.Meta(ge=1, le=100_000, description="How many lines a page holds at most.")]
Number = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
Origin = Annotated[str, msgspec.Meta(min_length=1, max_length=100, pattern=r"^[^\x00-\x1f\x7f]*$")]


class SuppressionQuery(Shape, frozen=True, kw_only=True):
    """Which suppressions, and which page of them."""

    email: Email | None = None
    reason: ReasonName | None = None
    origin: Origin | None = None
    cursor: Cursor | None = None
    limit: Limit = 50


class SuppressionBody(Shape, frozen=True, kw_only=True):
    """Whom to suppress, and why. An unsubscribe stops bulk mail only; every other reason stops everything."""

    email: Email
    reason: ReasonName = "manual"
    origin: Origin | None = None
    campaign_id: Number | None = None
    scope: Literal["bulk", "all"] | None = None
    detail: Annotated[str, msgspec.Meta(max_length=500, pattern=r"^[^\x00]*$")] | None = None


class LiftQuery(Shape, frozen=True, kw_only=True):
    """Whom to give back; with a reason, only what is suppressed for it. The note says why it is undone."""

    email: Email | None = None
    reason: ReasonName | None = None
    note: Text = ""


class ReportQuery(Shape, frozen=True, kw_only=True):
    """Which reports, and which page of them."""

    email: Email | None = None
    delivery_id: Number | None = None
    kind: Literal["bounce", "complaint", "unsubscribe"] | None = None
    verified: Literal["true", "false"] | None = None
    cursor: Cursor | None = None
    limit: Limit = 50


class ExportQuery(Shape, frozen=True, kw_only=True):
    """Which page of the export."""

    cursor: Cursor | None = None
    limit: ExportLimit = 100_000


class SuppressionShape(msgspec.Struct, frozen=True, kw_only=True):
    """Why an address gets nothing; `until` is null if it is for good."""

    id: int
    email: str
    reason: str
    scope: str
    origin: str
    campaign_id: int | None
    sender_account_id: int | None
    created_at: datetime
    until: datetime | None
    first_seen_at: datetime
    last_seen_at: datetime
    bounce_count: int
    code: str | None
    detail: str | None


class SuppressionPage(msgspec.Struct, frozen=True):
    """Suppressions, newest first."""

    items: list[SuppressionShape]
    next_cursor: str | None


class ChangeShape(msgspec.Struct, frozen=True, kw_only=True):
    """One step in the history of an address."""

    at: datetime
    change: str
    reason: str
    scope: str
    until: datetime | None
    origin: str
    actor: str | None
    note: str | None


class AddressShape(msgspec.Struct, frozen=True):
    """One address: what is suppressed now, and all that ever was."""

    items: list[SuppressionShape]
    history: list[ChangeShape]


class ReportShape(msgspec.Struct, frozen=True, kw_only=True):
    """A bounce, complaint or unsubscribe as it was reported."""

    id: int
    kind: str
    classification: str | None
    delivery_id: int | None
    campaign_id: int | None
    sender_account_id: int | None
    email: str | None
    code: int | None
    enhanced: str | None
    text: str | None
    origin: str
    reported_at: datetime
    verified: bool


class ReportPage(msgspec.Struct, frozen=True):
    """Reports, newest first."""

    items: list[ReportShape]
    next_cursor: str | None


class RefusedLine(msgspec.Struct, frozen=True):
    """A line of a file that could not be used."""

    line: int
    message: str


class ImportShape(msgspec.Struct, frozen=True):
    """What became of a file; of the refused lines the first thousand are named."""

    total: int
    imported: int
    refused: int
    errors: list[RefusedLine]


def shape(suppression: Suppression) -> SuppressionShape:
    return SuppressionShape(
        id=suppression.id,
        email=suppression.email,
        reason=suppression.reason.value,
        scope=suppression.scope.value,
        origin=suppression.origin,
        campaign_id=suppression.campaign_id,
        sender_account_id=suppression.sender_account_id,
        created_at=suppression.created_at,
        until=suppression.until,
        first_seen_at=suppression.first_seen_at,
        last_seen_at=suppression.last_seen_at,
        bounce_count=suppression.bounce_count,
        code=suppression.code,
        detail=suppression.detail,
    )


def report_shape(row: ReportRow) -> ReportShape:
    return ReportShape(
        id=row.id,
        kind=row.kind.value,
        classification=row.classification.value if row.classification else None,
        delivery_id=row.delivery_id,
        campaign_id=row.campaign_id,
        sender_account_id=row.sender_account_id,
        email=row.email,
        code=row.code,
        enhanced=row.enhanced,
        text=row.text,
        origin=row.origin,
        reported_at=row.reported_at,
        verified=row.is_verified,
    )


async def list_suppressions(call: Call) -> Answer:
    query: SuppressionQuery = call.query
    reason = Reason(query.reason) if query.reason else None
    chosen = SuppressionFilter(email=query.email, reason=reason, origin=query.origin)
    found, cursor = await service.list_suppressions(call.room.pool, chosen, cursor=query.cursor, limit=query.limit)
    return Answer(SuppressionPage([shape(each) for each in found], cursor))


async def get_address(call: Call) -> Answer:
    email = call.path["email"]
    found = await service.find_suppressions(call.room.pool, email)
    history = await service.list_history(call.room.pool, email)
    changes = [
        ChangeShape(
            at=each.at,
            change=each.change,
            reason=each.reason.value,
            scope=each.scope.value,
            until=each.until,
            origin=each.origin,
            actor=each.actor,
            note=each.note,
        )
        for each in history
    ]
    return Answer(AddressShape([shape(each) for each in found], changes))


async def add_suppression(call: Call) -> Answer:
    body: SuppressionBody = call.body
    wanted = NewSuppression(
        address=body.email,
        reason=Reason(body.reason),
        scope=Scope(body.scope) if body.scope else None,
        origin=body.origin or "api",
        campaign_id=body.campaign_id,
        detail=body.detail,
    )
    return Answer(shape(await service.suppress(call.room.pool, wanted, actor=call.actor)), 201)


async def lift_suppression(call: Call) -> Answer:
    """The address in the query, or in a JSON body: programs differ in whether their DELETE can have one."""
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
        reason=Reason(query.reason) if query.reason else None,
        note=query.note,
    )
    return Answer(SuppressionPage([shape(each) for each in lifted], None))


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
    """The same lines in pieces worth a statement."""
    waiting: list[str] = []
    async for lines in pieces:
        waiting += lines
        while len(waiting) >= size:
            yield waiting[:size]
            waiting = waiting[size:]
    if waiting:
        yield waiting


async def export_suppressions(call: Call) -> Answer:
    """CSV by pages: an answer is made whole before it leaves, so a page is bounded and its header names the next."""
    query: ExportQuery = call.query
    found, cursor = await service.export_page(call.room.pool, cursor=query.cursor, limit=query.limit)
    text = write_lines(found, header=query.cursor is None)
    headers = {"content-disposition": 'attachment; filename="suppressions.csv"'}
    if cursor is not None:
        headers["x-next-cursor"] = cursor
    return Answer(text.encode(), media_type=CSV, headers=headers)


async def list_reports(call: Call) -> Answer:
    query: ReportQuery = call.query
    chosen = ReportFilter(
        email=query.email,
        delivery_id=query.delivery_id,
        kind=FeedbackKind(query.kind) if query.kind else None,
        is_verified=None if query.verified is None else query.verified == "true",
    )
    found, cursor = await service.list_reports(call.room.pool, chosen, cursor=query.cursor, limit=query.limit)
    return Answer(ReportPage([report_shape(each) for each in found], cursor))


ENDPOINTS = [
    Endpoint(
        method="GET",
        path="/v1/suppressions",
        handler=list_suppressions,
        summary="List suppressions, newest first.",
        scope=READ,
        tag="suppressions",
        query=SuppressionQuery,
        answers={200: SuppressionPage},
    ),
    Endpoint(
        method="POST",
        path="/v1/suppressions",
        handler=add_suppression,
        summary="Suppress an address; a graver reason that is there already stays.",
        scope=WRITE,
        tag="suppressions",
        body=SuppressionBody,
        answers={201: SuppressionShape},
    ),
    Endpoint(
        method="DELETE",
        path="/v1/suppressions",
        handler=lift_suppression,
        summary="Give an address back; the history stays.",
        scope=WRITE,
        tag="suppressions",
        query=LiftQuery,
        most_body=MEGABYTE,
        answers={200: SuppressionPage},
        problems=(404,),
    ),
    Endpoint(
        method="POST",
        path="/v1/suppressions/import",
        handler=import_suppressions,
        summary="Suppress everybody in a CSV file of any size.",
        scope=WRITE,
        tag="suppressions",
        accepts=("text/csv",),
        stream=True,
        answers={200: ImportShape},
    ),
    Endpoint(
        method="GET",
        path="/v1/suppressions/export",
        handler=export_suppressions,
        summary="All suppressions as CSV, oldest first; X-Next-Cursor names the next page.",
        scope=READ,
        tag="suppressions",
        query=ExportQuery,
        answers={200: None},
        media_type=CSV,
    ),
    Endpoint(
        method="GET",
        path="/v1/suppressions/{email}",
        handler=get_address,
        summary="One address: what is suppressed now, and its history.",
        scope=READ,
        tag="suppressions",
        answers={200: AddressShape},
    ),
    Endpoint(
        method="GET",
        path="/v1/bounces",
        handler=list_reports,
        summary="List bounces, complaints and unsubscribes as they were reported, newest first.",
        scope=READ,
        tag="suppressions",
        query=ReportQuery,
        answers={200: ReportPage},
    ),
]
