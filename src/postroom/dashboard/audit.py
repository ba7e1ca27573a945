"""The audit log, with filters. `person` is an operator's address, `actor` also a key or a command line user."""

from collections.abc import Mapping
from typing import Any

import msgspec

from postroom.dashboard.listing import Filter, columns
from postroom.dashboard.page import PageRequest
from postroom.events.audit import list_audit
from postroom.events.kept import AuditEntry
from postroom.http.model import operator_actor
from postroom.post.address import normalize
from postroom.runtime.endpoint import Answer

READ = "audit:read"

_PAGES = {"delivery": "/deliveries/{}", "sender": "/senders/{}", "campaign": "/campaigns/{}"}
"""Kinds of subjects that have a page."""


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
    before={"value": lambda entry: written(entry.before), "form": "clip"},
    after={"value": lambda entry: written(entry.after), "form": "clip"},
)


async def list_page(request: PageRequest) -> Answer:
    chosen: dict[str, Any] = {name: request.asked(name) for name in ("actor", "action", "subject")}
    person = request.asked("person")
    actor = chosen["actor"] if person is None else operator_actor(normalize(person))
    found = await list_audit(
        request.pool,
        **{**chosen, "actor": actor},
        recorded_from=request.moment("from"),
        recorded_before=request.moment("before"),
        cursor=request.asked("cursor"),
    )
    return request.listing(
        "Audit log",
        _AUDIT,
        found,
        lead="Every action of an operator, a key or a command line user, newest first.",
        filters=[
            Filter("person", "Person", person, placeholder="ada@example.org"),
            Filter("actor", "Actor", chosen["actor"], placeholder="key:7:ci"),
            Filter("action", "Action or group", chosen["action"], placeholder="delivery.cancel"),
            Filter("subject", "Subject", chosen["subject"], placeholder="delivery:42"),
            Filter("from", "From", request.asked("from"), kind="datetime-local"),
            Filter("before", "Before", request.asked("before"), kind="datetime-local"),
        ],
    )


def subject_page(subject: str) -> str | None:
    """The page of a subject such as `delivery:42`."""
    kind, _, number = subject.partition(":")
    return _PAGES[kind].format(number) if kind in _PAGES and number.isdigit() else None


def written(value: Any) -> str | None:
    """A JSON object as `name: value` pairs, another value as JSON; None for an absent one."""
    if not isinstance(value, Mapping):
        return None if value is None else _json(value)
    return ", ".join(f"{name}: {each if isinstance(each, str) else _json(each)}" for name, each in value.items())


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()
