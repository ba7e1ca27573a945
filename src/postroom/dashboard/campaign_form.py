"""Create and edit a campaign, with a preview that follows the typing, and the preview of a stored one."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from postroom.campaigns import preview as letters
from postroom.campaigns import service
from postroom.campaigns.model import Campaign, CampaignContent, CampaignRequest
from postroom.campaigns.shapes import read_address, read_time, written
from postroom.dashboard.listing import FormField
from postroom.dashboard.page import PageRequest, form, form_pages, page
from postroom.dashboard.preview import HEADERS, preview_document
from postroom.dashboard.site import HTML
from postroom.errors import BadInput, PostroomError
from postroom.inbox.aside import aside
from postroom.mail import library
from postroom.mail.content_lint import LetterWarning
from postroom.mail.render import Rendered
from postroom.runtime.endpoint import Answer
from postroom.senders import service as senders

READ, WRITE, TEMPLATES = "campaigns:read", "campaigns:write", "templates:read"
LARGEST_FORM = 4 * 1024 * 1024
"""Bytes of a posted draft: a part has at most a million characters, and a form writes most of HTML with escapes."""

SUGGESTED = 20
"""Recipients and senders that a field suggests."""

CONTENT = (
    FormField("subject", "Subject", is_required=True, hint="Merge fields: Hello {{ first_name|default('friend') }}"),
    FormField("html", "HTML", "area", hint="{{ unsubscribe_url }} and {{ preferences_url }} are links of each person"),
    FormField("text", "Text", "area", hint="Empty: derived from the HTML"),
)
SENDER = (
    FormField(
        "from",
        "From",
        hint="Acme <news@example.org>; empty: the sender of this installation",
        suggestions="senders",
    ),
    FormField("reply_to", "Reply to"),
    FormField("tracking", "Count opens and clicks", "check", value="on"),
)
SCHEDULE = (
    FormField("start_at", "Not before", "datetime-local", hint="In your time zone; empty: when it is started"),
    FormField("local_time", "At this local time of each person", "time", hint="Empty: everybody at once"),
    FormField("time_zone", "Time zone of people without one", value="UTC"),
)
_NAME = FormField("name", "Name", is_required=True, hint="Only you see it")


# ── pages ──────────────────────────────────────────────────────────────────────────────────────────────────────────


async def new_page(request: PageRequest) -> Answer:
    """An empty draft, a copy of another campaign, or one with the content of a template."""
    if request.form:  # rejected: its field `from` is the sender
        return await _form(request, {})
    other, template = request.number("from"), request.asked("template")
    if template is not None:
        return await _from_template(request, template)
    values = {} if other is None else copy_of(await service.get_campaign(request.pool, other))
    return await _form(request, values)


async def _from_template(request: PageRequest, chosen: str) -> Answer:
    """A draft with a copy of the content; `chosen` is a template and a locale: `welcome/en`."""
    request.need(TEMPLATES)
    template, _, locale = chosen.partition("/")
    standard = {each.name: each.value for each in (*SENDER, *SCHEDULE)}
    try:
        parts = await library.copy_parts(request.pool, template, locale=locale)
    except BadInput as error:
        return await _form(replace(request, problem=error.message), {})
    return await _form(request, {**standard, "name": template, **parts})


async def create_page(request: PageRequest) -> Answer:
    made = await service.create_campaign(request.pool, read_plan(request), actor=request.actor)
    return request.done(f"/campaigns/{made.id}", "The draft is saved. Upload its recipients next.")


async def edit_page(request: PageRequest) -> Answer:
    campaign = await service.get_campaign(request.pool, request.id("campaign_id"))
    return await _form(request, values_of(campaign, request), campaign=campaign)


async def save_page(request: PageRequest) -> Answer:
    """Save the draft; a started campaign is refused with 409."""
    campaign_id, plan = request.id("campaign_id"), read_plan(request)
    content = {name: getattr(plan.letter, name) for name in service.CONTENT}
    schedule = {name: getattr(plan, name) for name in ("name", "start_at", "local_time", "time_zone")}
    await service.update_campaign(request.pool, campaign_id, {**content, **schedule}, actor=request.actor)
    return request.done(f"/campaigns/{campaign_id}", "The draft is saved.")


async def preview_page(request: PageRequest) -> Answer:
    """The stored content for one recipient, for the frame of a page."""
    campaign = await service.get_campaign(request.pool, request.id("campaign_id"))
    return await _frame(request, campaign.plan.letter, campaign_id=campaign.id, email=request.asked("person"))


async def preview_draft_page(request: PageRequest) -> Answer:
    """The content of the form as it stands, for the frame beside it; nothing is stored."""
    try:
        content = read_content(request.form)
        email, campaign_id = request.asked("person"), request.number("campaign")
    except BadInput as error:
        return _frame_answer(request, problem=error.message)
    return await _frame(request, content, campaign_id=campaign_id, email=email)


async def _form(request: PageRequest, values: Mapping[str, str], *, campaign: Campaign | None = None) -> Answer:
    given = request.form or values

    def filled(fields: Sequence[FormField]) -> list[FormField]:
        # An unchecked box is not sent: in a form with values, an absent one is empty.
        return [replace(each, value=given.get(each.name, "" if given else each.value)) for each in fields]

    return request.page(
        "campaign_edit.html",
        campaign=campaign,
        named=filled((_NAME,))[0],
        content=filled(CONTENT),
        sender=filled(SENDER),
        schedule=filled(SCHEDULE),
        people=await suggested_people(request, campaign),
        senders=await _suggested_senders(request),
        templates=await _templates(request) if campaign is None else (),
    )


async def _templates(request: PageRequest) -> list[str]:
    """The templates that a draft can begin with, each with a locale."""
    found = await library.list_own_templates(request.pool) if request.may(TEMPLATES) else []
    return [f"{template.id}/{locale}" for template in found for locale in template.locales]


async def suggested_people(request: PageRequest, campaign: Campaign | None) -> list[str]:
    """The addresses of the first recipients."""
    if campaign is None:
        return []
    found, _more = await service.list_recipients(request.pool, campaign.id, limit=SUGGESTED)
    return [person.email for person in found]


async def _suggested_senders(request: PageRequest) -> list[str]:
    if not request.may("senders:read"):
        return []
    found, _more = await senders.list_senders(request.pool, limit=SUGGESTED)
    return [f"{each.display_name} <{each.email}>" if each.display_name else each.email for each in found]


# ── the frame ──────────────────────────────────────────────────────────────────────────────────────────────────────


async def _frame(
    request: PageRequest, content: CampaignContent, *, campaign_id: int | None, email: str | None
) -> Answer:
    try:
        rendered, warnings = await letters.preview_draft(request.pool, content, campaign_id=campaign_id, email=email)
    except PostroomError as error:  # shown in the frame: half a word is no failed request
        return _frame_answer(request, problem=error.message)
    html = rendered.html
    document = None if html is None else await aside(len(html), preview_document, html)
    return _frame_answer(request, content=content, rendered=rendered, document=document, warnings=warnings)


def _frame_answer(
    request: PageRequest,
    *,
    content: CampaignContent | None = None,
    rendered: Rendered | None = None,
    document: str | None = None,
    warnings: Sequence[LetterWarning] = (),
    problem: str | None = None,
) -> Answer:
    frame = request.draw(
        "campaign_frame.html",
        sender=written(content.sender) if content is not None else None,
        rendered=rendered,
        document=document,
        warnings=warnings,
        problem=problem,
    )
    return Answer(frame.encode(), 200, HTML, HEADERS)


# ── values ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def read_content(fields: Mapping[str, str]) -> CampaignContent:
    """The content of a form; browsers send line ends as CRLF."""

    def value(name: str) -> str | None:
        return fields.get(name, "").replace("\r\n", "\n") or None

    def line(name: str) -> str | None:
        return fields.get(name, "").strip() or None

    return CampaignContent(
        subject=line("subject") or "",
        html=value("html"),
        text=value("text"),
        sender=read_address("from", line("from")),
        reply_to=read_address("reply_to", line("reply_to")),
        is_tracked="tracking" in fields,
    )


def read_plan(request: PageRequest) -> CampaignRequest:
    fields = {name: value.strip() for name, value in request.form.items()}
    return CampaignRequest(
        name=fields.get("name", ""),
        letter=read_content(request.form),
        start_at=request.moment("start_at"),
        local_time=read_time(fields.get("local_time") or None),
        time_zone=fields.get("time_zone") or "UTC",
    )


def copy_of(campaign: Campaign) -> dict[str, str]:
    """The values of a copy: everything but the time of the start."""
    plan, letter = campaign.plan, campaign.plan.letter
    values: dict[str, Any] = {
        "name": f"{plan.name} (copy)",
        "subject": letter.subject,
        "html": letter.html,
        "text": letter.text,
        "from": written(letter.sender),
        "reply_to": written(letter.reply_to),
        "tracking": "on" if letter.is_tracked else None,
        "local_time": None if plan.local_time is None else plan.local_time.isoformat("minutes"),
        "time_zone": plan.time_zone,
    }
    return {name: value for name, value in values.items() if value is not None}


def values_of(campaign: Campaign, request: PageRequest) -> dict[str, str]:
    start_at = campaign.plan.start_at
    start = {} if start_at is None else {"start_at": f"{request.viewer.local(start_at):%Y-%m-%dT%H:%M}"}
    return {**copy_of(campaign), "name": campaign.plan.name, **start}


PAGES = (
    *form_pages("/campaigns/new", new_page, create_page, scope=WRITE, most_body=LARGEST_FORM),
    form("/campaigns/preview", preview_draft_page, scope=WRITE, most_body=LARGEST_FORM),
    *form_pages("/campaigns/{campaign_id:int}/edit", edit_page, save_page, scope=WRITE, most_body=LARGEST_FORM),
    page("/campaigns/{campaign_id:int}/preview", preview_page, scope=READ),
)
