"""HTTP endpoints of campaigns."""

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any

import msgspec
from msgspec.structs import asdict

from postroom.campaigns import preview as rehearsal
from postroom.campaigns import service
from postroom.campaigns.model import Campaign, LineFormat, RejectedLine
from postroom.campaigns.shapes import (
    CampaignBody,
    CampaignChange,
    CampaignPreview,
    CampaignPreviewBody,
    CampaignQuery,
    CampaignRecipient,
    CampaignShape,
    CampaignSummary,
    PreviewQuery,
    RecipientQuery,
    SentTest,
    StartedShape,
    StartQuery,
    TestBody,
    UploadShape,
    WarningsShape,
    campaign_shape,
    changes_of,
    plan_of,
    started_shape,
    summary_shape,
)
from postroom.campaigns.upload import Upload
from postroom.errors import BadInput
from postroom.runtime.endpoint import LARGE, Answer, Call, Endpoint
from postroom.runtime.page import Page
from postroom.runtime.record import answer
from postroom.runtime.service_endpoint import serve

READ = "campaigns:read"
WRITE = "campaigns:write"
MOST_REFUSED = 100
"""Maximum number of rejected lines in a response; the counts cover all lines."""

_PATH = "/v1/campaigns/{campaign_id:int}"


async def create_campaign(call: Call) -> Answer:
    campaign = await service.create_campaign(call.room.pool, plan_of(call.body), actor=call.actor)
    return await _answer(call, campaign, 201, headers={"location": f"/v1/campaigns/{campaign.id}"})


async def get_campaign(call: Call) -> Answer:
    return await _answer(call, await service.get_campaign(call.room.pool, call.path["campaign_id"]))


async def list_campaigns(call: Call) -> Answer:
    found, more = await service.list_campaigns(call.room.pool, **asdict(call.query))
    figures = await service.measure(call.room.pool, found)
    return Answer(Page([summary_shape(campaign, figures[campaign.id]) for campaign in found], more))


async def update_campaign(call: Call) -> Answer:
    changes = changes_of(call.body)
    campaign = await service.update_campaign(call.room.pool, call.path["campaign_id"], changes, actor=call.actor)
    return await _answer(call, campaign)


async def upload_recipients(call: Call) -> Answer:
    assert call.chunks is not None
    line_format = LineFormat(call.headers["content-type"].partition(";")[0].strip().lower())
    refused: list[RejectedLine] = []

    def keep(found: Sequence[RejectedLine]) -> None:
        refused.extend(found[: MOST_REFUSED - len(refused)])

    upload = Upload(call.room.pool, call.path["campaign_id"], on_refused=keep)
    uploaded = await upload.run(call.chunks, line_format, actor=call.actor)
    return Answer(answer(UploadShape, uploaded, refused=refused))


async def list_recipients(call: Call) -> Answer:
    asked = {**asdict(call.query), "custom_data": _containing(call.query.custom_data)}
    found, more = await service.list_recipients(call.room.pool, call.path["campaign_id"], **asked)
    items = [answer(CampaignRecipient, each, time_zone=each.time_zone or None) for each in found]
    return Answer(Page(items, more))


async def _answer(
    call: Call, campaign: Campaign, status: int = 200, *, headers: dict[str, str] | None = None
) -> Answer:
    figures = await service.measure(call.room.pool, [campaign])
    return Answer(campaign_shape(campaign, figures[campaign.id]), status, headers=headers or {})


def _containing(written: str | None) -> dict[str, Any] | None:
    try:
        return None if written is None else msgspec.json.decode(written, type=dict[str, Any])
    except msgspec.MsgspecError:
        raise BadInput.of("custom_data", "must be a JSON object") from None


_endpoint = partial(Endpoint, tag="campaigns")
_serve = partial(serve, tag="campaigns")


def _step(name: str, change: Callable[..., Awaitable[Campaign]], summary: str) -> Endpoint:
    """An endpoint that changes the status of a campaign."""

    async def handler(call: Call) -> Answer:
        return await _answer(call, await change(call.room.pool, call.path["campaign_id"], actor=call.actor))

    handler.__name__ = f"{name}_campaign"
    return _endpoint(
        "POST", f"{_PATH}/{name}", handler, summary, scope=WRITE, answers={200: CampaignShape}, problems=(404, 409)
    )


ENDPOINTS = [
    _endpoint(
        "GET", "/v1/campaigns", list_campaigns, "List campaigns with their counts, newest first.", scope=READ,
        query=CampaignQuery, from_replica=True, answers={200: Page[CampaignSummary]},
    ),
    _endpoint(
        "POST", "/v1/campaigns", create_campaign, "Create a campaign as a draft.", scope=WRITE, body=CampaignBody,
        most_body=LARGE, answers={201: CampaignShape},
    ),
    _endpoint(
        "GET", _PATH, get_campaign, "Read a campaign with all its counts.", scope=READ, answers={200: CampaignShape},
    ),
    _endpoint(
        "PATCH", _PATH, update_campaign, "Change a draft. A started campaign cannot be changed.", scope=WRITE,
        body=CampaignChange, most_body=LARGE, answers={200: CampaignShape}, problems=(409,),
    ),
    _serve(
        "DELETE", _PATH, service.delete_campaign, "Delete a draft and its recipients.", scope=WRITE,
        answers={204: None}, problems=(409,),
    ),
    _endpoint(
        "GET", f"{_PATH}/recipients", list_recipients, "List recipients, filtered by state or by their merge fields.",
        scope=READ, query=RecipientQuery, from_replica=True, answers={200: Page[CampaignRecipient]},
    ),
    _endpoint(
        "POST", f"{_PATH}/recipients", upload_recipients,
        "Add recipients from CSV with a header line, or from JSON lines. A repeated upload skips known addresses.",
        scope=WRITE, accepts=tuple(LineFormat), stream=True, answers={200: UploadShape}, problems=(409,),
    ),
    _serve(
        "GET", f"{_PATH}/preview", rehearsal.preview, "Preview the letter for one recipient.", scope=READ,
        query=PreviewQuery, answers={200: CampaignPreview}, name="preview_campaign",
        shape=partial(answer, CampaignPreview),
    ),
    _serve(
        "POST", f"{_PATH}/preview", rehearsal.preview, "Preview the letter with given variables.", scope=READ,
        body=CampaignPreviewBody, most_body=LARGE, answers={200: CampaignPreview}, problems=(404,), name="preview_with",
        shape=partial(answer, CampaignPreview),
    ),
    _serve(
        "GET", f"{_PATH}/lint", rehearsal.lint_campaign, "Check the letter and list warnings.", scope=READ,
        answers={200: WarningsShape}, shape=WarningsShape,
    ),
    _serve(
        "POST", f"{_PATH}/test", rehearsal.send_test,
        "Send a test mail of the letter. Tests are marked and not counted.", scope=WRITE, body=TestBody,
        most_body=LARGE, answers={202: SentTest}, problems=(404,), shape=SentTest,
    ),
    _serve(
        "POST", f"{_PATH}/start", service.start_campaign, "Start a campaign. Its letter can no longer be changed.",
        scope=WRITE, answers={200: StartedShape}, problems=(404, 409), shape=started_shape,
        given={
            "has_secret_key": lambda call: call.room.settings.secret_key is not None,
            "unset": lambda call: call.room.settings.unset_for_mail,
        },
        query=StartQuery,
    ),
    _step("reopen", service.reopen_campaign, "Return a campaign to a draft, while no mail of it was queued."),
    _step("pause", service.pause_campaign, "Pause a campaign and hold its unsent mail."),
    _step("resume", service.resume_campaign, "Resume a paused campaign."),
    _step("cancel", service.cancel_campaign, "Cancel a campaign and its unsent mail."),
]  # fmt: skip
