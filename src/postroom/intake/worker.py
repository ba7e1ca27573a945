"""The consumer of a stream of commands: fetch, commit, acknowledge, in this order.

If a consumer is killed before the commit, nothing was stored and the entries go to another consumer. If it is killed
between commit and acknowledgement, the entries also go to another consumer, which recognises each by its idempotency
key. Any number of consumers may run, in any number of processes.
"""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import timedelta

from postroom.db.pool import Pool
from postroom.delivery.model import IDEMPOTENCY_TTL
from postroom.delivery.service import Check
from postroom.intake.service import accept_commands
from postroom.intake.source import StreamSource
from postroom.runtime.loop import Loop, Signal, unheard


@asynccontextmanager
async def open_consumers(
    pool: Pool,
    sources: Sequence[StreamSource],
    *,
    idempotency_ttl: timedelta = IDEMPOTENCY_TTL,
    check: Check | None = None,
    signal: Signal = unheard,
) -> AsyncIterator[list[Loop]]:
    """Yield a loop for each source; the sources are closed at the end of the block."""
    consumers = [
        CommandConsumer(pool, source, idempotency_ttl=idempotency_ttl, check=check, signal=signal) for source in sources
    ]
    try:
        yield [consumer.loop() for consumer in consumers]
    finally:
        for source in sources:
            with suppress(Exception):  # if closing fails, the entries go to other consumers after their timeout
                await source.close()


class CommandConsumer:
    """Accepts the commands of one stream; `check` validates templates if the process has the catalog."""

    def __init__(
        self,
        pool: Pool,
        source: StreamSource,
        *,
        idempotency_ttl: timedelta = IDEMPOTENCY_TTL,
        check: Check | None = None,
        signal: Signal = unheard,
    ) -> None:
        self._pool, self._source, self._signal = pool, source, signal
        self._ttl, self._check = idempotency_ttl, check

    def loop(self) -> Loop:
        """Process batches without a pause: fetching waits for new entries."""
        return Loop("consumer", self.run_once, expected=self._source.interruptions)

    async def run_once(self) -> int:
        """Process one batch; return its number of entries."""
        entries = await self._source.fetch()
        if not entries:
            return 0
        self._signal("fetched")
        try:
            await accept_commands(self._pool, entries, idempotency_ttl=self._ttl, check=self._check)
            self._signal("committed")
            await self._source.acknowledge(entries)
        except Exception:
            with suppress(Exception):  # the first error is the one to report
                await self._source.give_back(entries)
            raise
        self._signal("acknowledged")
        return len(entries)
