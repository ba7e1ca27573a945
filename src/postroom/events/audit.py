"""The audit log: every manual action is recorded in the transaction that performs it."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import msgspec

from postroom.db.pool import Pool, Session
from postroom.db.queries import Connection
from postroom.events import store
from postroom.events.kept import AuditEntry
from postroom.runtime.page import Found, search_page


@dataclass(slots=True)
class AuditNote:
    """The audit entry of a change that is running: the change adds its values, or drops it if nothing changed."""

    subject: str
    before: Mapping[str, Any] | None = None
    after: Mapping[str, Any] | None = None
    is_dropped: bool = False


@asynccontextmanager
async def audited(
    pool: Pool, actor: str, action: str, subject: str = "", *, after: Mapping[str, Any] | None = None
) -> AsyncIterator[tuple[Session, AuditNote]]:
    """Run a change in a transaction that ends with its audit entry: both are committed, or neither.

    An exception rolls both back. A subject that the change creates is set on the note.
    """
    note = AuditNote(subject, after=after)
    async with pool.acquire() as connection, connection.transaction():
        yield connection, note
        if not note.is_dropped:
            await record_audit(connection, actor, action, note.subject, before=note.before, after=note.after)


async def record_audit(
    connection: Connection,
    actor: str,
    action: str,
    subject: str,
    *,
    before: Mapping[str, Any] | None = None,
    after: Mapping[str, Any] | None = None,
) -> None:
    """Record who (`key:7:ci`, `cli:ada`) did what (`delivery.cancel`) to what (`delivery:42`). Never pass a secret."""
    await store.record_audit(
        connection, actor=actor, action=action, subject=subject, before=_text(before), after=_text(after)
    )


def _text(value: Mapping[str, Any] | None) -> str | None:
    return None if value is None else msgspec.json.encode(value).decode()


async def list_audit(  # noqa: PLR0913 - one parameter per filter
    pool: Pool,
    *,
    actor: str | None = None,
    action: str | None = None,
    subject: str | None = None,
    recorded_from: datetime | None = None,
    recorded_before: datetime | None = None,
    cursor: str | None = None,
    limit: int = 50,
) -> Found[AuditEntry]:
    """A page of the audit log, newest first, and the cursor of the next page.

    None selects all. `action` also selects a whole group: `delivery`.
    """
    chosen: dict[str, Any] = {"actor": actor, "action": action, "subject": subject}
    chosen |= {"recorded_from": recorded_from, "recorded_before": recorded_before}
    return await search_page(store.list_audit, pool, cursor, limit, **chosen)
