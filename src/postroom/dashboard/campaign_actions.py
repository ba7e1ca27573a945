"""The actions on a campaign: start, pause, resume, cancel, delete, and the upload of recipients from a file."""

from collections.abc import Sequence
from dataclasses import astuple, replace
from datetime import UTC, datetime
from pathlib import PurePath

from postroom.campaigns import preview as letters
from postroom.campaigns import service
from postroom.campaigns.model import Campaign, CampaignStatus, LineFormat, RejectedLine, Uploaded
from postroom.campaigns.upload import Upload
from postroom.dashboard.campaign_form import WRITE
from postroom.dashboard.file_form import FormFile, file_form
from postroom.dashboard.listing import PageAction, columns
from postroom.dashboard.page import PageRequest, actions, form, page
from postroom.errors import BadInput
from postroom.runtime.endpoint import Answer
from postroom.runtime.spreadsheet import write_rows

MOST_SHOWN = 200
"""Rejected lines in the report of an upload; the counts cover all lines."""

_FORMATS = {".jsonl": LineFormat.JSON_LINES, ".ndjson": LineFormat.JSON_LINES}
_REJECTED = columns(
    RejectedLine, "line", "field", "value", "message", field={"form": "code"}, message={"label": "Problem"}
)
_ONE = "/campaigns/{campaign_id:int}"
_START = PageAction("Start", f"{_ONE}/start", WRITE, is_link=True, is_main=True)
_EDIT = PageAction("Edit", f"{_ONE}/edit", WRITE, is_link=True)
_UPLOAD = PageAction("Upload recipients", f"{_ONE}/upload", WRITE, is_link=True)
_COPY = PageAction("Duplicate", "/campaigns/new?from={campaign_id}", WRITE, is_link=True)
_PAUSE = PageAction(
    "Pause", f"{_ONE}/pause", WRITE, service.pause_campaign, "The campaign is paused.",
    question="Mail that waits is held until the campaign is resumed. Mail that a worker has claimed is still sent.",
)  # fmt: skip
_REOPEN = PageAction(
    "Back to draft", f"{_ONE}/reopen", WRITE, service.reopen_campaign, "The campaign is a draft again.",
    question="No mail of it was queued yet: content and time can be changed, and it can be started again.",
)  # fmt: skip
_RESUME = PageAction(
    "Resume", f"{_ONE}/resume", WRITE, service.resume_campaign, "The campaign is active again.",
    question="Mail that was held is sent again, in the same order.",
)  # fmt: skip
_CANCEL = PageAction(
    "Cancel", f"{_ONE}/cancel", WRITE, service.cancel_campaign, "The campaign is cancelled.",
    question="People who have not got the mail will not get it. A cancelled campaign cannot be started again.",
)  # fmt: skip
_DELETE = PageAction(
    "Delete", f"{_ONE}/delete", WRITE, service.delete_campaign, "The draft is deleted.", to="/campaigns",
    question="The draft and its recipients are deleted.",
)  # fmt: skip
_OFFERED = {
    CampaignStatus.DRAFT: (_START, _EDIT, _UPLOAD, _COPY, _DELETE),
    CampaignStatus.ACTIVE: (_PAUSE, _CANCEL, _UPLOAD, _COPY),
    CampaignStatus.PAUSED: (_RESUME, _CANCEL, _UPLOAD, _COPY),
}


def actions_of(campaign: Campaign) -> list[PageAction]:
    """The buttons that the status allows; the statements behind them check it again."""
    offered = _OFFERED.get(campaign.status, (_COPY,))
    is_early = campaign.status in (CampaignStatus.ACTIVE, CampaignStatus.PAUSED) and campaign.fed == 0
    return [each.at(campaign.id) for each in ((_REOPEN, *offered) if is_early else offered)]


def schedule_of(campaign: Campaign) -> str:
    """When the mail leaves, as a sentence without its time."""
    plan = campaign.plan
    if plan.local_time is None:
        return "to everybody at once"
    return f"at {plan.local_time:%H:%M} local time of each person; {plan.time_zone} if the zone is unknown"


async def ask_start_page(request: PageRequest) -> Answer:
    """The question before a start, with the warnings about the content."""
    campaign = await service.get_campaign(request.pool, request.id("campaign_id"))
    warnings = await letters.lint_campaign(request.pool, campaign.id)
    obstacle, worst = _obstacle(request, campaign), service.too_many_failing(warnings, campaign.total)
    return request.confirm(
        f"Start {campaign.plan.name}?",
        _question(request, campaign),
        to=f"/campaigns/{campaign.id}/start",
        button="Start the campaign",
        back=f"/campaigns/{campaign.id}",
        warning=obstacle,
        findings=[("HTML" if each.part == "html" else each.part.capitalize(), each.message) for each in warnings],
        is_possible=obstacle is None and campaign.status is CampaignStatus.DRAFT,
        tick=f"Start although {worst.failing:,} of {campaign.total:,} mails will fail" if worst else None,
    )


def _obstacle(request: PageRequest, campaign: Campaign) -> str | None:
    if request.call.room.settings.secret_key is None:
        return "POSTROOM_SECRET_KEY is not set: no unsubscribe link can be signed. Set it and restart Postroom."
    if unset := request.call.room.settings.unset_for_mail:
        return f"{' and '.join(unset)} must be set: see Going live."
    if campaign.status is not CampaignStatus.DRAFT:
        return f"The campaign is {campaign.status} already."
    return None if campaign.total else "The campaign has no recipients. Upload them first."


def _question(request: PageRequest, campaign: Campaign) -> str:
    queued = campaign.total - campaign.suppressed
    people = f"{queued:,} {'person gets' if queued == 1 else 'people get'} the mail"
    skipped = f"; {campaign.suppressed:,} are suppressed" if campaign.suppressed else ""
    start_at = campaign.plan.start_at
    when = ""
    if start_at is not None and start_at > datetime.now(UTC):
        when = f", not before {request.viewer.local(start_at):%Y-%m-%d %H:%M} {request.viewer.zone}"
    return f"{people}, {schedule_of(campaign)}{when}{skipped}. The content can no longer be changed after the start."


async def start_page(request: PageRequest) -> Answer:
    started = await service.start_campaign(
        request.pool,
        request.id("campaign_id"),
        actor=request.actor,
        has_secret_key=request.call.room.settings.secret_key is not None,
        unset=request.call.room.settings.unset_for_mail,
        accepts_failures="accept" in request.form,
    )
    end = f"{request.viewer.local(started.estimate.finishes_at):%Y-%m-%d %H:%M}"
    sentence = f"The campaign is started: {started.queued:,} mails, the last one about {end} {request.viewer.zone}."
    return request.done(f"/campaigns/{started.campaign.id}", sentence)


# ── recipients ─────────────────────────────────────────────────────────────────────────────────────────────────────


async def upload_page(request: PageRequest, file: FormFile) -> Answer:
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
    return await ask_upload_page(request, upload.result, rejected)


async def ask_upload_page(
    request: PageRequest, result: Uploaded | None = None, rejected: Sequence[RejectedLine] = ()
) -> Answer:
    return request.page(
        "campaign_upload.html",
        campaign=await service.get_campaign(request.pool, request.id("campaign_id")),
        result=result,
        rejected=rejected,
        rejected_csv=write_rows([RejectedLine.__slots__, *map(astuple, rejected)]),
        columns=_REJECTED,
    )


PAGES = (
    page(f"{_ONE}/start", ask_start_page, scope=WRITE),
    form(f"{_ONE}/start", start_page, scope=WRITE),
    page(f"{_ONE}/upload", ask_upload_page, scope=WRITE),
    file_form(f"{_ONE}/upload", upload_page, scope=WRITE),
    *actions(_REOPEN, _PAUSE, _RESUME, _CANCEL, _DELETE),
)
