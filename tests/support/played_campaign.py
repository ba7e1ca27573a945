"""A campaign that was sent to some hundred people, with bounces, opens, clicks and unsubscribes."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from random import Random
from typing import Any

from tests.support.builders import Recording, per_recipient
from tests.support.campaigns import a_campaign_worker, a_plan, upload
from tests.support.feedback import a_bounce

from postroom.campaigns import service
from postroom.campaigns.worker import Feeder
from postroom.db.pool import Pool
from postroom.delivery.worker import WorkerOptions
from postroom.feedback.record import record
from postroom.tracking import service as tracking
from postroom.tracking.model import Agent, LinkSubject, Origin, TrackedRequest, Visitor
from postroom.tracking.store import record_hits

DOMAINS = ("gmail.com", "outlook.com", "example.org", "shop.example", "mail.example.net", "old-host.example")
LINKS = (
    "https://shop.example/spring",
    "https://shop.example/spring/coats?utm_source=letter",
    "https://shop.example/stores",
)
HTML = (
    '<html><body style="font-family: sans-serif; background: #f4efe6; margin: 0"><div style="max-width: 36rem; '
    'margin: 0 auto; padding: 24px; background: #ffffff"><h1 style="color: #1f6f54">Spring is here, '
    '{{ first_name|default("friend", true) }}</h1><p>In {{ city|default("your town", true) }} the first warm days '
    'arrive, and so does our new collection.</p><p><a style="background: #1f6f54; color: #ffffff; padding: 10px 18px; '
    'border-radius: 6px; text-decoration: none" href="https://shop.example/spring">See the collection</a></p>'
    '<p style="color: #777777; font-size: 13px">You get this mail as a customer of Acme. '
    '<a href="{{ unsubscribe_url }}">Unsubscribe</a></p></div></body></html>'
)
FIRST = ("Ada", "Grace", "Emmy", "Alan", "Edsger", "Barbara", "Donald", "Katherine", "Linus", "Margaret")
LAST = ("Lovelace", "Hopper", "Noether", "Turing", "Dijkstra", "Liskov", "Knuth", "Johnson", "Torvalds", "Hamilton")
CITIES = ("London", "New York", "Erlangen", "Kyoto", "")
ZONES = ("Europe/London", "America/New_York", "Europe/Berlin", "Asia/Tokyo", "")


def people_csv(count: int) -> bytes:
    lines = ["email,name,first_name,city,time_zone"]
    for n in range(count):
        first, last = FIRST[n % 10], LAST[n // 10 % 10]
        domain = DOMAINS[n * n % 11 % len(DOMAINS)]
        email = f"{first}.{last}{n}@{domain}".lower()
        lines.append(f"{email},{first} {last},{first},{CITIES[n % 5]},{ZONES[n % 5]}")
    return "\n".join(lines).encode()


async def a_sent_campaign(pool: Pool, count: int = 60, *, days: float = 1.5, **fields: Any) -> int:
    """Send a campaign and let people react, over `days` before now; returns its id."""
    given = {"name": "Spring collection", "subject": "Spring is here, {{ first_name }}", "html": HTML, **fields}
    campaign = await service.create_campaign(pool, a_plan(**given), actor="tests")
    await upload(pool, campaign.id, people_csv(count))
    await service.start_campaign(pool, campaign.id, actor="tests")
    await Feeder(pool).run_once()
    await a_campaign_worker(
        pool, Recording(per_recipient(await _refusals(pool, campaign.id))), options=WorkerOptions(until_empty=True)
    ).run()
    await Feeder(pool).run_once()
    await _react(pool, campaign.id, days)
    return campaign.id


async def _refusals(pool: Pool, campaign_id: int) -> dict[str, tuple[int, str]]:
    """Every seventh address of the old host does not exist; one of a hundred is refused for another reason."""
    emails = [row["email"] for row in await _mails(pool, campaign_id)]
    unknown = [email for n, email in enumerate(emails) if email.endswith("old-host.example") or n % 41 == 7]
    return {**dict.fromkeys(unknown[::2], (550, "5.1.1")), **dict.fromkeys(emails[13::90], (554, "5.7.1"))}


async def _mails(pool: Pool, campaign_id: int) -> Sequence[Any]:
    return await pool.fetch(  # type: ignore[no-any-return] # asyncpg has no types
        "SELECT r.email, r.delivery_id, d.state::text FROM campaign_recipients AS r"
        " LEFT JOIN deliveries AS d ON d.id = r.delivery_id WHERE r.campaign_id = $1 ORDER BY r.id",
        campaign_id,
    )


async def _react(pool: Pool, campaign_id: int, days: float) -> None:
    dice = Random(campaign_id)
    now: datetime = await pool.fetchval("SELECT now()")
    begin = now - timedelta(days=days)
    hits: list[TrackedRequest] = []
    reached = [row for row in await _mails(pool, campaign_id) if row["state"] == "sent"]
    for row in reached:
        mark = LinkSubject(campaign_id, row["delivery_id"], row["email"])
        at = (begin + timedelta(days=days) * min(dice.expovariate(7), 1.0)).timestamp()
        if dice.random() < 0.35:
            hits.append(_hit(mark, at - 60, None, is_machine=True))
        if dice.random() < 0.46:
            hits.append(_hit(mark, at, None))
            if dice.random() < 0.35:
                hits.append(_hit(mark, at + 90, dice.choices(LINKS, (6, 3, 1))[0]))
        if dice.random() < 0.08:
            hits += [_hit(mark, at - 50, link, is_machine=True) for link in LINKS]
    async with pool.acquire() as connection:
        await record_hits(connection, **_columns(hits))
        returned = [a_bounce(row["email"], delivery_id=row["delivery_id"]) for row in reached[5::40]]
        await record(connection, returned, now=now)
    for row in reached[9::60]:
        mark = LinkSubject(campaign_id, row["delivery_id"], row["email"])
        await tracking.unsubscribe(pool, mark, origin=Origin.PAGE, visitor=Visitor(None, None))


def _hit(mark: LinkSubject, at: float, link: str | None, *, is_machine: bool = False) -> TrackedRequest:
    agent = Agent("scanner", is_machine=True) if is_machine else Agent("browser", is_machine=False)
    return TrackedRequest(mark, at, agent, link, None, None)


def _columns(hits: Sequence[TrackedRequest]) -> dict[str, Sequence[object]]:
    return {
        "delivery_ids": [hit.mark.delivery_id for hit in hits],
        "campaign_ids": [hit.mark.campaign_id for hit in hits],
        "times": [hit.at for hit in hits],
        "link_urls": [hit.link_url for hit in hits],
        "machines": [hit.agent.is_machine for hit in hits],
        "agent_kinds": [hit.agent.kind for hit in hits],
        "ip_addresses": [None] * len(hits),
        "countries": [None] * len(hits),
        "cities": [None] * len(hits),
        "addresses": [hit.mark.address for hit in hits],
        "user_agents": [None] * len(hits),
    }
