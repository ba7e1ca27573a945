"""Postroom: every message an application owes its people, delivered from the PostgreSQL it already runs.

The flow in ten lines:

    accept    a request becomes rows in the caller's transaction: `postroom.send`, SQL `send(…)`, HTTP, the command line
    render    a template and its variables become stored content (mail)
    claim     a worker leases what is due, lane by lane (delivery)
    start     it commits how far into the claim it is about to get
    attempt   a transport hands the message over and reports a reply (transports)
    classify  the reply becomes a verdict per recipient, the verdict a next step (delivery.outcome, delivery.retry)
    complete  delivery, recipients, attempt and dead letter are written together, if the claim still holds
    recover   what a dead worker left is taken over; what may have arrived is named, never guessed
    look      every step is in the ledger: HTTP, the command line, or plain SQL
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from postroom.client import Client
    from postroom.delivery.model import Attachment
    from postroom.delivery.send import send
    from postroom.errors import (
        AccessError,
        AppendConditionFailed,
        BadInput,
        BodyGone,
        ConflictError,
        DatabaseError,
        DeliveryNotFound,
        DuplicateAppend,
        EventsBusy,
        EventUnreadable,
        FieldError,
        IdempotencyConflict,
        InputError,
        NotFoundError,
        PostroomError,
        ScopeMissing,
        TemplateNotFound,
        Unauthenticated,
        WrongState,
    )
    from postroom.events.service import EventStore

__all__ = [
    "AccessError",
    "AppendConditionFailed",
    "Attachment",
    "BadInput",
    "BodyGone",
    "Client",
    "ConflictError",
    "DatabaseError",
    "DeliveryNotFound",
    "DuplicateAppend",
    "EventStore",
    "EventUnreadable",
    "EventsBusy",
    "FieldError",
    "IdempotencyConflict",
    "InputError",
    "NotFoundError",
    "PostroomError",
    "ScopeMissing",
    "TemplateNotFound",
    "Unauthenticated",
    "WrongState",
    "send",
]

_HOMES = {
    "Attachment": "postroom.delivery.model",
    "Client": "postroom.client",
    "EventStore": "postroom.events.service",
    "send": "postroom.delivery.send",
}
"""Modules of the public names; the names that are not here are errors."""


def __dir__() -> list[str]:
    """List the public names, so that a REPL completes them before they are imported."""
    return sorted({*globals(), *__all__})


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used: `import postroom` alone loads no driver."""
    if name not in __all__:
        raise AttributeError(f"module 'postroom' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES.get(name, "postroom.errors")), name)
