"""The archive and erasure over HTTP, under one scope: `archive:operate`."""

from datetime import datetime
from typing import Annotated

import msgspec

from postroom.archive import service
from postroom.archive.model import ArchiveOptions, Segment
from postroom.erasure import service as erasing
from postroom.erasure.model import Erasure
from postroom.runtime.endpoint import Answer, Call, Endpoint
from postroom.runtime.page import Cursor, Limit, decode_cursor, encode_cursor
from postroom.runtime.record import Shape

OPERATE = "archive:operate"

Email = Annotated[str, msgspec.Meta(min_length=3, max_length=254, pattern=r"^[^\x00]*$")]
TableName = Annotated[str, msgspec.Meta(max_length=63, pattern=r"^[a-z_]+$")]


class ArchiveQuery(Shape, frozen=True, kw_only=True):
    """Which pieces, and which page of them."""

    table: TableName | None = None
    cursor: Cursor | None = None
    limit: Limit = 50


class PageQuery(Shape, frozen=True, kw_only=True):
    """Which page."""

    cursor: Cursor | None = None
    limit: Limit = 50


class ErasureBody(Shape, frozen=True, kw_only=True):
    """Who is to be forgotten."""

    email: Email
    keep_accounts: bool = False


class SegmentShape(msgspec.Struct, frozen=True, kw_only=True):
    """One piece of the archive: a month of a table, or what came late of it."""

    id: int
    table: str
    month: str
    part: int
    state: str
    rows: int | None
    bytes: int | None
    path: str
    content_sha256: str | None
    archived_at: datetime | None
    expired_at: datetime | None
    restored_as: str | None


class SegmentPage(msgspec.Struct, frozen=True):
    """Pieces in the order in which they were begun."""

    items: list[SegmentShape]
    next_cursor: str | None


class ErasureShape(msgspec.Struct, frozen=True, kw_only=True):
    """An erasure; it does not say of whom."""

    id: int
    status: str  # running, done
    requested_at: datetime
    finished_at: datetime | None
    counts: dict[str, int]
    waits_for: list[str]  # files that could not be cleaned yet, and why


class ErasurePage(msgspec.Struct, frozen=True):
    """Erasures, newest first."""

    items: list[ErasureShape]
    next_cursor: str | None


async def list_archive(call: Call) -> Answer:
    query: ArchiveQuery = call.query
    (after,) = decode_cursor(query.cursor, tuple[int]) if query.cursor else (None,)
    found = await service.list_segments(call.room.pool, table=query.table, after_id=after, limit=query.limit + 1)
    page = found[: query.limit]
    more = encode_cursor(page[-1].id) if len(found) > query.limit else None
    return Answer(SegmentPage([_segment(segment) for segment in page], more))


async def create_erasure(call: Call) -> Answer:
    body: ErasureBody = call.body
    options = ArchiveOptions.of(call.room.settings)
    done = await erasing.erase(
        call.room, options, address=body.email, actor=call.actor, keep_accounts=body.keep_accounts
    )
    return Answer(_erasure(done), status=200 if done.is_done else 202)


async def list_erasures(call: Call) -> Answer:
    query: PageQuery = call.query
    (before,) = decode_cursor(query.cursor, tuple[int]) if query.cursor else (None,)
    found = await erasing.list_erasures(call.room.pool, before_id=before, limit=query.limit + 1)
    page = found[: query.limit]
    more = encode_cursor(page[-1].id) if len(found) > query.limit else None
    return Answer(ErasurePage([_erasure(erasure) for erasure in page], more))


async def show_erasure(call: Call) -> Answer:
    return Answer(_erasure(await erasing.get_erasure(call.room.pool, call.path["erasure_id"])))


def _segment(segment: Segment) -> SegmentShape:
    return SegmentShape(
        id=segment.id,
        table=segment.table_name,
        month=segment.month,
        part=segment.part,
        state=segment.state.value,
        rows=segment.rows,
        bytes=segment.bytes,
        path=segment.path,
        content_sha256=segment.content_sha256,
        archived_at=segment.archived_at,
        expired_at=segment.expired_at,
        restored_as=segment.restored_name,
    )


def _erasure(erasure: Erasure) -> ErasureShape:
    return ErasureShape(
        id=erasure.id,
        status="done" if erasure.is_done else "running",
        requested_at=erasure.requested_at,
        finished_at=erasure.finished_at,
        counts=erasure.counts,
        waits_for=list(erasure.waits_for),
    )


ENDPOINTS = [
    Endpoint(
        method="GET",
        path="/v1/archive",
        handler=list_archive,
        summary="List what is in the archive, and what is on its way there.",
        scope=OPERATE,
        tag="archive",
        query=ArchiveQuery,
        answers={200: SegmentPage},
    ),
    Endpoint(
        method="POST",
        path="/v1/erasures",
        handler=create_erasure,
        summary="Forget a person; 202 while files of the archive still wait to be rewritten.",
        scope=OPERATE,
        tag="archive",
        body=ErasureBody,
        answers={200: ErasureShape, 202: ErasureShape},
    ),
    Endpoint(
        method="GET",
        path="/v1/erasures",
        handler=list_erasures,
        summary="List erasures, newest first; they do not say of whom.",
        scope=OPERATE,
        tag="archive",
        query=PageQuery,
        answers={200: ErasurePage},
    ),
    Endpoint(
        method="GET",
        path="/v1/erasures/{erasure_id:int}",
        handler=show_erasure,
        summary="How far an erasure is.",
        scope=OPERATE,
        tag="archive",
        answers={200: ErasureShape},
        problems=(404,),
    ),
]
