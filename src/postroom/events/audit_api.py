"""The audit log over HTTP, read-only."""

from postroom.events import audit
from postroom.events.kept import AuditEntry
from postroom.runtime.page import Page, PageQuery
from postroom.runtime.record import Moment, Text
from postroom.runtime.service_endpoint import serve

READ = "audit:read"


class AuditQuery(PageQuery, frozen=True, kw_only=True):
    """Filter of entries: by actor, action or group of actions, subject and time."""

    actor: Text | None = None
    action: Text | None = None
    subject: Text | None = None
    recorded_from: Moment | None = None
    recorded_before: Moment | None = None


ENDPOINTS = [
    serve(
        "GET", "/v1/audit", audit.list_audit,
        "List manual actions, newest first: who did what to which object, and the values before and after.", scope=READ,
        tag="audit", query=AuditQuery, from_replica=True, answers={200: Page[AuditEntry]},
    ),
]  # fmt: skip
