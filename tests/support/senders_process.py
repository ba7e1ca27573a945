"""A host of several workers with accounts: `python -m tests.support.senders_process '{"url": …}'`.

Every worker has a pool and a desk of its own, as if it were a process. Before each mail it prints `start <moment>`, as
the desk has stamped it by the monotonic clock, which all processes of a machine share. It ends when nothing is left
that may leave, or dies by SIGKILL at the n-th mail, as the kernel would have it.
"""

import asyncio
import os
import signal
import sys
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import timedelta

import msgspec
from tests.support import builders
from tests.support.senders import Stamps

from postroom.db.pool import Pool, open_pool
from postroom.delivery.model import Lane, Outgoing
from postroom.delivery.worker import Worker, WorkerOptions
from postroom.mail.compose import Composer
from postroom.post.address import Address
from postroom.post.reply import Content, Envelope, Reply
from postroom.runtime.clock import utc_now
from postroom.senders.accounts_in_use import AccountsInUse
from postroom.senders.credentials import Credentials
from postroom.senders.factory import ProviderAddresses
from postroom.senders.model import SenderAccount
from postroom.senders.pace import PacedStarts
from postroom.senders.seal import LocalSealer
from postroom.transports.base import Transport
from postroom.transports.unsent import NoopTransport

LEASE = timedelta(hours=1)
"""Long enough that no claim is lost when the machine stalls."""


@dataclass(frozen=True)
class Host:
    """The task of the process."""

    url: str
    workers: int = 8
    room: str = "postroom"
    die_at: int = 0  # 0: never

    def encode(self) -> str:
        return msgspec.json.encode(self).decode()


class Telling:
    """A transport that prints when it is used."""

    used = 0

    def __init__(self, inner: Transport, stamps: Stamps, die_at: int) -> None:
        self.name, self._inner, self._stamps, self._die_at = inner.name, inner, stamps, die_at

    async def send(self, envelope: Envelope, content: Content) -> Reply:
        print("start", self._stamps.last, flush=True)  # noqa: T201 - the test reads it
        Telling.used += 1
        if Telling.used == self._die_at:
            os.kill(os.getpid(), signal.SIGKILL)
        return await self._inner.send(envelope, content)

    async def close(self) -> None:
        await self._inner.close()


def a_worker(host: Host, pool: Pool, ways: ProviderAddresses) -> tuple[Worker, AccountsInUse]:
    """A worker whose start times are those that its own `PacedStarts` has stamped."""
    composer, stamps = Composer(default_sender=Address("post@example.org"), message_domain="example.org"), Stamps()

    def factory(account: SenderAccount, credentials: Credentials) -> Transport:
        return Telling(ways(account, credentials), stamps, host.die_at)

    def compose(outgoing: Outgoing) -> tuple[Envelope, Content]:
        stamps.last = 0.0  # a stamp before a mail is composed is not its start
        return composer.compose(outgoing, now=utc_now())

    desk = AccountsInUse(pool, LocalSealer.from_keys(None), factory)
    desk.turns = PacedStarts(desk._released, now=stamps)
    options = WorkerOptions(lanes=(Lane.BULK,), lease=LEASE, poll_interval=timedelta(milliseconds=20), until_empty=True)
    return (
        builders.a_worker(pool, NoopTransport(), compose=compose, senders=desk, options=options),
        desk,
    )


async def work(host: Host) -> None:
    ways = ProviderAddresses(connections=2, allow_private=True)
    async with AsyncExitStack() as stack, asyncio.TaskGroup() as together:
        for _ in range(host.workers):
            pool = await stack.enter_async_context(await open_pool(host.url, host.room, size=2))
            worker, desk = a_worker(host, pool, ways)
            stack.push_async_callback(desk.close)
            together.create_task(worker.run())


if __name__ == "__main__":
    asyncio.run(work(msgspec.json.decode(sys.argv[1], type=Host)))
