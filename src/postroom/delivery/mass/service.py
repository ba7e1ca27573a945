"""Services of mass actions: preview, start, continue, list."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from postroom.db.pool import Pool, Session
from postroom.db.queries import Connection
from postroom.db.retention import Retention
from postroom.delivery import store as deliveries
from postroom.delivery.errors import DeadLetterNotFound, DeliveryNotFound, MassActionNotFound
from postroom.delivery.filter import DeliveryFilter, StateFilter
from postroom.delivery.listing.pages import read_window
from postroom.delivery.listing.store import find_newest_id
from postroom.delivery.mass import store
from postroom.delivery.mass.model import (
    MassAction,
    MassKind,
    MassPreview,
    MassWork,
    Obstacle,
    Standing,
    obstacle,
    write_filter,
)
from postroom.delivery.model import DeliveryId, DeliveryState
from postroom.delivery.service import refuse_cancelled
from postroom.errors import IdempotencyConflict
from postroom.events.audit import record_audit
from postroom.post.keyed_hash import LARGEST_ID
from postroom.runtime.page import Found, read_page

STEP = 1000
"""Ids that a step examines: its transaction holds locks, so it has to be short."""

FIRST_STEPS = 5
"""Steps that the starting request runs itself, so that small actions are finished when it answers."""

WINDOW, WINDOWS = 5_000, 20
"""Ids that a preview examines at once, and how often: a person waits for the answer."""

SHOWN_IDS = 10
"""Unknown ids that an error names."""

REST = timedelta(seconds=2)
"""The workers look for unfinished actions this often."""

RETENTION = (Retention(store.delete_old_mass_actions, timedelta(days=90)),)  # a quarter: who changed what, and when


async def preview(pool: Pool, kind: MassKind, chosen: DeliveryFilter, *, now: datetime | None = None) -> MassPreview:
    """Count the deliveries that an action would change; nothing is changed. Raises for ids, as `start` does."""
    changed, skipped = 0, Counter[Obstacle]()
    async with pool.acquire() as connection:
        await _check_ids(connection, kind, chosen)
        before_id = await find_newest_id(connection) + 1
        more: int | None = before_id
        for _ in range(WINDOWS):
            if more is None:
                break
            ids, more = await read_window(connection, chosen, before_id=more, id_limit=WINDOW)
            found = await store.list_standings(connection, delivery_ids=ids, now=now)
            busy: list[DeliveryId] = []
            changed += len(_ids(_allowed(kind, found, skipped, busy)))
            skipped[Obstacle.SENDING] += len(busy)
    return MassPreview(changed=changed, skipped=_named(skipped), before_id=before_id, is_complete=more is None)


async def start(  # noqa: PLR0913 - the action and who starts it
    pool: Pool,
    kind: MassKind,
    chosen: DeliveryFilter,
    *,
    actor: str,
    idempotency_key: str | None = None,
    before_id: int | None = None,
    now: datetime | None = None,
) -> MassAction:
    """Start an action and run its first steps; `before_id` of a preview excludes deliveries accepted since.

    The same key of the same actor starts nothing again. Raises `IdempotencyConflict` if it stands for another action.
    Raises `DeadLetterNotFound`, `DeliveryNotFound` or `CampaignCancelled` for an id of the filter that cannot be
    changed.
    """
    async with pool.acquire() as connection, connection.transaction():
        newest = await find_newest_id(connection) + 1
        action = await store.start_mass_action(
            connection,
            kind=kind,
            actor=actor,
            idempotency_key=idempotency_key,
            filter=chosen,
            before_id=newest if before_id is None else min(before_id, newest),
        )
        if action is None:
            return await _started(connection, kind, chosen, actor=actor, idempotency_key=idempotency_key or "")
        await _check_ids(connection, kind, chosen)
    await run_steps(pool, action.id, steps=FIRST_STEPS, now=now)
    return await get_mass_action(pool, action.id)


async def _started(
    connection: Connection, kind: MassKind, chosen: DeliveryFilter, *, actor: str, idempotency_key: str
) -> MassAction:
    known = await store.find_started(connection, actor=actor, idempotency_key=idempotency_key)
    if known is None or (known.kind, write_filter(known.filter)) != (kind, write_filter(chosen)):
        raise IdempotencyConflict
    return known


async def _check_ids(connection: Connection, kind: MassKind, chosen: DeliveryFilter) -> None:
    """Raise for an id that the other filters do not select, or whose mail must not leave again.

    A person who lists ids means each of them; a filter is a search, which skips and counts.
    """
    if not chosen.ids:
        return
    limit = len(chosen.ids) + 1  # one window
    found, _more = await read_window(connection, chosen, before_id=LARGEST_ID, id_limit=limit)
    unknown = sorted(set(chosen.ids).difference(found))
    if unknown and chosen.state is StateFilter.DEAD_LETTER:
        raise DeadLetterNotFound.of(*unknown[:SHOWN_IDS])
    if unknown:
        raise DeliveryNotFound.of(unknown[0])
    if kind is not MassKind.CANCEL:
        await refuse_cancelled(connection, chosen.ids, "retried" if kind is MassKind.RETRY else "resent")


async def run_steps(pool: Pool, action_id: int, *, steps: int, now: datetime | None = None) -> bool:
    """Run some steps of an action; True if more remain.

    False also while another process runs a step, and while a cancel waits for mail that workers hold.
    """
    async with pool.acquire() as connection:
        for _ in range(steps):
            if not await _step(connection, action_id, now=now):
                return False
    return True


async def run_unfinished(pool: Pool, *, now: datetime | None = None) -> bool:
    """Run some steps of every unfinished action; True if more remain."""
    async with pool.acquire() as connection:
        unfinished = await store.list_unfinished(connection)
    remaining = [await run_steps(pool, each, steps=FIRST_STEPS, now=now) for each in unfinished]
    return any(remaining)


async def _step(connection: Session, action_id: int, *, now: datetime | None) -> bool:
    """One step in a transaction; True if there is a next one."""
    async with connection.transaction():
        work = await store.lock_mass_action(connection, id=action_id)
        if work is None:
            return False
        ids, more = await _next_window(connection, work)
        changed, skipped, busy = await _change(connection, work.kind, ids, now=now)
        pending = busy if work.kind is MassKind.CANCEL else []
        if work.takes_back and work.pending and not pending and more is None:
            more = work.from_id  # what workers held has returned or ended: look once more
        if busy:
            skipped[Obstacle.SENDING] = len(busy)
        action = await store.record_step(
            connection, id=action_id, changed=changed, skipped=_named(skipped), before_id=more, pending=pending, now=now
        )
        if action.finished_at is not None:
            await _audit(connection, action)
    return more is not None


async def _next_window(connection: Connection, work: MassWork) -> tuple[list[int], int | None]:
    """The deliveries of the next step: the next ones of the filter, and those that a cancel still waits for.

    A cancel of waiting mail follows what workers hold now: it may return to the queue. Read after the window, so
    that mail claimed meanwhile is in one of both.
    """
    ids, more = await read_window(connection, work.filter, before_id=work.before_id, id_limit=STEP)
    held: list[int] = list(work.pending)
    if work.takes_back:
        sending = replace(work.filter, state=StateFilter.SENDING)
        before_id: int | None = work.from_id
        while before_id:
            found, before_id = await read_window(connection, sending, before_id=before_id, id_limit=STEP)
            held += found
    return sorted({*ids, *held}), more


async def _change(
    connection: Connection, kind: MassKind, ids: Sequence[int], *, now: datetime | None
) -> tuple[int, "Counter[Obstacle]", list[DeliveryId]]:
    """Change the deliveries that allow it; the number of them, of the others by reason, and those that are in use.

    Only those that allow it are locked: a filter may select a million that have ended.
    """
    skipped, busy = Counter[Obstacle](), list[DeliveryId]()
    candidates = _ids(_allowed(kind, await store.list_standings(connection, delivery_ids=ids, now=now), skipped, busy))
    locked = await store.lock_deliveries(connection, delivery_ids=candidates)
    busy += set(candidates).difference(locked)
    allowed = _allowed(kind, await store.list_standings(connection, delivery_ids=locked, now=now), skipped, busy)
    return await _apply(connection, kind, allowed, now=now), skipped, busy


def _allowed(
    kind: MassKind, found: Sequence[Standing], skipped: "Counter[Obstacle]", busy: list[DeliveryId]
) -> list[Standing]:
    """Those without an obstacle; those that are in use are added to `busy`, and the others counted."""
    allowed: list[Standing] = []
    for each in found:
        reason = obstacle(kind, each)
        if reason is None:
            allowed.append(each)
        elif reason is Obstacle.SENDING:
            busy += each.ids
        else:
            skipped[reason] += len(each.ids)
    return allowed


def _ids(found: Sequence[Standing]) -> list[DeliveryId]:
    return [delivery_id for each in found for delivery_id in each.ids]


async def _apply(connection: Connection, kind: MassKind, allowed: Sequence[Standing], *, now: datetime | None) -> int:
    """Change these deliveries, which are locked; the number of those that were changed."""
    ids = _ids(allowed)
    if kind is MassKind.CANCEL:
        return len(await deliveries.cancel(connection, delivery_ids=ids, reason="cancelled_by_operator", now=now))
    if kind is MassKind.RESEND:
        return len(await deliveries.resend(connection, delivery_ids=ids, now=now))
    dead = _ids([each for each in allowed if each.state is DeliveryState.DEAD_LETTER])
    due = await deliveries.retry_now(connection, delivery_ids=ids, now=now)
    return len(due) + len(await deliveries.redrive(connection, delivery_ids=dead, now=now))


async def _audit(connection: Connection, action: MassAction) -> None:
    after = {"filter": write_filter(action.filter), "changed": action.changed, "skipped": action.skipped}
    await record_audit(
        connection, action.actor, f"delivery.mass_{action.kind.value}", f"mass_action:{action.id}", after=after
    )


async def get_mass_action(pool: Pool, action_id: int) -> MassAction:
    async with pool.acquire() as connection:
        action = await store.find_mass_action(connection, id=action_id)
    if action is None:
        raise MassActionNotFound.of(action_id)
    return action


async def list_mass_actions(pool: Pool, *, cursor: str | None = None, limit: int = 50) -> Found[MassAction]:
    """A page of mass actions, newest first, and the cursor of the next page."""
    return await read_page(store.list_mass_actions, pool, cursor, limit)


def _named(counted: Mapping[Obstacle, int]) -> dict[str, int]:
    return {reason.value: count for reason, count in counted.items() if count}
