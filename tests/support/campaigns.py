"""Helpers for campaigns in tests: create, fill and start them, and workers that render their mail."""

from collections.abc import AsyncIterator, Sequence
from datetime import datetime
from typing import Any

from tests.support.builders import NOON, a_worker

from postroom.campaigns import service
from postroom.campaigns.model import Campaign, CampaignContent, CampaignRequest, LineFormat, RejectedLine, Uploaded
from postroom.campaigns.rendering import CampaignRendering, RenderingOptions
from postroom.campaigns.upload import Upload
from postroom.db.pool import Pool
from postroom.delivery.worker import Worker
from postroom.mail.compose import Composer, MailWriter
from postroom.post.address import Address
from postroom.tracking.tokens import TokenSigner
from postroom.transports.base import Transport

SECRET = bytes(range(32))
SIGNER = TokenSigner(SECRET, "https://mail.example.org", room="postroom")
HTML = (
    "<html><body><p>Hello {{ first_name }}, <a href='https://shop.example.org/?a=1&amp;b=2'>look</a></p>"
    '<p><a href="{{ unsubscribe_url }}">Unsubscribe</a></p></body></html>'
)


def a_letter(**fields: Any) -> CampaignContent:
    given = {"subject": "News for {{ first_name }}", "html": HTML, "sender": Address("news@example.org", "News")}
    return CampaignContent(**{**given, **fields})


def a_plan(name: str = "Spring", **fields: Any) -> CampaignRequest:
    """A campaign with a letter; takes fields of both."""
    of_letter = {key: fields.pop(key) for key in list(fields) if key in service.CONTENT}
    return CampaignRequest(name=name, letter=a_letter(**of_letter), **fields)


async def a_campaign(pool: Pool, people: Sequence[str] | int = 0, **fields: Any) -> Campaign:
    """A draft with this number of recipients, or with these addresses."""
    campaign = await service.create_campaign(pool, a_plan(**fields), actor="tests")
    if people:
        await upload(pool, campaign.id, csv_of(people))
    return campaign


async def a_running_campaign(pool: Pool, people: Sequence[str] | int, **fields: Any) -> int:
    """Start a campaign; returns its id."""
    now: datetime | None = fields.pop("now", None)
    campaign = await a_campaign(pool, people, **fields)
    await service.start_campaign(pool, campaign.id, actor="tests", now=now)
    return campaign.id


def csv_of(people: Sequence[str] | int) -> bytes:
    """CSV lines of addresses with a first name."""
    emails = [f"p{n}@example.org" for n in range(people)] if isinstance(people, int) else people
    return b"email,first_name\n" + b"".join(f"{email},Name{n}\n".encode() for n, email in enumerate(emails))


async def upload(
    pool: Pool,
    campaign_id: int,
    *chunks: bytes,
    line_format: LineFormat = LineFormat.CSV,
    refused: list[RejectedLine] | None = None,
    now: datetime | None = None,
) -> Uploaded:
    """Upload these chunks; rejected lines are added to the list."""

    async def pieces() -> AsyncIterator[bytes]:
        for chunk in chunks:
            yield chunk

    on_refused = refused.extend if refused is not None else None
    return await Upload(pool, campaign_id, on_refused=on_refused, now=now).run(pieces(), line_format, actor="tests")


def letters_of(pool: Pool, *, signer: TokenSigner | None = SIGNER) -> CampaignRendering:
    return CampaignRendering(pool, signer, RenderingOptions(default_domain="example.org"))


def a_campaign_worker(pool: Pool, transport: Transport, **seams: Any) -> Worker:
    """A worker that renders campaign mail."""
    letters = letters_of(pool)
    composer = Composer(default_sender=Address("post@example.org"), message_domain="example.org")
    writer = MailWriter(composer, campaigns=letters, now=lambda: NOON)
    return a_worker(pool, transport, compose=writer.write, prepare=writer.prepare, **seams)


async def states_of(pool: Pool, campaign_id: int) -> dict[str, int]:
    """The number of a campaign's deliveries by state."""
    rows = await pool.fetch(
        "SELECT state::text, count(*) FROM deliveries WHERE campaign_id = $1 GROUP BY state", campaign_id
    )
    return {row["state"]: row["count"] for row in rows}
