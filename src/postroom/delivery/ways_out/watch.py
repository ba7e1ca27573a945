"""Watches the ways out of one worker: writes its counts, probes a relay that fails, releases mail when it is back."""

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import structlog

from postroom.db.pool import Pool
from postroom.delivery.model import Lane
from postroom.delivery.ways_out import store
from postroom.delivery.ways_out.model import AttemptCounts, Slice, WayOutCounts, words_of
from postroom.post.reply import Reply
from postroom.runtime.clock import Clock, database_time
from postroom.runtime.loop import Loop

REPORT = timedelta(seconds=5)  # between two reports; an outage is known after PATIENCE anyway
PATIENCE = timedelta(seconds=10)  # a relay that restarts is not an outage
PROBE, LOGIN_PROBE = timedelta(seconds=10), timedelta(seconds=60)
"""Between two probes. Servers lock users out that try a wrong password too often."""
SLICE = 500
SILENT = timedelta(minutes=5)
"""A relay that fails and was not probed for this long is no longer used by any worker."""

Probe = Callable[[], Awaitable[Reply | None]]
"""Connects to the relay and logs in; returns the reply that refused it, None if the relay answers."""

_log = structlog.get_logger()


class WayOutWatch:
    """The watch of one worker, whose ledger adds its results to `counts`.

    `relay` is the name of its relay and how to probe it; None: it has none.
    """

    def __init__(self, pool: Pool, relay: tuple[str, Probe] | None = None, *, clock: Clock = database_time) -> None:
        self._pool, self._clock = pool, clock
        self._relay: str | None = None
        self._probe: Probe | None = None
        if relay is not None:
            self._relay, self._probe = relay
        self.counts = WayOutCounts()

    def loop(self) -> Loop:
        return Loop("ways out", self.run_once, rest=REPORT)

    async def run_once(self) -> int:
        """Write the counts, probe a relay that fails, and release mail if it is back; returns the mail made due."""
        await self.report()
        if self._relay is None or self._probe is None:
            return 0
        if await store.take_probe(
            self._pool,
            name=self._relay,
            patience=PATIENCE,
            interval=PROBE,
            login_interval=LOGIN_PROBE,
            now=self._clock(),
        ):
            await self._record(self._relay, await self._probe())
        if not await store.end_outage(self._pool, name=self._relay):
            return 0
        released = await self._release(self._relay)
        _log.warning("relay_back", relay=self._relay, released=released)
        return released

    async def report(self) -> None:
        """Add the counts to those of the other workers."""
        taken = self.counts.take()
        if self._relay is None:
            taken.pop(None, None)
        if not taken:
            return
        try:
            await store.record_attempts(self._pool, **_columns(taken, self._relay), now=self._clock())
        except BaseException:
            self.counts.restore(taken)
            raise

    async def _record(self, relay: str, refused: Reply | None) -> None:
        if refused is None:
            await store.record_probe(self._pool, name=relay, stage=None, detail=None)
            return
        stage = refused.stage.value
        outage = await store.record_probe(self._pool, name=relay, stage=stage, detail=words_of(refused))
        if outage is not None and outage.is_new:
            # the words of a server may name the user of the login
            reply = refused.text if refused.code is None else f"{refused.code} {refused.enhanced or ''}".strip()
            _log.warning("relay_unreachable", relay=relay, stage=stage, reply=reply, attempts=outage.failures)

    async def _release(self, relay: str) -> int:
        """Make the mail due that the relay never saw, lane by lane; stop if the relay fails again."""
        released = 0
        for lane in Lane:
            done = Slice(SLICE, 0, None, None)
            while done.seen:
                done = await store.release_unreached(
                    self._pool,
                    name=relay,
                    lane=lane.value,
                    after_since=done.after_since,
                    after_id=done.after_id,
                    batch_limit=SLICE,
                    now=self._clock(),
                )
                released += done.released
        return released


def _columns(taken: dict[int | None, AttemptCounts], relay: str | None) -> dict[str, list[Any]]:
    """The counts as columns of one statement. The database knows the names of accounts."""
    fields = ("is_sent", "is_reached", "failures", "logins_refused", "stage", "detail")
    return {
        "name": [relay if account_id is None else None for account_id in taken],
        "sender_account_id": list(taken),
        **{name: [getattr(counts, name) for counts in taken.values()] for name in fields},
    }
