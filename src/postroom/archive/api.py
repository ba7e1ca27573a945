"""The archive and erasures over HTTP. An erasure cannot be undone, so it has a scope of its own."""

from functools import partial
from typing import Annotated, Any

import msgspec

from postroom.archive import service
from postroom.archive.model import ArchiveOptions, Segment
from postroom.erasure import service as erasing
from postroom.erasure.model import Erasure
from postroom.runtime.endpoint import Answer, Call, Endpoint
from postroom.runtime.page import PageQuery, page_of
from postroom.runtime.record import Shape, answer, response
from postroom.runtime.service_endpoint import serve

OPERATE = "archive:operate"
ERASE = "erasures:manage"

Email = Annotated[str, msgspec.Meta(min_length=3, max_length=254, pattern=r"^[^\x00]*$")]
TableName = Annotated[str, msgspec.Meta(max_length=63, pattern=r"^[a-z_]+$")]


class ArchiveQuery(PageQuery, frozen=True, kw_only=True):
    """Query parameters of the list of pieces."""

    table: TableName | None = None


class ErasureBody(Shape, frozen=True, kw_only=True):
    """The address to erase."""

    email: Email
    keep_accounts: bool = False


SegmentShape = response(
    Segment,
    "SegmentShape",
    only=(
        "id", "table_name", "part", "state", "rows", "bytes", "path", "content_sha256", "archived_at", "expired_at",
        "restored_name",
    ),
    rename={"table_name": "table", "restored_name": "restored_as"},
    extra={"month": str},
)  # fmt: skip
ErasureShape = response(Erasure, "ErasureShape", hide=("requested_by", "state"), extra={"status": str})


async def create_erasure(call: Call) -> Answer:
    body: ErasureBody = call.body
    options = ArchiveOptions.of(call.room.settings)
    done = await erasing.erase(
        call.room, options, address=body.email, actor=call.actor, keep_accounts=body.keep_accounts
    )
    return Answer(_erasure(done), status=200 if done.is_done else 202)


def _erasure(erasure: Erasure) -> Any:
    return answer(ErasureShape, erasure, status="done" if erasure.is_done else "running")


_endpoint = partial(Endpoint, tag="archive")
_serve = partial(serve, tag="archive")

ENDPOINTS = [
    _serve(
        "GET", "/v1/archive", service.list_page, "List the pieces of the archive, finished and in progress.",
        scope=OPERATE, query=ArchiveQuery, answers={200: page_of(SegmentShape)}, name="list_archive",
    ),
    _endpoint(
        "POST", "/v1/erasures", create_erasure,
        "Erase a person; 202 while files of the archive are still to be rewritten.", scope=ERASE, body=ErasureBody,
        answers={200: ErasureShape, 202: ErasureShape},
    ),
    _serve(
        "GET", "/v1/erasures", erasing.list_erasures, "List erasures, newest first, without their addresses.",
        scope=ERASE, query=PageQuery, answers={200: page_of(ErasureShape)}, shape=_erasure,
    ),
    _serve(
        "GET", "/v1/erasures/{erasure_id:int}", erasing.get_erasure, "The progress of an erasure.",
        scope=ERASE, answers={200: ErasureShape}, problems=(404,), shape=_erasure,
    ),
]  # fmt: skip
