"""A host of several workers with accounts: `python -m tests.support.senders_process '{"url": …}'`.

Every worker has a pool and a desk of its own, as if it were a process. Before each mail it prints `start <moment>` by
the monotonic clock, which all processes of a machine share. It ends when nothing is left that may leave, or dies by
SIGKILL at the n-th mail, as the kernel would have it.
"""

import asyncio
import os
import signal
import sys
import time
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import timedelta

import msgspec

from postroom.db.pool import open_pool
from postroom.delivery.model import Address, Lane
from postroom.delivery.worker import Worker, WorkerOptions
from postroom.mail.compose import Composer
from postroom.runtime.clock import utc_now
from postroom.senders.credentials import Credentials
from postroom.senders.desk import SenderDesk
from postroom.senders.factory import WaysOut
from postroom.senders.model import SenderAccount
from postroom.senders.seal import LocalSealer
from postroom.transports import Content, Envelope, Reply, Transport
from postroom.transports.noop import NoopTransport


@dataclass(frozen=True)
class Host:
    """What the process is to do."""

    url: str
    workers: int = 8
    room: str = "postroom"
    lease_s: float = 30.0
    die_at: int = 0  # 0: never

    def encode(self) -> str:
        return msgspec.json.encode(self).decode()


class Telling:
    """A way out that says when it is used."""

    used = 0

    def __init__(self, inner: Transport, die_at: int) -> None:
        self.name, self._inner, self._die_at = inner.name, inner, die_at

    async def send(self, envelope: Envelope, content: Content) -> Reply:
        print("start", time.monotonic(), flush=True)  # noqa: T201 - the test reads it
        Telling.used += 1
        if Telling.used == self._die_at:
            os.kill(os.getpid(), signal.SIGKILL)
        return await self._inner.send(envelope, content)

    async def close(self) -> None:
        await self._inner.close()


async def work(host: Host) -> None:
    composer = Composer(default_sender=Address("post@example.org"), message_domain="example.org")
    ways = WaysOut(connections=2)

    def factory(account: SenderAccount, credentials: Credentials) -> Transport:
        return Telling(ways(account, credentials), host.die_at)

    async with AsyncExitStack() as stack, asyncio.TaskGroup() as together:
        for _ in range(host.workers):
            pool = await stack.enter_async_context(await open_pool(host.url, host.room, size=2))
            desk = SenderDesk(pool, LocalSealer.from_keys(None), factory)
            stack.push_async_callback(desk.close)
            worker = Worker(
                pool,
                compose=lambda outgoing: composer.compose(outgoing, now=utc_now()),
                route=lambda _channel, _lane: NoopTransport(),
                senders=desk,
                options=WorkerOptions(
                    lanes=(Lane.BULK,),
                    lease=timedelta(seconds=host.lease_s),
                    poll_interval=timedelta(milliseconds=20),
                    until_empty=True,
                ),
            )
            together.create_task(worker.run())


if __name__ == "__main__":
    asyncio.run(work(msgspec.json.decode(sys.argv[1], type=Host)))
