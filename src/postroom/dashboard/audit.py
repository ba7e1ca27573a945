"""The audit log, with filters. `person` is an operator's address, `actor` also a key or a command line user."""

import re
from typing import Any

from postroom.dashboard.listing import Filter, columns, filters, pairs
from postroom.dashboard.page import listing
from postroom.db.pool import Pool
from postroom.events.audit import list_audit
from postroom.events.kept import AuditEntry
from postroom.http.model import operator_actor
from postroom.post.address import normalize
from postroom.runtime.page import Found

READ = "audit:read"
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")

_PAGES = {
    "delivery": "/deliveries/{}",
    "sender": "/senders/{}",
    "campaign": "/campaigns/{}",
    "account": "/accounts/{}",
    "user": "/people/{}",
    "malformed_command": "/malformed/{}",
    "mass_action": "/deliveries/mass-actions/{}",
}
"""Pages of subjects that every role with the audit log may open."""


_AUDIT = columns(
    AuditEntry,
    "at",
    "actor",
    "action",
    "subject",
    "before",
    "after",
    action={"form": "code"},
    subject={"link": lambda entry: subject_page(entry.subject)},
    before={"value": lambda entry: pairs(entry.before), "form": "pairs"},
    after={"value": lambda entry: pairs(entry.after), "form": "pairs"},
)


async def _find(pool: Pool, *, person: str | None, actor: str | None, **chosen: Any) -> Found[AuditEntry]:
    return await list_audit(pool, actor=operator_actor(normalize(person)) if person else actor, **chosen)


def subject_page(subject: str) -> str | None:
    """The page of a subject such as `delivery:42`."""
    kind, _, name = subject.partition(":")
    is_id = _UUID.fullmatch(name) if kind == "user" else name.isdigit()
    return _PAGES[kind].format(name) if kind in _PAGES and is_id else None


PAGES = (
    listing(
        "/audit",
        "Audit log",
        _AUDIT,
        _find,
        scope=READ,
        from_replica=True,
        lead="Every action of an operator, a key or a command line user, newest first.",
        filters=(
            Filter("person", "Person", placeholder="ada@example.org"),
            *filters(
                list_audit,
                Filter("actor", "Actor", placeholder="key:7:ci"),
                Filter("action", "Action or group", placeholder="delivery.cancel"),
                Filter("subject", "Subject", placeholder="delivery:42"),
                Filter("from", "From", field="recorded_from", is_rare=True),
                Filter("before", "Before", field="recorded_before", is_rare=True),
            ),
        ),
    ),
)
