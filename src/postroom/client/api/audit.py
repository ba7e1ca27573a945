"""The endpoints of audit, and their types.

Generated from the table of endpoints by `./dev docs`: do not edit.
"""

from __future__ import annotations  # evaluated when an endpoint is first called

from datetime import datetime
from typing import Any

from msgspec import Struct

from postroom.client.calls import Kind, Resource, ResultPage, listing


class AuditEntry(Struct, frozen=True, kw_only=True):
    """One manual action: `actor` did `action` to `subject`; `before` and `after` hold the values it changed."""

    id: int
    at: datetime
    actor: str
    action: str
    subject: str
    before: Any
    after: Any


class AuditApi(Resource[Kind]):
    """The endpoints of audit."""

    @listing("/v1/audit")
    def list(
        self,
        *,
        cursor: str | None = None,
        limit: int = 50,
        actor: str | None = None,
        action: str | None = None,
        subject: str | None = None,
        recorded_from: datetime | None = None,
        recorded_before: datetime | None = None,
    ) -> ResultPage[AuditEntry]:
        """List manual actions, newest first: who did what to which object, and the values before and after."""
