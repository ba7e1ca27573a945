"""A relay publishes one pair, batch after batch, in order.

It reads the next events, passes them to the publisher and saves the progress. A local publisher does both in one
transaction. Otherwise the progress is saved after publishing, so that a crash in between repeats messages with the same
ids and never loses any. Progress moves by compare-and-set: a replaced leader, or one whose pair an operator has moved,
changes nothing.
"""

import asyncio
from dataclasses import dataclass, replace
from datetime import timedelta
from enum import StrEnum

import structlog

from postroom.db.faults import INTERRUPTIONS
from postroom.db.pool import Pool
from postroom.db.queries import Connection
from postroom.events import store as event_store
from postroom.events.model import Place
from postroom.outbox import metrics, store
from postroom.outbox.errors import PublishFailed
from postroom.outbox.model import BatchSize, NextEvents, PollInterval, PublisherStatus, ScanSize, Subscription
from postroom.outbox.publisher import Batch, Publisher, make_batch
from postroom.runtime.loop import Backoff, Loop, Signal, unheard

LONGEST_ERROR = 500
"""Characters of an error that are stored."""

_log = structlog.get_logger()


class PublishStep(StrEnum):
    """The result of one scan."""

    MOVED = "moved"  # events were published or passed over: scan again at once
    IDLE = "idle"
    FAILED = "failed"
    HELD = "held"  # paused or failed: an operator must resume it
    LOST = "lost"  # another instance leads, or the pair was removed


@dataclass(frozen=True, slots=True, kw_only=True)
class RelayOptions:
    """Options of a relay, with the defaults of the settings."""

    source: str = "postroom"
    batch: int = 100
    max_errors: int = 10
    first_pause: timedelta = timedelta(seconds=1)  # after a failure; doubles, because a broker restarts in seconds
    longest_pause: timedelta = timedelta(minutes=1)  # events continue at most this long after the repair
    poll: timedelta = timedelta(seconds=1)  # while an append may have missed that this leader sleeps
    idle: timedelta = timedelta(minutes=1)  # afterwards; a notification ends it, so only a lost one waits so long
    publish_timeout: timedelta = timedelta(minutes=1)  # well above the timeout of a publisher's own requests


class _ProgressMoved(Exception):  # noqa: N818 - a condition, like the leaves of errors.py
    """The progress is not where the scan found it."""


class Relay:
    """Publishes one pair for as long as this instance leads it."""

    def __init__(
        self,
        pool: Pool,
        pair: Subscription,
        publisher: Publisher,
        *,
        instance: str,
        options: RelayOptions | None = None,
        signal: Signal = unheard,
    ) -> None:
        self.pair, self._pool, self._publisher, self._instance = pair, pool, publisher, instance
        self._options, self._signal = options or RelayOptions(), signal
        self._size, self._scan = BatchSize(self._options.batch), ScanSize()
        self._rest = PollInterval(poll=self._options.poll, longest=self._options.idle)
        self._errors = 0
        self._follower_id: int | None = None
        self._bell, self._stopping, self._is_deaf, self._is_called = asyncio.Event(), asyncio.Event(), False, False
        self._pause = timedelta()

    def ring(self, *, by_hand: bool = False) -> None:
        """Scan now, because something may have happened. During a back-off only a change by an operator counts."""
        self._is_called |= by_hand
        if by_hand or not self._is_deaf:
            self._bell.set()

    def stop(self) -> None:
        """Stop after the current batch."""
        self._stopping.set()

    async def run(self, follower_id: int | None = None) -> None:
        """Publish until stopped or replaced."""
        self._follower_id = follower_id
        self._rest.is_asleep = follower_id is not None  # as a process that slept may have left it
        await self._wake_up()
        loop = Loop(
            "relay",
            self._look_and_rest,
            rest=lambda: self._pause,
            more=lambda _step: not self._pause,
            ends=lambda step: step is PublishStep.LOST,
            wake=self._bell,
        )
        try:
            await loop.run(self._stopping, self._record_bug)
        finally:
            await self._wake_up()

    async def run_once(self) -> PublishStep:
        """One scan and its result, without waiting."""
        look = await self._look()
        return PublishStep.LOST if look is None else await self._act(look)

    async def _look_and_rest(self) -> PublishStep:
        """One scan; sets the pause after it, which a notification ends."""
        self._bell.clear()  # this scan may miss anything that rings from here on
        self._is_deaf = self._is_called = False
        look = await self._look()
        step = PublishStep.LOST if look is None else await self._act(look)
        if step is PublishStep.IDLE and look is not None:
            self._pause = await self._lie_down(look)
            return step
        self._is_deaf = step in (PublishStep.FAILED, PublishStep.HELD)
        if self._is_deaf and not self._is_called:
            self._bell.clear()  # during a back-off, ignore notifications that arrived during the scan too
        await self._wake_up()
        self._rest.worked()
        if step is PublishStep.FAILED:
            self._pause = self.pause_after_failure()
        else:
            self._pause = self._options.idle if step is PublishStep.HELD else timedelta()
        return step

    async def _record_bug(self, _loop: str, error: Exception) -> None:
        """Count a bug as a failure of the pair, so that operators see it there too."""
        await self.fail(f"{type(error).__name__}: {str(error)[:200]}".rstrip(": "))

    async def _look(self) -> NextEvents | None:
        batch = self._size.now
        look = await store.follow_topic(
            self._pool, **self.pair._asdict(), batch_limit=batch, scan_limit=self._scan.now(batch)
        )
        return look if look is not None and look.leader_instance == self._instance else None

    async def _act(self, look: NextEvents) -> PublishStep:
        if look.status is not PublisherStatus.ACTIVE:
            return PublishStep.HELD
        self._scan.saw(look.scanned, len(look.events))
        if look.unreadable is not None and not look.events:
            await self.fail(look.unreadable.message, look.unreadable.position)
            return PublishStep.FAILED
        if not look.events and look.end == look.place:
            self._signal("idle")
            return PublishStep.IDLE
        try:
            if not look.events:
                await self._save(look, look.end, published=False)
            elif self._publisher.is_local:
                await self._publish_here(look)
            else:
                await self._publish_there(look)
        except _ProgressMoved:
            return PublishStep.MOVED
        except PublishFailed as error:
            left = look.events[error.published :]
            self._size.failed(len(left))
            await self.fail(error.message, left[0].position if len(left) == 1 else None)
            return PublishStep.FAILED
        self._size.succeeded(len(look.events))
        self._errors = 0
        metrics.PUBLISHED.labels(*self.pair).inc(len(look.events))
        self._signal("published")
        return PublishStep.MOVED

    async def _publish_here(self, look: NextEvents) -> None:
        """Publish and save the progress in one transaction; the progress first, which locks the row of the pair."""
        async with self._pool.acquire() as connection, connection.transaction():
            await self._advance(connection, look.place, look.end, published=True)
            await self._publish(replace(self._batch(look), connection=connection))

    async def _publish_there(self, look: NextEvents) -> None:
        try:
            await self._publish(self._batch(look))
        except PublishFailed as error:
            if error.published:
                await self._save(look, look.events[error.published - 1].place, published=True)
                metrics.PUBLISHED.labels(*self.pair).inc(error.published)
            raise
        self._signal("handed_over")
        await self._save(look, look.end, published=True)

    async def _publish(self, batch: Batch) -> None:
        try:
            async with asyncio.timeout(self._options.publish_timeout.total_seconds()) as limit:
                await self._publisher.publish(batch)
                if batch.connection is not None:
                    # A publisher that swallowed a database error has left an aborted transaction, which cannot commit.
                    await store.check_transaction(batch.connection)
        except PublishFailed as error:
            self._check_count(error, len(batch.messages))
            raise
        except TimeoutError as error:  # our timeout, or one inside the publisher
            ours = f"no answer within {self._options.publish_timeout.total_seconds():g} s"
            raise PublishFailed(ours if limit.expired() else f"TimeoutError: {error}".rstrip(": ")) from error
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise  # this task is being cancelled
            raise PublishFailed("CancelledError: something within the publisher was cancelled") from error
        except Exception as error:
            # An error of our own database is no failure of the publisher; any other error is.
            if self._publisher.is_local and isinstance(error, INTERRUPTIONS) and not isinstance(error, ValueError):
                raise
            raise PublishFailed(f"{type(error).__name__}: {error}") from error

    def _check_count(self, error: PublishFailed, count: int) -> None:
        """Reject an impossible count of published messages. A local publisher's count is 0: it rolled back."""
        said = error.published
        if self._publisher.is_local:
            error.published = 0
        elif not isinstance(said, int) or not 0 <= said <= count:
            raise PublishFailed(
                f"{error.message} (the publisher reported {said} of {count} messages published)"
            ) from error

    async def _save(self, look: NextEvents, end: Place, *, published: bool) -> None:
        async with self._pool.acquire() as connection:
            await self._advance(connection, look.place, end, published=published)

    async def _advance(self, connection: Connection, start: Place, end: Place, *, published: bool) -> None:
        is_ours = await store.advance(
            connection,
            **self.pair._asdict(),
            instance=self._instance,
            from_transaction_id=start.transaction_id,
            from_position=start.position,
            to_transaction_id=end.transaction_id,
            to_position=end.position,
            published=published,
        )
        if not is_ours:
            raise _ProgressMoved

    async def fail(self, reason: str, position: int | None = None) -> None:
        """Count a failure; after too many consecutive ones an operator must resume the pair."""
        failed = await store.record_failure(
            self._pool,
            **self.pair._asdict(),
            instance=self._instance,
            error=reason.replace("\0", "").encode(errors="replace").decode()[:LONGEST_ERROR],
            position=position,
            most=self._options.max_errors,
        )
        if failed is not None:
            status, self._errors = failed
            metrics.ERRORS.labels(*self.pair).inc()
            _log.warning("publishing_failed", pair=str(self.pair), errors=self._errors, status=status.value)
        self._signal("failed")

    def _batch(self, look: NextEvents) -> Batch:
        return make_batch(self.pair.topic, look.events, source=self._options.source)

    def pause_after_failure(self) -> timedelta:
        """The back-off after the last failure; the database counts consecutive failures across instances."""
        options = self._options
        first_s, longest_s = options.first_pause.total_seconds(), options.longest_pause.total_seconds()
        return timedelta(seconds=Backoff(first_s, longest_s, failures=self._errors).pause_s)

    async def _lie_down(self, look: NextEvents) -> timedelta:
        was_asleep = self._rest.is_asleep
        pause = self._rest.found_nothing(look)
        if self._rest.is_asleep and not was_asleep:
            await self._say_asleep()
            self._signal("asleep")
        return pause

    async def _say_asleep(self) -> None:
        async with self._pool.acquire() as connection:
            if self._follower_id is not None and await event_store.set_follower_asleep(
                connection, id=self._follower_id, is_asleep=True
            ):
                return
            async with connection.transaction():
                made = await event_store.register_follower(connection, name=f"outbox {self.pair}")
                if not await store.save_follower(connection, **self.pair._asdict(), follower_id=made):
                    await event_store.forget_follower(connection, id=made)  # the pair was removed: the next scan ends
                    return
                await event_store.set_follower_asleep(connection, id=made, is_asleep=True)
            self._follower_id = made

    async def _wake_up(self) -> None:
        """Stop the notifications of appends. If the update fails, appenders send needless notifications; harmless."""
        if not self._rest.is_asleep or self._follower_id is None:
            return
        self._rest.worked()
        try:
            await event_store.set_follower_asleep(self._pool, id=self._follower_id, is_asleep=False)
        except INTERRUPTIONS as error:
            _log.info("follower_wakeup_not_saved", pair=str(self.pair), error=type(error).__name__)
