"""The doctor's check of the replica: whether it answers, is a copy of this database, and how far it is behind."""

import asyncio

from postroom.db.pool import Session
from postroom.db.replica import CHECK, follower_of
from postroom.runtime.finding import Finding, ok, warn
from postroom.settings import Settings


async def examine(primary: Session, settings: Settings, check: str = "replica") -> Finding:
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
