"""A feeder and a worker in a process that kills itself: `python -m tests.support.campaigns_worker '{"url": …}'`.

They alternate until the process sends itself SIGKILL at the n-th occurrence of a step of either.
"""

import asyncio
import sys

import msgspec
from tests.support.campaigns import a_campaign_worker
from tests.support.chaos_worker import HOUR, Orders
from tests.support.doom import Doom

from postroom.campaigns.worker import Feeder, FeederOptions
from postroom.db.pool import open_pool
from postroom.delivery.model import Lane
from postroom.delivery.worker import WorkerOptions
from postroom.transports.smtp import SmtpRelay, SmtpTransport


async def work(orders: Orders) -> None:
    pool = await open_pool(orders.url, orders.room, size=8)
    transport = SmtpTransport(SmtpRelay("127.0.0.1", orders.port, tls="none"), max_connections=orders.connections)
    doom = Doom(orders.die_at, orders.occurrence)
    options = WorkerOptions(batch=orders.batch, chunk=orders.chunk, lease=HOUR)
    worker = a_campaign_worker(pool, transport, options=options, signal=doom)
    feeder = Feeder(pool, FeederOptions(first_target=1000, least_target=1000, most_target=1000), signal=doom)
    while True:
        await feeder.run_once()
        await worker.run_once(Lane.BULK)


if __name__ == "__main__":
    asyncio.run(work(msgspec.json.decode(sys.argv[1], type=Orders)))
