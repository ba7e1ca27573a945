"""Upload the recipients of a campaign from a file, with a report of the rejected lines."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import PurePath

from postroom.campaigns import service
from postroom.campaigns.model import LineFormat, RejectedLine, Uploaded
from postroom.campaigns.upload import Upload
from postroom.dashboard.campaign_form import WRITE
from postroom.dashboard.file_form import FormFile, file_form
from postroom.dashboard.listing import columns
from postroom.dashboard.page import PageRequest, page
from postroom.errors import BadInput
from postroom.runtime.endpoint import Answer

MOST_SHOWN = 200
"""Rejected lines in the report; the counts cover all lines."""

_FORMATS = {".jsonl": LineFormat.JSON_LINES, ".ndjson": LineFormat.JSON_LINES}
_REJECTED = columns(RejectedLine, "line", "field", "message", field={"form": "code"}, message={"label": "Problem"})


async def take_page(request: PageRequest, file: FormFile) -> Answer:
    """Store the valid lines; the page has the counts and the rejected lines."""
    rejected: list[RejectedLine] = []

    def keep(found: Sequence[RejectedLine]) -> None:
        rejected.extend(found[: MOST_SHOWN - len(rejected)])

    upload = Upload(request.pool, request.id("campaign_id"), on_refused=keep)
    try:
        if not file.name:
            raise BadInput.of("file", "is missing; choose a file")
        line_format = _FORMATS.get(PurePath(file.name).suffix.lower(), LineFormat.CSV)
        await upload.run(file.chunks, line_format, actor=request.actor)
    except BadInput as error:
        request = replace(request, problem=error.message)
        async for _rest in file.chunks:  # a browser shows no answer to a file that it could not send
            continue
    return await ask_page(request, upload.result, rejected)


async def ask_page(
    request: PageRequest, result: Uploaded | None = None, rejected: Sequence[RejectedLine] = ()
) -> Answer:
    return request.page(
        "campaign_upload.html",
        campaign=await service.get_campaign(request.pool, request.id("campaign_id")),
        result=result,
        rejected=rejected,
        columns=_REJECTED,
    )


PAGES = (
    page("/campaigns/{campaign_id:int}/upload", ask_page, scope=WRITE),
    file_form("/campaigns/{campaign_id:int}/upload", take_page, scope=WRITE),
)
