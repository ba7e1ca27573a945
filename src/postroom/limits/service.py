"""The limits of the room, and the use of all limits. `postroom.http.service` sets limits of keys."""

from collections.abc import Mapping, Sequence
from typing import Any

from postroom.db.pool import Pool
from postroom.errors import BadInput
from postroom.events.audit import audited
from postroom.limits import store
from postroom.limits.model import SENT, MailLimits, Use, clean_limits, facts_of


async def get_room_limits(pool: Pool) -> MailLimits:
    """The limits of the room. A limit that is not set has no value."""
    return await store.find_room_limits(pool) or MailLimits()


async def set_room_limits(pool: Pool, changes: Mapping[str, Any], *, actor: str) -> MailLimits:
    """Change the limits of the room; fields that are left out stay, and None removes a limit. Raises `BadInput`.

    Processes apply them within `limiter.CACHE_S` seconds.
    """
    async with audited(pool, actor, "room.limit", "room") as (connection, note):
        before = await store.find_room_limits(connection) or MailLimits()
        values, errors = clean_limits({**before.columns, **changes})
        if errors:
            raise BadInput(errors)
        limits = MailLimits(**values)
        if limits.are_none:
            await store.delete_room_limits(connection)
        else:
            await store.put_room_limits(connection, **limits.columns)
        note.before, note.after, note.is_dropped = facts_of(before), facts_of(limits), limits == before
    return limits


async def find_hold(pool: Pool) -> str | None:
    """A sentence about why due mail of the room waits; None if no limit holds it."""
    limits = await get_room_limits(pool)
    if not limits.counts:
        return None
    use = (await read_use(pool, [SENT]))[SENT]
    if limits.daily_quota is not None and use.day_used >= limits.daily_quota:
        return f"The room has sent its {limits.daily_quota} mails of today; mail waits until 00:00 UTC."
    if limits.rate_per_minute is not None and use.minute_used >= limits.rate_per_minute:
        return f"The room sends {limits.rate_per_minute} mails per minute; mail waits for the next minute."
    return None


async def read_use(pool: Pool, holders: Sequence[str]) -> dict[str, Use]:
    """The mails that each of these holders has used; zero for one that has used none."""
    found = await store.list_use(pool, holders=holders)
    return {holder: found.get(holder, Use(holder)) for holder in holders}
