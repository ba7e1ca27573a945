"""The audit log over HTTP, read-only."""

from datetime import datetime
from typing import Any

import msgspec

from postroom.events.audit import AuditFilter, list_audit
from postroom.runtime.endpoint import Answer, Call, Endpoint
from postroom.runtime.page import Cursor, Limit
from postroom.runtime.record import Moment, Shape, Text

READ = "audit:read"


class AuditQuery(Shape, frozen=True, kw_only=True):
    """Which entries: by actor, action or group of actions, subject and time."""

    actor: Text | None = None
    action: Text | None = None
    subject: Text | None = None
    recorded_from: Moment | None = None
    recorded_before: Moment | None = None
    cursor: Cursor | None = None
    limit: Limit = 50


class AuditShape(msgspec.Struct, frozen=True, kw_only=True):
    """One manual action: `actor` did `action` to `subject`; `before` and `after` hold the values it changed."""

    id: int
    at: datetime
    actor: str
    action: str
    subject: str
    before: Any
    after: Any


class AuditPage(msgspec.Struct, frozen=True):
    """Entries, newest first."""

    items: list[AuditShape]
    next_cursor: str | None


async def list_entries(call: Call) -> Answer:
    query: AuditQuery = call.query
    chosen = AuditFilter(**{name: getattr(query, name) for name in AuditFilter.__dataclass_fields__})
    found, more = await list_audit(call.room.pool, chosen, cursor=query.cursor, limit=query.limit)
    items = [AuditShape(**{name: getattr(entry, name) for name in AuditShape.__struct_fields__}) for entry in found]
    return Answer(AuditPage(items, more))


ENDPOINTS = [
    Endpoint(
        method="GET",
        path="/v1/audit",
        handler=list_entries,
        summary="List manual actions, newest first: who did what to which object, and the values before and after.",
        scope=READ,
        tag="audit",
        query=AuditQuery,
        answers={200: AuditPage},
    ),
]
