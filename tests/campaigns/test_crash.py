"""Crashes during a campaign: each recipient gets one mail, or the ledger marks it as ambiguous."""

import asyncio
import signal
from collections import Counter
from datetime import timedelta

from tests.support.builders import NOON, Hands
from tests.support.campaigns import a_campaign_worker, a_running_campaign
from tests.support.chaos import leftovers, received, silence
from tests.support.chaos_worker import Orders
from tests.support.forked import run_module
from tests.support.sessions import sessions_end
from tests.support.smtp_server import Server, smtp_server, transport_to

from postroom.campaigns import service
from postroom.campaigns.model import CampaignStatus
from postroom.campaigns.worker import Feeder
from postroom.db.room import Room
from postroom.delivery.maintenance import Maintenance
from postroom.delivery.model import Lane
from postroom.delivery.worker import WorkerOptions

PEOPLE = 10_000
DEATHS = [("sent", 700), ("fed", 3), ("started", 9), ("claimed", 4), ("completed", 7), ("sent", 1900)]


async def run_to_its_end(orders: Orders) -> int:
    return (await run_module("tests.support.campaigns_worker", orders.encode()))[0]


async def finish(room: Room, server: Server, campaign: int) -> None:
    """Expire every lease, and let another feeder and worker finish."""
    later = Hands(NOON + timedelta(days=365))
    await Maintenance(room.pool, clock=later).recover()
    options = WorkerOptions(lease=timedelta(hours=1))
    feeder = Feeder(room.pool, clock=later)
    async with transport_to(server) as transport, asyncio.timeout(600):
        worker = a_campaign_worker(room.pool, transport, clock=later, options=options)
        while (await service.get_campaign(room.pool, campaign)).status is CampaignStatus.ACTIVE:
            await feeder.run_once()
            await worker.run_once(Lane.BULK)


async def test_campaign_survives_killed_workers(room: Room) -> None:
    """Processes are killed at every step: no recipient gets two mails, none is lost, and each doubt is ambiguous."""
    campaign = await a_running_campaign(room.pool, PEOPLE)
    async with smtp_server() as server:
        for first, second in zip(DEATHS[::2], DEATHS[1::2], strict=True):
            doomed = [
                Orders(room.url, server.port, die_at=step, occurrence=number, batch=200, chunk=40)
                for step, number in (first, second)
            ]
            async with sessions_end(room.url):
                assert await asyncio.gather(*map(run_to_its_end, doomed)) == [-signal.SIGKILL, -signal.SIGKILL]
        await silence(server)
        await finish(room, server, campaign)
        arrived = received(server)

    rows = await room.pool.fetch("SELECT id, state::text, reason FROM deliveries WHERE campaign_id = $1", campaign)
    assert len(rows) == PEOPLE
    assert await room.pool.fetchval("SELECT count(DISTINCT delivery_id) FROM campaign_recipients") == PEOPLE
    for row in rows:
        if row["state"] == "sent":
            assert arrived[row["id"]] == 1, dict(row)
        else:
            assert (row["state"], row["reason"]) == ("dead_letter", "ambiguous"), dict(row)
            assert arrived[row["id"]] <= 1, dict(row)
    states = Counter(row["state"] for row in rows)
    assert states["dead_letter"] <= 6 * 80  # mail in flight in six processes: two chunks each
    assert await leftovers(room.pool) == (0, 0)
    done = await service.get_campaign(room.pool, campaign)
    counts = (await service.measure(room.pool, [done]))[campaign].counts
    assert (counts.sent, counts.failed, counts.queued) == (states["sent"], states["dead_letter"], 0)
