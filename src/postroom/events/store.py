"""One function per statement of `queries.sql`."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import msgspec

from postroom.db.queries import Connection, load

QUERIES = load("postroom.events")


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """Who did what, when, to what."""

    id: int
    at: datetime
    actor: str
    action: str
    subject: str
    before: Any
    after: Any


async def list_audit(connection: Connection, *, subject: str | None, page_limit: int) -> list[AuditEntry]:
    rows = await QUERIES["list_audit"].many(connection, subject=subject, page_limit=page_limit)
    return [AuditEntry(**{**row, "before": _json(row["before"]), "after": _json(row["after"])}) for row in rows]


async def record_audit(
    connection: Connection,
    *,
    actor: str,
    action: str,
    subject: str,
    before: Mapping[str, Any] | None,
    after: Mapping[str, Any] | None,
) -> None:
    await QUERIES["record_audit"].exec(
        connection, actor=actor, action=action, subject=subject, before=_text(before), after=_text(after)
    )


def _json(value: str | None) -> Any:
    return None if value is None else msgspec.json.decode(value)


def _text(value: Mapping[str, Any] | None) -> str | None:
    return None if value is None else msgspec.json.encode(value).decode()
