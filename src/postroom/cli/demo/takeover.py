"""The takeover scene: a worker process is killed while it sends, and another worker takes its lease over."""

import asyncio
import os
import signal
import socket
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from postroom.cli.demo import store
from postroom.cli.demo.story import Ends, Story
from postroom.runtime.processes import own_command

LEASE_S = 3  # the shortest that a loaded machine still renews; a person waits for it
_BATCH = 4  # mails per lane offered at once, until the second worker has claimed some of them
_ENOUGH = 80  # mails after which mail of one lane suffices
_LANES = ("transactional", "bulk")
_ENDED = ("sent", "dead_letter", "failed", "cancelled", "suppressed")


async def play_takeover(story: Story) -> str:
    """Offer slow mail to both workers, kill one of them while it sends, and wait until no mail is left behind."""
    async with _second_worker(story) as process:
        ids: list[int] = []
        started = await story.until(lambda: _offer(story, process.pid, ids), "The start of a second worker")
        process.send_signal(signal.SIGKILL)
        await process.wait()
    ends = await story.until(lambda: _all_ended(story, ids), "The takeover of the lease")
    repeated = await store.count_repeated(story.pool, delivery_ids=ids)
    doubtful = await store.find_ambiguous(story.pool, delivery_ids=ids)
    if doubtful is not None:
        story.links.append(("Ambiguous mail", f"/deliveries/{doubtful}"))
    lost = len(ids) - sum(count for count, _doubt in ends.values())
    return (
        f"worker {process.pid} killed while it sent {started} of {len(ids)} mails; "
        f"{_summary(ends)}; {repeated} captured twice, {lost} lost"
    )


def _summary(ends: Ends) -> str:
    resent = sum(doubt for (_lane, state), (_count, doubt) in ends.items() if state == "sent")
    held = sum(doubt for (_lane, state), (_count, doubt) in ends.items() if state == "dead_letter")
    sent = sum(count for (_lane, state), (count, _doubt) in ends.items() if state == "sent")
    return f"{sent} sent, of which {resent} were ambiguous and sent again; {held} ambiguous bulk mails held"


@asynccontextmanager
async def _second_worker(story: Story) -> AsyncIterator[asyncio.subprocess.Process]:
    """A worker process with a short lease. It ends with this process, whose end closes its standard input."""
    secret = story.room.settings.secret_key
    environment = {
        **os.environ,
        "POSTROOM_LEASE": f"{LEASE_S}s",
        "POSTROOM_WEBHOOK_ALLOW_LOOPBACK": "1",
        **({"POSTROOM_SECRET_KEY": secret.hex()} if secret else {}),
    }
    process = await asyncio.create_subprocess_exec(
        *own_command("work", "--supervised"),
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def _offer(story: Story, pid: int, ids: list[int]) -> int | None:
    """Accept mail that takes two seconds to send, once the second worker is there; how many of them it has begun."""
    host = socket.gethostname()
    if not await store.has_worker(story.pool, pid=pid, host=host):
        return None
    started, lanes = await store.count_started(story.pool, pid=pid, host=host)
    if lanes == len(_LANES) or (started and len(ids) >= _ENOUGH):
        return int(started)
    async with story.pool.acquire() as connection, connection.transaction():
        for lane in _LANES:
            for _mail in range(_BATCH):
                address = f"slow+{story.run}.{len(ids)}@example.org"
                subject, text = "Your parcel is on its way", "It is heavy."
                ids.append(await story.send(connection, to=address, subject=subject, text=text, lane=lane))
    return None


async def _all_ended(story: Story, ids: list[int]) -> Ends | None:
    ends = await story.ends_of(ids)
    return ends if all(state in _ENDED for _lane, state in ends) else None
