"""One mailbox used by many workers on many hosts: quota and delay hold, and a dead host releases it."""

import asyncio
import itertools
import time

from tests.support.builders import a_mail, accepted
from tests.support.forked import run_module
from tests.support.senders import account_of, an_account
from tests.support.senders_process import Host
from tests.support.smtp_server import smtp_server

from postroom.db.room import Room
from postroom.delivery.model import Lane
from postroom.senders.model import SenderStatus

NOISE_S = 0.001
"""Tolerance for durations that the database rounds to microseconds."""


async def run_host(host: Host) -> list[float]:
    """Run a host to its end; returns the start times of its mails."""
    _code, printed = await run_module("tests.support.senders_process", host.encode())
    return [float(line.split()[1]) for line in printed.splitlines() if line.startswith("start")]


def distances(starts: list[float]) -> list[float]:
    ordered = sorted(starts)
    return [later - earlier for earlier, later in itertools.pairwise(ordered)]


async def test_three_hosts_of_eight_workers_keep_quota_and_pace(room: Room) -> None:
    """Twenty-four workers send exactly the quota of 60 mails, 40 ms apart."""
    async with smtp_server() as sink:
        account = await an_account(room.pool, smtp_port=sink.port, daily_limit=60, send_delay_ms=40, batch_size=9)
        await accepted(room.pool, *(a_mail(lane=Lane.BULK) for _ in range(100)))
        shares = await asyncio.gather(*(run_host(Host(room.url)) for _ in range(3)))
        starts = [start for share in shares for start in share]
        assert len(sink.messages) == len(starts) == 60
    assert min(distances(starts)) >= 0.040 - NOISE_S
    after = await account_of(room.pool, account)
    assert (after.daily_sent, after.status) == (60, SenderStatus.PAUSED_LIMIT_REACHED)


async def test_mailbox_of_a_killed_host_is_free_after_its_lease(room: Room) -> None:
    """After SIGKILL the next host waits for the lease and one delay, then sends the rest."""
    async with smtp_server() as sink:
        await an_account(room.pool, smtp_port=sink.port, send_delay_ms=100)
        await accepted(room.pool, *(a_mail(lane=Lane.BULK) for _ in range(15)))
        dead = await run_host(Host(room.url, workers=1, die_at=3))
        running = asyncio.create_task(run_host(Host(room.url, workers=1)))
        while not running.done() and await room.pool.fetchval("SELECT count(*) FROM workers") < 2:
            pass  # until the next one is there; it finds the mailbox held
        asked = time.monotonic()
        await room.pool.execute("UPDATE claims SET expires_at = clock_timestamp() + interval '1 second'")
        alive = await running
    assert len(dead) == 3
    assert min(alive) >= asked + 1.0 + 0.100 - NOISE_S
    assert min(distances([*dead, *alive])) >= 0.100 - NOISE_S
    assert len(alive) == 5  # ten were in the dead host's claim, and wait for their recovery
