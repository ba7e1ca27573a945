"""The actions on a campaign: start, pause, resume, cancel, delete."""

from datetime import UTC, datetime

from postroom.campaigns import preview as letters
from postroom.campaigns import service
from postroom.campaigns.model import Campaign, CampaignStatus
from postroom.dashboard.campaign_form import WRITE
from postroom.dashboard.listing import PageAction
from postroom.dashboard.page import PageRequest, form, page
from postroom.mail.content_lint import LetterWarning
from postroom.runtime.endpoint import Answer

_PAUSE = "Mail that waits is held until the campaign is resumed. Mail that a worker has claimed is still sent."
_RESUME = "Mail that was held is sent again, in the same order."
_CANCEL = "People who have not got the mail will not get it. A cancelled campaign cannot be started again."
_DELETE = "The draft and its recipients are deleted."


def actions_of(campaign: Campaign) -> list[PageAction]:
    """The buttons that the status allows; the statements behind them check it again."""
    path = f"/campaigns/{campaign.id}"
    start = PageAction(label="Start", path=f"{path}/start", scope=WRITE, is_link=True, is_main=True)
    edit = PageAction(label="Edit", path=f"{path}/edit", scope=WRITE, is_link=True)
    upload = PageAction(label="Upload recipients", path=f"{path}/upload", scope=WRITE, is_link=True)
    pause = PageAction(label="Pause", path=f"{path}/pause", scope=WRITE, question=_PAUSE)
    resume = PageAction(label="Resume", path=f"{path}/resume", scope=WRITE, question=_RESUME)
    cancel = PageAction(label="Cancel", path=f"{path}/cancel", scope=WRITE, question=_CANCEL)
    delete = PageAction(label="Delete", path=f"{path}/delete", scope=WRITE, question=_DELETE)
    copy = PageAction(label="Duplicate", path=f"/campaigns/new?from={campaign.id}", scope=WRITE, is_link=True)
    offered = {
        CampaignStatus.DRAFT: [start, edit, upload, copy, delete],
        CampaignStatus.ACTIVE: [pause, cancel, upload, copy],
        CampaignStatus.PAUSED: [resume, cancel, upload, copy],
    }
    return offered.get(campaign.status, [copy])


def schedule_of(campaign: Campaign) -> str:
    """When the mail leaves, as a sentence without its time."""
    plan = campaign.plan
    if plan.local_time is None:
        return "to everybody at once"
    return f"at {plan.local_time:%H:%M} local time of each person; {plan.time_zone} if the zone is unknown"


def part_name(warning: LetterWarning) -> str:
    return "HTML" if warning.part == "html" else warning.part.capitalize()


async def ask_start_page(request: PageRequest) -> Answer:
    """The question before a start, with the warnings about the content."""
    campaign = await service.get_campaign(request.pool, request.id("campaign_id"))
    warnings = await letters.lint_campaign(request.pool, campaign.id)
    obstacle = _obstacle(request, campaign)
    return request.confirm(
        f"Start {campaign.plan.name}?",
        _question(request, campaign),
        to=f"/campaigns/{campaign.id}/start",
        button="Start the campaign",
        back=f"/campaigns/{campaign.id}",
        warning=obstacle,
        findings=[(part_name(each), each.message) for each in warnings],
        is_possible=obstacle is None and campaign.status is CampaignStatus.DRAFT,
    )


def _obstacle(request: PageRequest, campaign: Campaign) -> str | None:
    if request.call.room.settings.secret_key is None:
        return "POSTROOM_SECRET_KEY is not set: no unsubscribe link can be signed. Set it and restart Postroom."
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
    )
    end = f"{request.viewer.local(started.estimate.finishes_at):%Y-%m-%d %H:%M}"
    sentence = f"The campaign is started: {started.queued:,} mails, the last one about {end} {request.viewer.zone}."
    return request.done(f"/campaigns/{started.campaign.id}", sentence)


async def pause_page(request: PageRequest) -> Answer:
    campaign = await service.pause_campaign(request.pool, request.id("campaign_id"), actor=request.actor)
    return request.done(f"/campaigns/{campaign.id}", "The campaign is paused.")


async def resume_page(request: PageRequest) -> Answer:
    campaign = await service.resume_campaign(request.pool, request.id("campaign_id"), actor=request.actor)
    return request.done(f"/campaigns/{campaign.id}", "The campaign is active again.")


async def cancel_page(request: PageRequest) -> Answer:
    campaign = await service.cancel_campaign(request.pool, request.id("campaign_id"), actor=request.actor)
    return request.done(f"/campaigns/{campaign.id}", "The campaign is cancelled.")


async def delete_page(request: PageRequest) -> Answer:
    await service.delete_campaign(request.pool, request.id("campaign_id"), actor=request.actor)
    return request.done("/campaigns", "The draft is deleted.")


PAGES = (
    page("/campaigns/{campaign_id:int}/start", ask_start_page, scope=WRITE),
    form("/campaigns/{campaign_id:int}/start", start_page, scope=WRITE),
    form("/campaigns/{campaign_id:int}/pause", pause_page, scope=WRITE),
    form("/campaigns/{campaign_id:int}/resume", resume_page, scope=WRITE),
    form("/campaigns/{campaign_id:int}/cancel", cancel_page, scope=WRITE),
    form("/campaigns/{campaign_id:int}/delete", delete_page, scope=WRITE),
)
