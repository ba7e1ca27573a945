"""Keeping feedback's house: administrators hear of complaints, old reports go.

A notice is a mail like any other, accepted in the transaction that takes the turn. There is at most one per interval,
however many processes run: the first complaint is told at once, a flood that follows it is one mail.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta

import asyncpg
import structlog

from postroom.db.faults import FLICKER
from postroom.db.pool import Pool
from postroom.feedback import store
from postroom.feedback.store import Untold
from postroom.runtime.clock import Clock, database_time

_log = structlog.get_logger()

STEP = 1000
MOST_NAMED = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class KeeperOptions:
    """Who is told, how often, and how long reports are kept; the defaults are those of the settings."""

    admin: str | None = None
    notice_interval: timedelta = timedelta(hours=1)
    retention: timedelta = timedelta(days=365)
    unread_retention: timedelta = timedelta(days=30)
    token_retention: timedelta = timedelta(days=2)
    poll_interval: timedelta = timedelta(seconds=30)


class FeedbackKeeper:
    """A loop: tell administrators, drop what is old."""

    def __init__(self, pool: Pool, options: KeeperOptions | None = None, *, clock: Clock = database_time) -> None:
        self._pool, self._options, self._clock = pool, options or KeeperOptions(), clock
        self._stopping = asyncio.Event()

    def stop(self) -> None:
        self._stopping.set()

    async def run(self) -> None:
        steps: tuple[Callable[[], Awaitable[int]], ...] = (self.tell_admin, self.clean_up)
        while not self._stopping.is_set():
            for step in steps:
                try:
                    await step()
                except (*FLICKER, asyncpg.PostgresError) as error:
                    _log.warning("feedback_postponed", step=step.__name__, error=type(error).__name__)
            try:
                async with asyncio.timeout(self._options.poll_interval.total_seconds()):
                    await self._stopping.wait()
            except TimeoutError:
                continue

    async def tell_admin(self) -> int:
        """One mail about the complaints nobody was told of; returns how many there were."""
        admin = self._options.admin
        if admin is None:
            return 0
        async with self._pool.acquire() as connection, connection.transaction():
            if not await store.begin_notice(connection, interval=self._options.notice_interval, now=self._clock()):
                return 0
            untold = await store.mark_complaints_told(connection, now=self._clock())
            await store.send_notice(connection, admin=admin, subject=_subject(untold), text=_text(untold))
        _log.info("complaints_told", complaints=untold.complaints)
        return untold.complaints

    async def clean_up(self) -> int:
        """Retention of reports, unreadable messages and used tokens. Suppressions stay for ever."""
        options, total = self._options, 0
        async with self._pool.acquire() as connection:
            while deleted := await store.delete_old_bounces(
                connection, retention=options.retention, batch_limit=STEP, now=self._clock()
            ):
                total += deleted
            total += await store.delete_old_unread(connection, retention=options.unread_retention, now=self._clock())
            total += await store.delete_old_tokens(connection, retention=options.token_retention, now=self._clock())
        return total


def _subject(untold: Untold) -> str:
    people = "1 person" if untold.complaints == 1 else f"{untold.complaints} people"
    return f"Postroom: {people} complained"


def _text(untold: Untold) -> str:
    """No address: a notice is mail, and mail is kept in many places."""
    named = ", ".join(str(delivery_id) for delivery_id in untold.delivery_ids[:MOST_NAMED])
    more = len(untold.delivery_ids) - MOST_NAMED
    who = "1 recipient" if untold.complaints == 1 else f"{untold.complaints} recipients"
    reported = f"{who} reported mail from here as spam since the last notice."
    ended = "Every address that the reports name is suppressed and gets no more mail."
    lines = [f"{reported} {ended}", "", f"Campaigns concerned: {untold.campaigns}"]
    if named:
        lines.append(f"Deliveries: {named}{f' and {more} more' if more > 0 else ''}")
    return "\n".join([*lines, "", "List them with: postroom feedback list --kind complaint", ""])
