"""The audit log: every step a person takes by hand is written in the transaction that takes it."""

from collections.abc import Mapping
from typing import Any

from postroom.db.queries import Connection
from postroom.events import store


async def record_audit(
    connection: Connection,
    *,
    actor: str,
    action: str,
    subject: str,
    before: Mapping[str, Any] | None = None,
    after: Mapping[str, Any] | None = None,
) -> None:
    """Say who (`key:ci`, `cli:ada`) did what (`delivery.cancel`) to what (`delivery:42`). Never pass a secret."""
    await store.record_audit(connection, actor=actor, action=action, subject=subject, before=before, after=after)
