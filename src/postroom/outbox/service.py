"""Operations on publishers: list, pause, resume, reset, skip. Every change is audited."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import datetime, timedelta

from postroom.db.pool import Pool
from postroom.db.queries import Connection, arrays
from postroom.errors import BadInput
from postroom.events.audit import AuditNote, audited
from postroom.events.model import Place
from postroom.events.store import find_head, find_place_at
from postroom.outbox import store
from postroom.outbox.errors import NotNext, ProgressNotFound
from postroom.outbox.model import (
    LAG_BOUND,
    VIEW,
    LagSample,
    Progress,
    ProgressCheck,
    ProgressLine,
    ProgressReset,
    PublisherStatus,
    ResetPreview,
    Skipped,
    Subscription,
)

START = Place(0, 0)


async def list_progress(pool: Pool, *, topic: str | None = None) -> list[ProgressLine]:
    """The progress and lag of every publisher, with the transaction that holds back committed events."""
    async with pool.acquire() as connection:
        lines = await store.list_progress(connection, topic=topic, scan_limit=LAG_BOUND)
        stall = await store.find_stall(connection) if any(line.lag_events for line in lines) else None
    return [replace(line, stall=stall if line.lag_events else None) for line in lines]


async def pause(pool: Pool, pair: Subscription, *, actor: str) -> None:
    """Pause after the current batch; the last error is kept."""
    await _set_status(pool, pair, PublisherStatus.PAUSED, actor, "outbox.pause")


async def resume(pool: Pool, pair: Subscription, *, actor: str) -> None:
    """Resume, and clear earlier errors."""
    await _set_status(pool, pair, PublisherStatus.ACTIVE, actor, "outbox.resume")


async def list_lag(
    pool: Pool, *, begin: datetime, step: timedelta, pair: Subscription | None = None
) -> list[LagSample]:
    """The recorded lag since a time, of one publisher or of all, from the oldest on; at most a day is kept."""
    topic, publisher = pair or (None, None)
    return await store.list_lag(pool, begin=begin, step=step, topic=topic, publisher=publisher)


async def record_lag(pool: Pool, lines: Sequence[ProgressLine]) -> None:
    """Record the lag of this minute, unless another process has."""
    columns = arrays(lines, "topic", "publisher", events="lag_events", seconds="lag_seconds")
    await store.record_lag(pool, **columns)


async def get_progress(pool: Pool, pair: Subscription) -> ProgressLine:
    """The progress and lag of one publisher; raises `ProgressNotFound`."""
    lines = await list_progress(pool, topic=pair.topic)
    return ProgressNotFound.unless(next((line for line in lines if line.publisher == pair.publisher), None))


async def find_next(pool: Pool, pair: Subscription) -> tuple[Place, Skipped] | None:
    """The next event of a publisher, which `skip` would skip; None if no settled event waits."""
    return await store.find_next_event(pool, **pair._asdict())


async def preview_reset(
    pool: Pool, pair: Subscription, *, position: int | None = None, since: datetime | None = None
) -> ResetPreview:
    """The effect that a reset would have; it changes nothing. Raises the same errors."""
    _refuse_view(pair)
    async with pool.acquire() as connection, connection.transaction():
        progress = ProgressNotFound.unless(await store.find_progress(connection, **pair._asdict()))
        place = await _target(connection, position, since)
        first, last = sorted((place, progress.place))
        events, is_more = await store.count_between(
            connection,
            topic=pair.topic,
            scan_limit=LAG_BOUND,
            from_transaction_id=first.transaction_id,
            from_position=first.position,
            to_transaction_id=last.transaction_id,
            to_position=last.position,
        )
    return ResetPreview(place.position, place < progress.place, events, bool(is_more))


async def reset(
    pool: Pool, pair: Subscription, *, position: int | None = None, since: datetime | None = None, actor: str
) -> ProgressReset:
    """Continue after the event at this position, or with the first event since a time; position 0 is the beginning.

    Reports whether events will be published again. Raises `BadInput` for a position or time beyond the last event, and
    for an unsettled one, before which an event may still be committed. Raises it for a view too, which would apply
    events twice: `ViewCatalog.rebuild` empties the view first. A paused or failed publisher keeps its status and error.
    """
    _refuse_view(pair)
    async with _held(pool, pair, actor, "outbox.reset") as (connection, progress, note):
        place = await _target(connection, position, since)
        moved = ProgressReset(progress.last_position, place.position, rewinds=place < progress.place)
        await _move(connection, pair, place, forgets=progress.status is PublisherStatus.ACTIVE)
        note.after = {"from": moved.from_position, "to": moved.to_position, "rewinds": moved.rewinds}
    return moved


async def skip(pool: Pool, pair: Subscription, *, position: int, actor: str) -> Skipped:
    """Skip the next event. The caller names its position, so that no other event is skipped by mistake."""
    async with _held(pool, pair, actor, "outbox.skip") as (connection, progress, note):
        found = await store.find_next_event(connection, **pair._asdict())
        if found is None or found[0].position != position:
            stall = await store.find_stall(connection)
            raise NotNext(position, found[0].position if found else None, stall=str(stall) if stall else None)
        place, skipped = found
        await _move(connection, pair, place, forgets=True)
        if progress.status is PublisherStatus.FAILED:
            await store.set_status(connection, **pair._asdict(), status=PublisherStatus.ACTIVE)
        note.before = {"error": progress.last_error, "error_count": progress.error_count}
        note.after = {"position": skipped.position, "type": skipped.type}
    return skipped


async def reached(pool: Pool, pair: Subscription, place: Place) -> ProgressCheck:
    """Check whether a publisher has reached a place, and the reason if not. Raises `ProgressNotFound`."""
    return ProgressNotFound.unless(await store.find_reached(pool, **pair._asdict(), **place._asdict()))


async def _set_status(pool: Pool, pair: Subscription, status: PublisherStatus, actor: str, action: str) -> None:
    async with _held(pool, pair, actor, action) as (connection, progress, note):
        await store.set_status(connection, **pair._asdict(), status=status)
        note.before, note.after = {"status": progress.status, "error": progress.last_error}, {"status": status}


async def _move(connection: Connection, pair: Subscription, place: Place, *, forgets: bool) -> None:
    await store.move(connection, **pair._asdict(), **place._asdict(), forgets=forgets)


def _refuse_view(pair: Subscription) -> None:
    if pair.publisher.startswith(VIEW):
        raise BadInput.of(
            "publisher", "maintains a view, which would apply events twice: use ViewCatalog.rebuild, which empties it"
        )


async def _target(connection: Connection, position: int | None, since: datetime | None) -> Place:
    """The place to continue after."""
    if (position is None) == (since is None):
        raise BadInput.of("position", "or a time is needed, and not both")
    if since is None:
        return await _place(connection, position or 0)
    first = await find_place_at(connection, at=since)
    if first is None:
        raise BadInput.of("since", "is later than the last event")
    await _place(connection, first.position)  # raises unless it is settled
    return Place(first.transaction_id, first.position - 1)


async def _place(connection: Connection, position: int) -> Place:
    """The place of a position. Gaps between positions are normal; raises `BadInput` at the end or if unsettled."""
    if position == 0:
        return START
    found = await store.find_place(connection, position=position)
    if found is None or (await find_head(connection)).position < position:
        raise BadInput.of("position", "is beyond the last event")
    place, is_settled = found
    if not is_settled:
        stall = await store.find_stall(connection)
        waiting = f"waits for the open transaction of {stall}" if stall else "is not settled yet, try again"
        raise BadInput.of("position", f"{waiting}: an event before it may still be committed")
    return place


@asynccontextmanager
async def _held(
    pool: Pool, pair: Subscription, actor: str, action: str
) -> AsyncIterator[tuple[Connection, Progress, AuditNote]]:
    """Lock the row of one pair until the audited change is committed, and then notify the leaders."""
    async with audited(pool, actor, action, f"outbox:{pair}") as (connection, note):
        progress = ProgressNotFound.unless(await store.find_progress(connection, **pair._asdict()))
        yield connection, progress, note
        await store.notify_outbox(connection)
