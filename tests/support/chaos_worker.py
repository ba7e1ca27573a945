"""A real worker process that can be made to crash: `python -m tests.support.chaos_worker '{"url": …}'`.

It empties the queue into an SMTP server and exits 0. With `die_at`, it kills itself with SIGKILL at the n-th occurrence
of a step. On SIGTERM it stops as a worker does and says `stopping` on its standard output.
"""

import asyncio
import signal
import sys
from dataclasses import dataclass
from datetime import timedelta

import msgspec
from tests.support.doom import Doom

from postroom.db.pool import open_pool
from postroom.delivery.model import Channel, Lane
from postroom.delivery.worker import Worker, WorkerOptions
from postroom.mail.compose import Composer, MailWriter
from postroom.post.address import Address
from postroom.transports.smtp import SmtpRelay, SmtpTransport

HOUR = timedelta(hours=1)


@dataclass(frozen=True)
class Orders:
    """The options of the process."""

    url: str
    port: int
    room: str = "postroom"
    die_at: str | None = None
    occurrence: int = 1
    batch: int = 8
    chunk: int = 4
    connections: int = 4

    def encode(self) -> str:
        return msgspec.json.encode(self).decode()


async def work(orders: Orders) -> None:
    pool = await open_pool(orders.url, orders.room, size=8)
    composer = Composer(default_sender=Address("post@example.org"), message_domain="example.org")
    transport = SmtpTransport(SmtpRelay("127.0.0.1", orders.port, tls="none"), max_connections=orders.connections)
    worker = Worker(
        pool,
        writers={Channel.EMAIL: MailWriter(composer)},
        routes={Channel.EMAIL: dict.fromkeys(Lane, transport)},
        options=WorkerOptions(batch=orders.batch, chunk=orders.chunk, lease=HOUR, grace=HOUR, until_empty=True),
        signal=Doom(orders.die_at, orders.occurrence),
    )

    def stop() -> None:
        worker.stop()
        print("stopping", flush=True)  # noqa: T201 - the test waits for this word

    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop)
    await worker.run()
    await transport.close()
    await pool.close()


if __name__ == "__main__":
    asyncio.run(work(msgspec.json.decode(sys.argv[1], type=Orders)))
