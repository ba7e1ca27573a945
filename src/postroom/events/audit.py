"""The audit log: every manual action is recorded in the transaction that performs it."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from postroom.db.pool import Pool
from postroom.db.queries import Connection
from postroom.events import store
from postroom.events.store import AuditEntry
from postroom.runtime.page import decode_cursor, encode_cursor


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditFilter:
    """Which entries a listing shows; None selects all. `action` also selects a whole group: `delivery`."""

    actor: str | None = None
    action: str | None = None
    subject: str | None = None
    recorded_from: datetime | None = None
    recorded_before: datetime | None = None


async def record_audit(
    connection: Connection,
    *,
    actor: str,
    action: str,
    subject: str,
    before: Mapping[str, Any] | None = None,
    after: Mapping[str, Any] | None = None,
) -> None:
    """Record who (`key:7:ci`, `cli:ada`) did what (`delivery.cancel`) to what (`delivery:42`). Never pass a secret."""
    await store.record_audit(connection, actor=actor, action=action, subject=subject, before=before, after=after)


async def list_audit(
    pool: Pool, chosen: AuditFilter, *, cursor: str | None = None, limit: int = 50
) -> tuple[list[AuditEntry], str | None]:
    """A page of the audit log, newest first, and the cursor of the next page."""
    (before_id,) = decode_cursor(cursor, tuple[int]) if cursor else (None,)
    async with pool.acquire() as connection:
        found = await store.list_audit(connection, before_id=before_id, page_limit=limit + 1, **asdict(chosen))
    page = found[:limit]
    return page, encode_cursor(page[-1].id) if len(found) > limit else None
