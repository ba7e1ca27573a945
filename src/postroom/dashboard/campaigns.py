"""Campaigns: the list, the results of one, its people, content and links."""

import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from typing import Any

from postroom.campaigns import preview as letters
from postroom.campaigns import report as reports
from postroom.campaigns import service
from postroom.campaigns.model import (
    Campaign,
    CampaignDomain,
    CampaignFigures,
    CampaignReport,
    CampaignStatus,
    PersonMail,
    PersonResult,
)
from postroom.campaigns.shapes import written
from postroom.dashboard.campaign_actions import actions_of, schedule_of
from postroom.dashboard.campaign_figures import draw_engagement, draw_funnel, draw_losses, draw_progress
from postroom.dashboard.campaign_form import READ, WRITE, suggested_people
from postroom.dashboard.listing import Filter, ListColumn, PageAction, columns, filters, query_with
from postroom.dashboard.live import stream_changes
from postroom.dashboard.page import PageRequest, form, listing_page, page
from postroom.dashboard.suppressions import address_page
from postroom.errors import BadInput
from postroom.runtime.endpoint import Answer
from postroom.runtime.spreadsheet import write_rows
from postroom.tracking import service as tracking
from postroom.tracking.api import csv_of
from postroom.tracking.model import LinkFigures

LISTED = 25  # half of other listings: the figures of each are read too
MOST_LINKS = 10  # the top ten; the export has all
MOST_DOMAINS = 10  # the top ten; the statistics have all
EXPORTED_LINKS = 10_000  # more than any mail has; bounds memory

NEW = PageAction("New campaign", "/campaigns/new", WRITE, is_link=True, is_main=True)
PARTS = ("head", "figures", "charts", "lists")
VIEWS = (("Overview", ""), ("People", "/people"), ("Content", "/content"), ("Links", "/links"))


def person_page(person: PersonMail) -> str:
    """The delivery of a recipient; without one, whether the address gets mail."""
    return f"/deliveries/{person.delivery_id}" if person.delivery_id else address_page(person.email)


def result_of(person: PersonMail) -> str:
    """The result under the name of the figures: mail that bounced, at once or later, is called bounced."""
    return PersonResult.BOUNCED.value if person.bounced_at is not None else person.result


_PERSON = columns(
    PersonMail, "email", "name", "result", "opened_at", "clicked_at", "bounced_at", "reason", "time_zone",
    email={"link": person_page}, result={"value": result_of},
    reason={"form": "clip"}, time_zone={"is_minor": True},
    opened_at={"label": "Opened"}, clicked_at={"label": "Clicked"},
)  # fmt: skip

_LINK = (
    ListColumn("url", "Link"),
    ListColumn("people", "People", "number"),
    ListColumn("clicks", "Clicks", "number"),
    ListColumn("machine_clicks", "Machines", "number"),
    ListColumn("last_at", "Last click", "when", is_minor=True),
)


@dataclass(frozen=True, slots=True)
class CampaignRow:
    """One line of the list."""

    campaign: Campaign
    figures: CampaignFigures
    subject: str  # for the first recipient

    @property
    def done(self) -> int:
        """Recipients whose mail has left or will not be sent."""
        return self.figures.counts.total - self.figures.counts.queued

    @property
    def at(self) -> tuple[str, datetime]:
        """The newest step of the campaign, and its time."""
        campaign = self.campaign
        if campaign.finished_at is not None:
            return ("ended", campaign.finished_at)
        if campaign.started_at is None:
            return ("changed", campaign.updated_at)
        start_at = campaign.plan.start_at
        if start_at is not None and start_at > datetime.now(UTC):
            return ("starts", start_at)
        return ("started", campaign.started_at)


# ── the list ───────────────────────────────────────────────────────────────────────────────────────────────────────


_CAMPAIGNS = filters(service.list_campaigns, Filter("name", "Name", placeholder="spring"), Filter("status", "Status"))


async def list_page(request: PageRequest) -> Answer:
    values = await CampaignList(request).read()
    return request.page("campaigns.html", parts=_draw_list(request, values), actions=[NEW], **values)


async def list_live_page(request: PageRequest) -> Answer:
    """The stream of the list's first page."""
    return stream_changes(request, CampaignList(request).read, partial(_draw_list, request))


def _draw_list(request: PageRequest, values: dict[str, Any]) -> dict[str, str]:
    return {"list": request.draw("parts/campaigns_list.html", **values)}


class CampaignList:
    """The list of campaigns. While a viewer follows it, a subject is rendered again only if its campaign changes."""

    def __init__(self, request: PageRequest) -> None:
        self._request = request
        self._subjects: dict[tuple[int, datetime], str] = {}

    async def read(self) -> dict[str, Any]:
        request = self._request
        cursor, shown = request.asked("cursor"), request.filters(_CAMPAIGNS)
        chosen = request.chosen(_CAMPAIGNS)
        found, more = await service.list_campaigns(request.pool, **chosen, cursor=cursor, limit=LISTED)
        figures = await service.measure(request.pool, found)
        return {
            "rows": [CampaignRow(each, figures[each.id], await self._subject(each)) for each in found],
            "filters": shown,
            "query": query_with(shown),
            "next_cursor": more,
            "is_first": cursor is None,
        }

    async def _subject(self, campaign: Campaign) -> str:
        key = (campaign.id, campaign.updated_at)
        if key not in self._subjects:
            self._subjects[key] = await letters.preview_subject(self._request.pool, campaign)
        return self._subjects[key]


# ── one campaign ───────────────────────────────────────────────────────────────────────────────────────────────────


async def show_page(request: PageRequest) -> Answer:
    report = await reports.read_report(request.pool, request.id("campaign_id"))
    campaign = report.campaign
    if campaign.status is CampaignStatus.DRAFT:
        return await _draft(request, report)
    details = await read_details(request, campaign.id)
    return request.page("campaign.html", **_values(campaign, ""), parts=_draw_parts(request, report, details))


async def _draft(request: PageRequest, report: CampaignReport) -> Answer:
    """The steps before a start."""
    campaign = report.campaign
    return request.page(
        "campaign_draft.html",
        **_values(campaign, ""),
        warnings=await letters.lint_campaign(request.pool, campaign.id),
        forecast=await service.forecast(request.pool, campaign),
        has_secret=request.call.room.settings.secret_key is not None,
    )


async def live_page(request: PageRequest) -> Answer:
    """The stream of one campaign's results."""
    await service.get_campaign(request.pool, request.id("campaign_id"))  # 404 before the stream begins
    return stream_changes(request, LiveReport(request).read, lambda found: _draw_parts(request, *found))


@dataclass(frozen=True, slots=True)
class CampaignDetails:
    """Figures that are read from a row per person, click or domain."""

    links: list[LinkFigures]
    domains: list[CampaignDomain]


async def read_details(request: PageRequest, campaign_id: int) -> CampaignDetails:
    links, _more = await tracking.list_links(request.pool, campaign_id, limit=MOST_LINKS)
    domains = await reports.list_domains(request.pool, campaign_id, limit=MOST_DOMAINS)
    return CampaignDetails(links, domains)


class LiveReport:
    """The results of one campaign.

    The details of a large campaign take long to read: they are read again after twenty times their own duration, so
    that a viewer takes at most a twentieth of one connection.
    """

    def __init__(self, request: PageRequest) -> None:
        self._request = request
        self._details: CampaignDetails | None = None
        self._read_at = 0.0

    async def read(self) -> tuple[CampaignReport, CampaignDetails]:
        report = await reports.read_report(self._request.pool, self._request.id("campaign_id"))
        return report, await self._read_details(report.campaign.id)

    async def _read_details(self, campaign_id: int) -> CampaignDetails:
        begin = time.monotonic()
        if self._details is None or self._read_at <= begin:
            self._details = await read_details(self._request, campaign_id)
            self._read_at = begin + 20 * (time.monotonic() - begin)
        return self._details


def _draw_parts(request: PageRequest, report: CampaignReport, details: CampaignDetails) -> dict[str, str]:
    now = datetime.now(UTC)
    most = max((link.people for link in details.links), default=0)
    bar = ListColumn("people", "People", "bar", value=lambda link: (link.people, most))
    values = {
        "campaign": report.campaign,
        "counts": report.figures.counts,
        "figures": report.figures,
        "parts_of_bar": draw_progress(report.figures.counts),
        "funnel": draw_funnel(report),
        "losses": draw_losses(report),
        "actions": actions_of(report.campaign),
        "opens": draw_engagement(report, "opened", request.viewer, now=now),
        "clicks": draw_engagement(report, "clicked", request.viewer, now=now),
        "links": details.links,
        "link_columns": (*_LINK[:1], bar, *_LINK[2:4]),
        "domains": details.domains,
        "domain_columns": _domain_columns(report.campaign.id),
    }
    return {name: request.draw(f"parts/campaign_{name}.html", **values) for name in PARTS}


def _values(campaign: Campaign, view: str) -> dict[str, Any]:
    """The values of every page of a campaign."""
    return {
        "campaign": campaign,
        "path": f"/campaigns/{campaign.id}",
        "views": VIEWS,
        "view": view,
        "actions": actions_of(campaign),
        "schedule": schedule_of(campaign),
        "sender": written(campaign.plan.letter.sender),
        "reply_to": written(campaign.plan.letter.reply_to),
    }


_PEOPLE = filters(
    reports.list_people, Filter("email", "Address", placeholder="ada@example.org"), Filter("result", "Result")
)


async def people_page(request: PageRequest) -> Answer:
    campaign, cursor = await service.get_campaign(request.pool, request.id("campaign_id")), request.asked("cursor")
    found = await reports.list_people(request.pool, campaign.id, **request.chosen(_PEOPLE), cursor=cursor)
    empty = "No recipients are uploaded yet."
    rows = request.rows(_PERSON, found, filters=_PEOPLE, path=f"/campaigns/{campaign.id}/people", empty=empty)
    shown = request.filters(_PEOPLE)
    query = query_with(shown)
    export = f"/campaigns/{campaign.id}/people.csv{'?' if query else ''}{query}" if any(found) else None
    return request.page("campaign_list.html", **_values(campaign, "/people"), rows=rows, filters=shown, export=export)


async def people_csv_page(request: PageRequest) -> Answer:
    """The people that the filters choose as CSV, read page by page while it is sent."""
    campaign = await service.get_campaign(request.pool, request.id("campaign_id"))
    pages = reports.export_people(request.pool, campaign.id, **request.chosen(_PEOPLE))
    headers = {"content-disposition": f'attachment; filename="people-of-campaign-{campaign.id}.csv"'}
    return Answer(_people_csv(pages), 200, "text/csv; charset=utf-8", headers)


async def _people_csv(pages: AsyncIterator[list[PersonMail]]) -> AsyncIterator[bytes]:
    yield write_rows([[column.label for column in _PERSON]]).encode()
    async for people in pages:
        yield write_rows([_csv_cell(column.of(person)) for column in _PERSON] for person in people).encode()


def _csv_cell(value: Any) -> Any:
    """Times in ISO 8601, and replies of several lines on one."""
    if isinstance(value, datetime):
        return value.isoformat()
    return " ".join(value.split()) if isinstance(value, str) else value


async def links_page(request: PageRequest) -> Answer:
    campaign = await service.get_campaign(request.pool, request.id("campaign_id"))
    found = await tracking.list_links(request.pool, campaign.id, cursor=request.asked("cursor"))
    empty = "No link was clicked yet." if campaign.plan.letter.is_tracked else "Opens and clicks are not counted."
    rows = request.rows(_LINK, found, path=f"/campaigns/{campaign.id}/links", empty=empty)
    export = f"/campaigns/{campaign.id}/links.csv" if found[0] else None
    return request.page("campaign_list.html", **_values(campaign, "/links"), rows=rows, filters=(), export=export)


async def links_csv_page(request: PageRequest) -> Answer:
    """The links with the most clicks as CSV; the command line and the API export any number."""
    campaign = await service.get_campaign(request.pool, request.id("campaign_id"))
    found, _more = await tracking.list_links(request.pool, campaign.id, cursor=None, limit=EXPORTED_LINKS)
    headers = {"content-disposition": f'attachment; filename="links-of-campaign-{campaign.id}.csv"'}
    return Answer(csv_of(LinkFigures, found, header=True).encode(), 200, "text/csv; charset=utf-8", headers)


async def content_page(request: PageRequest) -> Answer:
    """The mail as one recipient sees it, its warnings, and the form of a test mail."""
    campaign = await service.get_campaign(request.pool, request.id("campaign_id"))
    return request.page(
        "campaign_content.html",
        **_values(campaign, "/content"),
        people=await suggested_people(request, campaign),
        person=request.asked("person") or "",
        to=request.form.get("to", ""),
    )


async def test_page(request: PageRequest) -> Answer:
    campaign_id = request.id("campaign_id")
    to = [each.strip() for each in request.form.get("to", "").split(",") if each.strip()]
    try:
        await letters.send_test(request.pool, campaign_id, to, actor=request.actor, email=request.asked("person"))
    except BadInput as error:
        return await content_page(replace(request, problem=error.message))
    return request.done(f"/campaigns/{campaign_id}/content", f"A test mail is on its way to {', '.join(to)}.")


def _domain_columns(campaign_id: int) -> tuple[ListColumn, ...]:
    def link(row: CampaignDomain) -> str | None:
        return f"/deliveries?campaign={campaign_id}&domain={row.domain}" if row.domain else None

    return (
        ListColumn("domain", "Domain", link=link, value=lambda row: row.domain or "unknown"),
        ListColumn("sent", "Sent", "number"),
        ListColumn("bounced", "Bounced", "bar", value=lambda row: (row.bounced, max(row.sent, row.bounced))),
        ListColumn("failed", "Failed", "number"),
    )


PAGES = (
    listing_page("/campaigns", list_page, scope=READ),
    page("/campaigns/live", list_live_page, scope=READ, keeps_session=False),
    page("/campaigns/{campaign_id:int}", show_page, scope=READ),
    page("/campaigns/{campaign_id:int}/live", live_page, scope=READ, keeps_session=False),
    listing_page("/campaigns/{campaign_id:int}/people", people_page, scope=READ),
    page("/campaigns/{campaign_id:int}/people.csv", people_csv_page, scope=READ),
    listing_page("/campaigns/{campaign_id:int}/links", links_page, scope=READ),
    listing_page("/campaigns/{campaign_id:int}/links.csv", links_csv_page, scope=READ),
    page("/campaigns/{campaign_id:int}/content", content_page, scope=READ),
    form("/campaigns/{campaign_id:int}/test", test_page, scope=WRITE),
)
