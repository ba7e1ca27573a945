"""Unsubscribe, resubscribe, preferences, and reports of clicks."""

from datetime import datetime

from postroom.db.pool import Pool
from postroom.db.queries import Connection
from postroom.errors import BadInput
from postroom.events.audit import audited
from postroom.runtime.page import Found, read_page, search_page
from postroom.tracking import store
from postroom.tracking.metrics import UNSUBSCRIBES
from postroom.tracking.model import (
    BulkMailStatus,
    ClickedLink,
    DeliveryEngagement,
    LinkFigures,
    LinkSubject,
    Origin,
    UnsubscribeReason,
    Visitor,
)

SEARCHED, CLICKS_EACH = 1_000, 20
"""Most clicks that a page reads: so many, or so many for each of its items."""


async def find_engagement(pool: Pool, delivery_id: int) -> DeliveryEngagement | None:
    """The first opens and clicks of a delivery; None if there were none."""
    return await store.find_engagement(pool, delivery_id=delivery_id)


async def find_standing(connection: Connection, mark: LinkSubject, *, now: datetime | None = None) -> BulkMailStatus:
    return await store.find_standing(connection, address=mark.address, now=now)


async def list_clicks(
    pool: Pool,
    *,
    campaign_id: int | None = None,
    email: str | None = None,
    url: str | None = None,
    cursor: str | None = None,
    limit: int = 50,
) -> Found[ClickedLink]:
    """A page of clicks by person and link, and the cursor of the next; at least one filter is required."""
    if campaign_id is None and email is None and url is None:
        raise BadInput.of("campaign_id", "is missing; give campaign_id, email or url")
    order = {"after_address": ("email", str), "after_link": ("url", str)}
    filters = {"campaign_id": campaign_id, "address": email, "link_url": url}
    bound = max(SEARCHED, CLICKS_EACH * limit)
    return await search_page(store.list_clicks, pool, cursor, limit, order=order, bound=bound, **filters)


async def list_links(pool: Pool, campaign_id: int, *, cursor: str | None = None, limit: int = 50) -> Found[LinkFigures]:
    """A page of a campaign's links, the most clicked first, and the cursor of the next."""
    order = {"after_people": ("people", int), "after_link": ("url", str)}
    return await read_page(store.list_links, pool, cursor, limit, order=order, campaign_id=campaign_id)


async def unsubscribe(
    pool: Pool,
    mark: LinkSubject,
    *,
    origin: Origin,
    visitor: Visitor,
    reason: UnsubscribeReason | None = None,
    now: datetime | None = None,
) -> bool:
    """Stop bulk mail to the address, and store the reason, if any. True if the address was subscribed before."""
    is_news = await store.unsubscribe(
        pool,
        address=mark.address,
        delivery_id=mark.delivery_id,
        campaign_id=mark.campaign_id,
        origin=origin.value,
        ip_address=visitor.ip_address,
        user_agent=visitor.user_agent,
        reason=reason,
        now=now,
    )
    if is_news:
        UNSUBSCRIBES.labels(origin.value).inc()
    return is_news


async def resubscribe(pool: Pool, mark: LinkSubject, *, now: datetime | None = None) -> BulkMailStatus:
    """Undo the person's own unsubscribe, but no suppression by an operator or a bounce; returns the new status."""
    # The person is identified by the delivery of the link: facts and audit log contain no addresses.
    subject = f"delivery:{mark.delivery_id}"
    async with audited(pool, "recipient", "suppression.undo", subject) as (connection, note):
        note.before = {"reason": "unsubscribe"}
        note.is_dropped = not await store.resubscribe(connection, address=mark.address, now=now)
        return await store.find_standing(connection, address=mark.address, now=now)
