"""Reports of a campaign: its counts by hour, its mail by domain, and the result for each recipient."""

from collections import Counter
from collections.abc import AsyncIterator

from postroom.campaigns import store
from postroom.campaigns.errors import CampaignNotFound
from postroom.campaigns.model import CampaignDomain, CampaignReport, PersonMail, PersonResult, figures_of
from postroom.db.pool import Pool
from postroom.runtime.page import Found, decode_cursor, encode_cursor

SCANNED = 2000
"""Recipients that one page with a filter reads at most; without a match in them, the next page continues after them."""

EXPORTED_PAGE = 1000
"""Recipients that one statement of an export reads; bounds memory."""


async def read_report(pool: Pool, campaign_id: int) -> CampaignReport:
    """A campaign with all its counts; one statement reads them in total and by hour."""
    async with pool.acquire() as connection:
        campaign = CampaignNotFound.unless(await store.find_campaign(connection, campaign_id=campaign_id))
        hours = await store.list_hours(connection, campaign_id=campaign_id)
    total: Counter[str] = Counter()
    for hour in hours:
        total.update(hour.amounts)
    return CampaignReport(campaign=campaign, figures=figures_of(campaign, total), hours=hours)


async def list_domains(pool: Pool, campaign_id: int, *, limit: int = 20) -> list[CampaignDomain]:
    """The domains with bounced or failed mail of a campaign, those with the most bounces first."""
    return await store.list_domains(pool, campaign_id=campaign_id, page_limit=limit)


async def export_people(
    pool: Pool, campaign_id: int, *, email: str | None = None, result: PersonResult | None = None
) -> AsyncIterator[list[PersonMail]]:
    """All recipients of a list with its filters, in pages."""
    cursor: str | None = None
    while True:
        found, cursor = await list_people(
            pool, campaign_id, email=email, result=result, cursor=cursor, limit=EXPORTED_PAGE
        )
        yield found
        if cursor is None:
            return


async def list_people(
    pool: Pool,
    campaign_id: int,
    *,
    email: str | None = None,
    result: PersonResult | None = None,
    cursor: str | None = None,
    limit: int = 50,
) -> Found[PersonMail]:
    """A page of recipients with the result of their mail, and the cursor of the next page.

    A page may have fewer recipients than `limit`, or none, although others follow: see `SCANNED`.
    """
    zone, after = decode_cursor(cursor, tuple[str, int]) if cursor else (None, None)
    async with pool.acquire() as connection:
        CampaignNotFound.unless(await store.find_campaign(connection, campaign_id=campaign_id))
        if email is not None:
            person = await store.find_recipient(connection, campaign_id=campaign_id, email=email)
            if person is None:
                return [], None
            zone, after, limit = person.time_zone, person.id - 1, 1
        found = await store.list_people(
            connection,
            campaign_id=campaign_id,
            result=result,
            after_zone=zone,
            after_id=after,
            bound=SCANNED if result is not None and email is None else limit + 1,
            page_limit=limit + 1,
        )
    if not found or (len(found) <= limit and found[-1].is_chosen):
        return found, None
    rest = found[-1]
    return found[:-1], None if email is not None else encode_cursor(rest.time_zone, rest.id - 1)
