"""Views: read models that follow the events, in the room's own database.

    async def count(connection: Connection, events: Sequence[SequencedEvent]) -> None:
        await connection.execute("UPDATE totals SET opened = opened + $1", len(events))

    async def empty(connection: Connection) -> None:
        await connection.execute("UPDATE totals SET opened = 0")

    opened = View("opened", count, empty, types=("WalletOpened",))
    views = ViewCatalog(pool)
    await views.install(opened)                       # once, at the start
    await run_outbox(room, stop=stop, more=[opened])  # wherever it is to be kept

What a view writes and how far it has come are one transaction, so it holds each event exactly once. It is a pair of the
outbox like any other, topic `view.<name>` and publisher `view:<name>`: led by one instance, listed, paused, skipped.
Only a reset is refused: `await views.rebuild(opened, actor="ops")` empties the view before it begins again.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta

from postroom.db.pool import Pool
from postroom.db.queries import Connection
from postroom.errors import BadInput, FieldError
from postroom.events.audit import record_audit
from postroom.events.model import NOT_A_LIST, Place, SequencedEvent
from postroom.outbox import service, store
from postroom.outbox.errors import ProgressNotFound, ViewFailed
from postroom.outbox.model import VIEW, PublisherStatus, Subscription, Topic, check_topic
from postroom.outbox.publisher import Batch
from postroom.outbox.topics import ensure_topic

Apply = Callable[[Connection, Sequence[SequencedEvent]], Awaitable[None]]
Clear = Callable[[Connection], Awaitable[None]]

_SHORTEST, _LONGEST = 0.005, 0.1


class View:
    """One read model: how it takes events in, and how it is emptied. It is also the publisher that feeds it.

    Raises `BadInput`: a name is of lower-case letters, digits, dots and dashes, and conditions are lists of texts.
    """

    is_local = True

    def __init__(  # noqa: PLR0913 - one parameter per condition of a topic
        self,
        name: str,
        apply: Apply,
        clear: Clear,
        *,
        types: Sequence[str] = (),
        exact_tags: Sequence[str] = (),
        required_keys: Sequence[str] = (),
        any_keys: Sequence[str] = (),
    ) -> None:
        given = {"types": types, "exact_tags": exact_tags, "required_keys": required_keys, "any_keys": any_keys}
        wrong = [FieldError(field, NOT_A_LIST) for field, texts in given.items() if isinstance(texts, str)]
        if wrong:
            raise BadInput(wrong)
        self._apply, self.clear = apply, clear
        self.pair = Subscription(f"view.{name}", f"{VIEW}{name}")
        self.name = self.pair.publisher
        self.topic = Topic(
            name=self.pair.topic,
            types=tuple(types),
            exact_tags=tuple(exact_tags),
            required_keys=tuple(required_keys),
            any_keys=tuple(any_keys),
        )
        check_topic(self.topic)

    async def publish(self, batch: Batch) -> None:
        await self._apply(batch.transaction, [message.event for message in batch.messages])

    async def close(self) -> None:
        """Nothing is held."""


class ViewCatalog:
    """What can be done with views, whoever keeps them."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def install(self, view: View) -> None:
        """Let the view be kept from now on, emptied, and beginning with the first event there is. Twice is once."""
        async with self._pool.acquire() as connection, connection.transaction():
            if await ensure_topic(connection, view.topic, view.pair, from_now=False):
                await view.clear(connection)  # it may hold what it had before somebody removed its pair by force

    async def rebuild(self, view: View, *, actor: str) -> None:
        """Empty the view and let it begin again, one that has failed too; whoever leads it notices by itself."""
        async with self._pool.acquire() as connection, connection.transaction():
            progress = await store.find_progress(connection, **view.pair._asdict())
            if progress is None:
                raise ProgressNotFound
            await view.clear(connection)
            await store.move(connection, **view.pair._asdict(), transaction_id=0, position=0, forgets=True)
            if progress.status is PublisherStatus.FAILED:
                await store.set_status(connection, **view.pair._asdict(), status=PublisherStatus.ACTIVE)
            await record_audit(connection, actor=actor, action="outbox.view.rebuild", subject=f"outbox:{view.pair}")
            await store.notify_outbox(connection)

    async def catch_up(self, view: View, *, timeout: timedelta = timedelta(seconds=30)) -> None:  # noqa: ASYNC109 - as wait_for
        """Wait until the view holds all that is settled now."""
        async with self._pool.acquire() as connection:
            end = await store.find_settled_end(connection)
        await self.wait_for(view, end, timeout=timeout)

    async def wait_for(self, view: View, place: Place, *, timeout: timedelta = timedelta(seconds=30)) -> None:  # noqa: ASYNC109 - told in the result
        """Wait until the view holds the event at this place (`Appended.place`).

        Raises TimeoutError, which says what keeps it, and at once `ViewFailed` for one that waits for a person. It
        waits for an older transaction that is still open: nobody can know what it will append.
        """
        found, pause_s = None, _SHORTEST
        try:
            async with asyncio.timeout(timeout.total_seconds()):
                while not (found := await service.reached(self._pool, view.pair, place)).is_reached:
                    if found.status is PublisherStatus.FAILED:
                        raise ViewFailed(view.name, found.failed_position, found.last_error)
                    await asyncio.sleep(pause_s)
                    pause_s = min(pause_s * 2, _LONGEST)
        except TimeoutError as error:
            why = found or "the database does not answer"
            raise TimeoutError(f"{view.name} has not come that far in {timeout.total_seconds():g} s: {why}") from error
