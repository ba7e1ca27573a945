"""Views: read models of the events, in the room's own database.

    async def count(connection: Connection, events: Sequence[SequencedEvent]) -> None:
        await connection.execute("UPDATE totals SET opened = opened + $1", len(events))

    async def empty(connection: Connection) -> None:
        await connection.execute("UPDATE totals SET opened = 0")

    opened = View("opened", count, empty, types=("WalletOpened",))
    views = ViewCatalog(pool)
    await views.install(opened)                       # once, at the start
    await run_outbox(room, stop=stop, more=[opened])  # in the processes that maintain it

A view's changes and its progress are committed in one transaction, so it applies each event exactly once. It is an
ordinary pair of the outbox, topic `view.<name>` and publisher `view:<name>`: led by one instance, listed, paused,
skipped. Only a reset is rejected: `await views.rebuild(opened, actor="ops")` empties the view before it begins again.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from typing import Any

from postroom.db.pool import Pool
from postroom.db.queries import Connection
from postroom.errors import BadInput, FieldError
from postroom.events.audit import audited
from postroom.events.model import NOT_A_LIST, Place, SequencedEvent
from postroom.outbox import service, store
from postroom.outbox.errors import ProgressNotFound, ViewFailed
from postroom.outbox.model import VIEW, PublisherStatus, Subscription, Topic, check_topic
from postroom.outbox.publisher import Batch, Publisher
from postroom.outbox.topics import ensure_topic

Apply = Callable[[Connection, Sequence[SequencedEvent]], Awaitable[None]]
Clear = Callable[[Connection], Awaitable[None]]

_SHORTEST, _LONGEST = 0.005, 0.1
"""Poll intervals in seconds while waiting for a view; they double."""


class View(Publisher):
    """One read model: how to apply events and how to empty it. It is also the publisher that feeds it.

    Raises `BadInput`: a name has lower-case letters, digits, dots and dashes, and conditions are lists of strings.
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
        conditions: dict[str, Any] = {field: tuple(texts) for field, texts in given.items()}
        self.topic = Topic(name=self.pair.topic, **conditions)
        check_topic(self.topic)

    async def publish(self, batch: Batch) -> None:
        await self._apply(batch.transaction, [message.event for message in batch.messages])


class ViewCatalog:
    """Install, rebuild and wait for views."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def install(self, view: View) -> None:
        """Empty the view and maintain it from the first event on. Idempotent."""
        async with self._pool.acquire() as connection, connection.transaction():
            if await ensure_topic(connection, view.topic, view.pair, from_now=False):
                await view.clear(connection)  # it may contain data from before its pair was removed with `force`

    async def rebuild(self, view: View, *, actor: str) -> None:
        """Empty the view and begin again, also if it has failed; its leader notices the change."""
        subject = f"outbox:{view.pair}"
        async with audited(self._pool, actor, "outbox.view.rebuild", subject) as (connection, _note):
            progress = ProgressNotFound.unless(await store.find_progress(connection, **view.pair._asdict()))
            await view.clear(connection)
            await store.move(connection, **view.pair._asdict(), transaction_id=0, position=0, forgets=True)
            if progress.status is PublisherStatus.FAILED:
                await store.set_status(connection, **view.pair._asdict(), status=PublisherStatus.ACTIVE)
            await store.notify_outbox(connection)

    async def catch_up(self, view: View, *, timeout: timedelta = timedelta(seconds=30)) -> None:  # noqa: ASYNC109 - as wait_for
        """Wait until the view has applied all events that are settled now."""
        end = await store.find_settled_end(self._pool)
        await self.wait_for(view, end, timeout=timeout)

    async def wait_for(self, view: View, place: Place, *, timeout: timedelta = timedelta(seconds=30)) -> None:  # noqa: ASYNC109 - the error names the view and the reason
        """Wait until the view has applied the event at this place (`Appended.place`).

        Raises TimeoutError with the reason, and `ViewFailed` at once if the view has failed. The view waits for older
        open transactions, which may still append events.
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
            raise TimeoutError(f"{view.name} is not up to date after {timeout.total_seconds():g} s: {why}") from error
