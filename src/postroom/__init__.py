"""Postroom: delivery of an application's messages from the PostgreSQL it already runs.

The flow in ten lines:

    accept    a request becomes rows in the caller's transaction: `postroom.send`, SQL `send(…)`, HTTP, the command line
    claim     a worker leases due deliveries, lane by lane (delivery)
    start     the worker commits which deliveries of the claim it is about to send
    render    the pinned version of a template and its variables become the message (mail)
    attempt   a transport hands the message over and reports a reply (transports)
    classify  the reply becomes an outcome per recipient, the outcome a next step (delivery.outcome, delivery.retry)
    complete  delivery, recipients, attempt and dead letter are written together, if the claim still holds
    recover   another worker takes over expired claims; deliveries that may have arrived are marked ambiguous
    look      every step is in the ledger: HTTP, the command line, or plain SQL
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from postroom import sync
    from postroom.client.asynchronous import Client
    from postroom.db.errors import DatabaseError
    from postroom.delivery.errors import BodyGone, DeliveryNotFound, WrongState
    from postroom.delivery.send import send
    from postroom.errors import (
        AccessError,
        BadInput,
        ConflictError,
        FieldError,
        IdempotencyConflict,
        InputError,
        NotFoundError,
        PostroomError,
        ScopeMissing,
        Unauthenticated,
    )
    from postroom.events.errors import AppendConditionFailed, DuplicateAppend, EventsBusy, EventUnreadable
    from postroom.events.service import EventStore
    from postroom.limits.errors import FromNotAllowed, QuotaExceeded, RateExceeded, RoomClosed
    from postroom.mail.errors import TemplateNotFound
    from postroom.post.mime import Attachment

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
    "FromNotAllowed",
    "IdempotencyConflict",
    "InputError",
    "NotFoundError",
    "PostroomError",
    "QuotaExceeded",
    "RateExceeded",
    "RoomClosed",
    "ScopeMissing",
    "TemplateNotFound",
    "Unauthenticated",
    "WrongState",
    "send",
    "sync",
]

_HOMES = {
    "postroom.client.asynchronous": ("Client",),
    "postroom.db.errors": ("DatabaseError",),
    "postroom.delivery.errors": ("BodyGone", "DeliveryNotFound", "WrongState"),
    "postroom.delivery.model": ("Attachment",),
    "postroom.delivery.send": ("send",),
    "postroom.events.errors": ("AppendConditionFailed", "DuplicateAppend", "EventUnreadable", "EventsBusy"),
    "postroom.events.service": ("EventStore",),
    "postroom.limits.errors": ("FromNotAllowed", "QuotaExceeded", "RateExceeded", "RoomClosed"),
    "postroom.mail.errors": ("TemplateNotFound",),
}
"""Modules of the public names; every other public name is in `postroom.errors`."""


def __dir__() -> list[str]:
    """List the public names, so that a REPL completes them before they are imported."""
    return sorted({*globals(), *__all__})


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used: `import postroom` alone loads no driver."""
    if name not in __all__:
        raise AttributeError(f"module 'postroom' has no attribute {name!r}")
    from importlib import import_module

    if name == "sync":
        return import_module("postroom.sync")
    home = next((module for module, names in _HOMES.items() if name in names), "postroom.errors")
    value = globals()[name] = getattr(import_module(home), name)  # Python asks only once: `send` is called in hot paths
    return value
