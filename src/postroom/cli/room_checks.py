"""The doctor's checks of one room: index bloat, keys that expire, the limits of the room, and the replica."""

import asyncio
from datetime import timedelta

from postroom.db.pool import Session, quote_identifier
from postroom.db.queries import load
from postroom.db.replica import CHECK, follower_of
from postroom.runtime.finding import Finding, ok, rough, warn
from postroom.settings import Settings

LEAST_WASTE = 64 * 1024 * 1024
"""Bytes that a REINDEX must win to be worth it. A queue's indexes grow and shrink by this much every day."""

LEAST_SHARE = 0.5
"""Share of an index that must be waste. Random insertion alone leaves a B-tree about a third empty."""

EXPIRY_WARNS = timedelta(days=14)  # time to create a key and to change the programs that use the old one

_SHOWN = 3  # fits one line of doctor
_QUERIES = load("postroom.cli", "doctor.sql")


async def examine_indexes(session: Session, *, least_waste: int = LEAST_WASTE) -> Finding:
    """Compare the size of each index with an estimate from the planner's statistics; no extension is needed."""
    rows = await _QUERIES["list_bloated_indexes"].many(session, least_waste=least_waste, least_share=LEAST_SHARE)
    if not rows:
        return ok("indexes", "none is much larger than its entries need")
    named = [f"{row['name']} has {_size(row['bytes'])}, about {_size(row['waste'])} unused" for row in rows[:_SHOWN]]
    more = f"; and {len(rows) - _SHOWN} more" if len(rows) > _SHOWN else ""
    name = f"{quote_identifier(rows[0]['room'])}.{quote_identifier(rows[0]['name'])}"
    return warn("indexes", "; ".join(named) + more, f"REINDEX INDEX CONCURRENTLY {name}")


def _size(amount: int) -> str:
    return f"{amount / 1024 / 1024:.0f} MB"


async def examine_keys(session: Session) -> Finding:
    """Keys that expire soon, or expired within the same time and were not revoked."""
    rows = await _QUERIES["list_expiring_keys"].many(session, patience=EXPIRY_WARNS)
    if not rows:
        return ok("keys", f"none expires within {rough(EXPIRY_WARNS)}")
    shown = "; ".join(
        f"{row['name']} {'expires in' if row['expires_in'] > timedelta() else 'expired before'}"
        f" {rough(abs(row['expires_in']))}"
        for row in rows
    )
    advice = f"create other keys, or extend with `postroom keys change {rows[0]['id']} --expires +90d`"
    return warn("keys", shown, advice)


async def examine_room(session: Session) -> Finding:
    """The limits of the room: whether it is closed, and whether mail waits for its quota."""
    row = await _QUERIES["describe_room_limits"].maybe(session)
    if row is None:
        return ok("room limits", "none")
    if row["is_closed"]:
        return warn("room limits", f"closed since {row['expires_at']:%Y-%m-%d %H:%M} UTC", _set("--expires"))
    quota = row["daily_quota"]
    if quota is not None and row["sent"] >= quota and row["is_waiting"]:
        found = f"{row['sent']} of {quota} mails of today are sent; the others wait until 00:00 UTC"
        return warn("room limits", found, _set("--daily-quota"))
    if quota is not None and row["accepted"] >= quota:
        found = f"{row['accepted']} of {quota} mails of today are accepted; clients get 429 until 00:00 UTC"
        return warn("room limits", found, _set("--daily-quota"))
    sent = f"{row['sent']} mails sent today"
    return ok("room limits", sent if quota is None else f"{sent} of {quota}")


def _set(option: str) -> str:
    return f"change it with `postroom rooms limit NAME {option}`"


async def examine_replica(primary: Session, settings: Settings, check: str = "replica") -> Finding:
    """Wait at most as long as the replica may be behind."""
    replica = follower_of(primary, settings)
    try:
        async with asyncio.timeout(settings.replica_lag.total_seconds()):
            await replica.check()
            while replica.lag_s is None and not replica.is_faulty:
                await asyncio.sleep(CHECK.total_seconds())
                await replica.check()
    except TimeoutError:
        shown = f"more than {settings.replica_lag.total_seconds():g} s behind"
        return warn(check, shown, "check replication; the API reads the primary meanwhile")
    finally:
        replica.close()
    if replica.problem is not None:
        advice = "check its URL and that the replica runs; the API reads the primary meanwhile"
        return warn(check, replica.problem, advice)
    return ok(check, f"{replica.lag_s or 0:.1f} s behind")
