"""The notice: an administrator is told of malformed commands once, by mail."""

import asyncio
from datetime import timedelta

import structlog

from postroom.db.faults import FLICKER
from postroom.db.pool import Pool
from postroom.delivery import service as delivery_service
from postroom.delivery.check import check_request
from postroom.delivery.model import DeliveryRequest, Lane
from postroom.intake import store
from postroom.post.address import Address
from postroom.runtime.clock import Clock, database_time

_log = structlog.get_logger()


class MalformedNotice:
    """Looks now and then; safe to run in any number of processes at once: each command is told of once."""

    def __init__(self, pool: Pool, admin: Address, *, interval: timedelta, clock: Clock = database_time) -> None:
        self._pool, self._admin, self._interval, self._clock = pool, admin, interval, clock
        self._stopping = asyncio.Event()

    def stop(self) -> None:
        self._stopping.set()

    async def run(self) -> None:
        while not self._stopping.is_set():
            try:
                await self.run_once()
            except FLICKER as error:
                _log.warning("malformed_notice_postponed", error=type(error).__name__)
            try:
                async with asyncio.timeout(self._interval.total_seconds()):
                    await self._stopping.wait()
            except TimeoutError:
                continue

    async def run_once(self) -> int:
        """One mail about all that nobody was told of; returns how many they are."""
        async with self._pool.acquire() as connection, connection.transaction():
            count = await store.mark_malformed_notified(connection, now=self._clock())
            if count:
                await delivery_service.accept(connection, check_request(_notice(self._admin, count)), now=self._clock())
        return count


def _notice(admin: Address, count: int) -> DeliveryRequest:
    things = "1 command" if count == 1 else f"{count} commands"
    return DeliveryRequest(
        to=(admin,),
        subject=f"Postroom: {things} could not be read",
        text=f"{things} could not be accepted since the last notice.\n\nLook at them with: postroom malformed list\n",
        lane=Lane.TRANSACTIONAL,
        source="postroom",
    )
