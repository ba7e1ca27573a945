"""The consumer of a stream of commands: fetch, commit, acknowledge, in this order.

Killed before the commit, nothing happened and the entries go to another consumer. Killed between commit and
acknowledgement, the entries go to another consumer too, who recognises each of them by its key. Run as many as you
like, in as many processes as you like.
"""

import asyncio
import random
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta

import structlog

from postroom.db.pool import Pool
from postroom.delivery.combiner import Check
from postroom.delivery.service import IDEMPOTENCY_TTL
from postroom.intake.service import accept_commands
from postroom.intake.source import StreamSource
from postroom.runtime.signals import Signal, unheard

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerOptions:
    """How a consumer behaves; the defaults are those of the settings."""

    idempotency_ttl: timedelta = IDEMPOTENCY_TTL
    check: Check | None = None  # of templates, where the catalog is at hand
    first_pause: timedelta = timedelta(milliseconds=100)
    longest_pause: timedelta = timedelta(seconds=5)


def open_consumers(
    pool: Pool,
    sources: Sequence[StreamSource],
    *,
    idempotency_ttl: timedelta = IDEMPOTENCY_TTL,
    check: Check | None = None,
) -> "list[CommandConsumer]":
    """A consumer for each source."""
    options = ConsumerOptions(idempotency_ttl=idempotency_ttl, check=check)
    return [CommandConsumer(pool, source, options=options) for source in sources]


def pause_after(options: ConsumerOptions, failures: int) -> timedelta:
    """How long to wait after so many failures in a row, before chance is added."""
    return min(options.first_pause * (1 << min(failures - 1, 16)), options.longest_pause)


class CommandConsumer:
    """Brings the commands of one stream into the room until told to stop."""

    def __init__(
        self, pool: Pool, source: StreamSource, *, options: ConsumerOptions | None = None, signal: Signal = unheard
    ) -> None:
        self._pool, self._source, self._signal = pool, source, signal
        self._options = options or ConsumerOptions()
        self._stopping = asyncio.Event()

    def stop(self) -> None:
        """Finish the batch in hand and end."""
        self._stopping.set()

    async def run(self) -> None:
        """Consume until stopped, with patience for a stream or a database that is away."""
        failures = 0
        try:
            while not self._stopping.is_set():
                try:
                    await self.run_once()
                    failures = 0
                except Exception as error:  # noqa: BLE001 - whatever it is, the entries are still in the stream
                    failures += 1
                    await self._rest(error, failures)
        finally:
            with suppress(Exception):  # leaving is a courtesy; what we held goes to others in any case
                await self._source.close()

    async def run_once(self) -> int:
        """One batch: returns how many entries it had."""
        entries = await self._source.fetch()
        if not entries:
            return 0
        self._signal("fetched")
        try:
            options = self._options
            await accept_commands(self._pool, entries, idempotency_ttl=options.idempotency_ttl, check=options.check)
            self._signal("committed")
            await self._source.acknowledge(entries)
        except Exception:
            with suppress(Exception):  # the first failure is the one to tell
                await self._source.give_back(entries)
            raise
        self._signal("acknowledged")
        return len(entries)

    async def _rest(self, error: Exception, failures: int) -> None:
        pause_s = pause_after(self._options, failures).total_seconds() * random.uniform(0.75, 1.25)  # noqa: S311 - spreads load
        _log.warning("commands_postponed", error=type(error).__name__, failures=failures, retry_in_s=round(pause_s, 2))
        self._signal("postponed")
        with suppress(TimeoutError):
            async with asyncio.timeout(pause_s):
                await self._stopping.wait()
