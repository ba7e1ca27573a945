"""The load of an upgrade: mail, campaigns and sign-ups written in plain SQL that every release understands."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import count

import asyncpg
from tests.support.smtp_server import Server

from postroom.db.pool import Pool
from postroom.delivery.model import Lane

ROOM = "postroom"
PACE_S = 0.05  # between two transactions of one client
POLL_S = 0.05
PEOPLE = 300  # of the campaign
_SEND = """
    SELECT send(ARRAY[$1], p_subject => 'Upgrade', p_text => 'Hello', p_lane => $2, p_idempotency_key => $1)
"""
_SIGN_UP = "INSERT INTO accounts (email, login) VALUES ($1, $1)"
_CAMPAIGN = """
    INSERT INTO campaigns (name, subject, text_body, from_email, total_count)
    VALUES ('Upgrade', 'News', 'Stop: {{ unsubscribe_url }}', 'news@example.org', $1) RETURNING id
"""
_PEOPLE = """
    INSERT INTO campaign_recipients (campaign_id, time_zone, email)
    SELECT $1, '', 'c' || number || '@example.org' FROM generate_series(1, $2::int) AS number
"""
_ZONE = """
    INSERT INTO campaign_zones (campaign_id, time_zone, last_id, due_at)
    SELECT campaign_id, '', max(id), now() FROM campaign_recipients WHERE campaign_id = $1 GROUP BY 1
"""
_START = "UPDATE campaigns SET status = 'active', started_at = now() WHERE id = $1"
_TWICE = """
    SELECT d.recipient_email FROM deliveries AS d JOIN accounts AS a ON a.email = d.recipient_email
    GROUP BY 1 HAVING count(*) > 1
"""


@dataclass
class Accepted:
    """Everything that was committed."""

    deliveries: dict[str, set[int]] = field(default_factory=dict)  # by idempotency key
    accounts: list[str] = field(default_factory=list)


@asynccontextmanager
async def connected(url: str) -> AsyncIterator[asyncpg.Connection]:
    """A connection to the room."""
    connection = await asyncpg.connect(url, server_settings={"search_path": ROOM})
    try:
        yield connection
    finally:
        await connection.close()


@asynccontextmanager
async def load(url: str) -> AsyncIterator[Accepted]:
    """Accept mail of every lane and sign-ups for as long as the block runs, beside a campaign."""
    accepted, stop = Accepted(), asyncio.Event()
    async with connected(url) as connection:
        await _start_campaign(connection)
    async with asyncio.TaskGroup() as group:
        for lane in Lane:
            group.create_task(_send(url, lane, accepted, stop))
        group.create_task(_sign_up(url, accepted, stop))
        try:
            yield accepted
        finally:
            stop.set()


async def _start_campaign(connection: asyncpg.Connection) -> None:
    campaign = await connection.fetchval(_CAMPAIGN, PEOPLE)
    await connection.execute(_PEOPLE, campaign, PEOPLE)
    for statement in (_ZONE, _START):
        await connection.execute(statement, campaign)


async def _send(url: str, lane: Lane, accepted: Accepted, stop: asyncio.Event) -> None:
    async with connected(url) as connection:
        for number in count():
            if stop.is_set():
                return
            key = f"{lane}-{number}@example.org"
            accepted.deliveries[key] = {await connection.fetchval(_SEND, key, lane)}
            await asyncio.sleep(PACE_S)


async def _sign_up(url: str, accepted: Accepted, stop: asyncio.Event) -> None:
    async with connected(url) as connection:
        for number in count():
            if stop.is_set():
                return
            email = f"user{number}@example.org"
            await connection.execute(_SIGN_UP, email)
            accepted.accounts.append(email)
            await asyncio.sleep(PACE_S)


async def arrives(sink: Server, messages: int) -> None:
    """Wait until so many more messages have arrived."""
    enough = len(sink.messages) + messages
    while len(sink.messages) < enough:  # noqa: ASYNC110 - other processes send them
        await asyncio.sleep(POLL_S)


async def code_problems(pool: Pool, accepted: Accepted, sink: Server) -> list[str]:
    """Accounts whose code did not arrive, or that got two deliveries."""
    reached = {address for message in sink.messages for address in message.recipients}
    missing = [f"{email} got no code" for email in accepted.accounts if email not in reached]
    return missing + [f"{row[0]} got two deliveries" for row in await pool.fetch(_TWICE)]
