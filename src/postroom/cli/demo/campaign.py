"""The campaign scene: invented recipients, some without a mailbox; then people and machines open and click."""

import asyncio
import csv
import io
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

from postroom.app import link_signer
from postroom.campaigns import service as campaigns
from postroom.campaigns.model import (
    Campaign,
    CampaignContent,
    CampaignFigures,
    CampaignRequest,
    CampaignStatus,
    LineFormat,
)
from postroom.campaigns.upload import Upload
from postroom.cli.demo import store
from postroom.cli.demo.errors import StoryStuck
from postroom.cli.demo.story import Story
from postroom.post.address import Address
from postroom.tracking.model import LinkSubject
from postroom.tracking.tokens import TokenSigner

AT_ONCE = 20  # requests; more would only wait for the server of the demonstration
_LINKS = ("https://shop.example.com/winter", "https://shop.example.com/lamps", "https://shop.example.com/stores")
_SUBJECT = "{{ first_name }}, the winter catalogue is here"
_HTML = """
<h1>Good evening, {{ first_name }}</h1>
<p>Lamps, ladders and letter boxes, made to last. From {{ city }} it is not far to one of our workshops.</p>
<p><a href="https://shop.example.com/winter">Read the winter catalogue</a></p>
<p><a href="https://shop.example.com/lamps">New lamps</a> ·
<a href="https://shop.example.com/stores">Our workshops</a></p>
<p><a href="{{ unsubscribe_url }}">Unsubscribe</a> · <a href="{{ preferences_url }}">Preferences</a></p>
"""
_PERSON = "Mozilla/5.0 (Macintosh; Intel Mac OS X 14_5) AppleWebKit/605.1.15 (KHTML, like Gecko)"
_MACHINE = "Mozilla/5.0"  # Apple's Mail Privacy Protection, which fetches the pictures of every mail


@dataclass(frozen=True, slots=True)
class Hit:
    """One request that a mail causes."""

    url: str
    agent: str = _PERSON
    method: str = "GET"


async def play_campaign(story: Story) -> str:
    plan = CampaignRequest(
        name=f"Winter catalogue {story.run}",
        letter=CampaignContent(
            subject=_SUBJECT, html=_HTML, sender=Address("news@shop.example.com", "Lamp and Ladder")
        ),
    )
    campaign = await campaigns.create_campaign(story.pool, plan, actor=story.actor)
    uploaded = await Upload(story.pool, campaign.id).run(_recipients(story), LineFormat.CSV, actor=story.actor)
    await campaigns.start_campaign(story.pool, campaign.id, actor=story.actor)
    done = await story.until(lambda: _completed(story, campaign.id), "The end of the campaign")
    clicks = await _visit(story, campaign.id)
    figures = await story.until(lambda: _counted(story, done, clicks), "The count of the clicks")
    story.links.append(("Campaign", f"/campaigns/{campaign.id}"))
    return (
        f"{uploaded.added} recipients: {figures.counts.sent} sent, {figures.counts.bounced} bounced; "
        f"{figures.opens.unique} opened by people, {figures.opens.machine} opens by machines, "
        f"{figures.clicks.unique} clicked, {figures.unsubscribes} unsubscribed"
    )


async def _counted(story: Story, campaign: Campaign, clicks: int) -> CampaignFigures | None:
    """The figures, once the statistics contain every click."""
    figures = (await campaigns.measure(story.pool, [campaign]))[campaign.id]
    return figures if figures.clicks.total >= clicks else None


async def _recipients(story: Story) -> AsyncIterator[bytes]:
    """The list of recipients as CSV, a hundred lines at a time."""
    people = story.people(story.size.recipients)
    for start in range(0, len(people), 100):
        text = io.StringIO()
        rows = csv.writer(text)
        if start == 0:
            rows.writerow(["email", "name", "first_name", "city", "time_zone"])
        for each in people[start : start + 100]:
            city = each.time_zone.rpartition("/")[2].replace("_", " ")
            rows.writerow([each.address(story.run), each.name, each.first_name, city, each.time_zone])
        yield text.getvalue().encode()


async def _completed(story: Story, campaign_id: int) -> Campaign | None:
    campaign = await campaigns.get_campaign(story.pool, campaign_id)
    return campaign if campaign.status is CampaignStatus.COMPLETED else None


async def _visit(story: Story, campaign_id: int) -> int:
    """Request pixels and links of the sent mail, as mail programs do; the number of clicks by people."""
    signer = link_signer(story.room.settings)
    if signer is None:
        raise StoryStuck("Opens and clicks need POSTROOM_SECRET_KEY, which `postroom up` creates.")
    mail = await store.list_sent_mail(story.pool, campaign_id=campaign_id)
    marks = [LinkSubject(campaign_id, delivery_id, email) for delivery_id, email in mail]
    clicks = [_click(signer, mark, number) for number, mark in enumerate(marks[::11])]
    await _request_all(story, [Hit(signer.open_url(mark)) for mark in marks[::3]])
    await _request_all(story, [Hit(signer.open_url(mark), _MACHINE) for mark in marks[1::9]])
    await _request_all(story, clicks)
    await _request_all(story, [Hit(signer.unsubscribe_url(mark), method="POST") for mark in marks[3::50]])
    return len(clicks)


def _click(signer: TokenSigner, mark: LinkSubject, number: int) -> Hit:
    return Hit(signer.click_url(mark, _LINKS[(number * number) % len(_LINKS)]))


async def _request_all(story: Story, hits: Sequence[Hit]) -> None:
    limit = asyncio.Semaphore(AT_ONCE)

    async def request(hit: Hit) -> None:
        headers = {"User-Agent": hit.agent}
        async with limit, story.http.request(hit.method, hit.url, headers=headers, allow_redirects=False) as response:
            await response.read()

    async with asyncio.TaskGroup() as group:
        for hit in hits:
            group.create_task(request(hit))
