"""Acceptance inside the site's own transaction, by Django's connection.

The statement is SQL `send`, in the way Django's cursors write parameters: the site's role needs EXECUTE on it and no
right on a table. A savepoint around it keeps the site's transaction usable whatever happens to the mail.
"""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.db import DatabaseError, connections, transaction

from postroom.db.faults import BAD_INPUT
from postroom.delivery import store
from postroom.delivery.rows import send_values
from postroom.delivery.shapes import request_from
from postroom.dropins.django.message import Keyed
from postroom.errors import BadInput, IdempotencyConflict

_PARAMETER = re.compile(r"\$(\d+)")


@dataclass(frozen=True, slots=True)
class DatabaseIntake:
    """The way into a room of the site's own database."""

    alias: str
    room: str
    source: str
    idempotency_ttl: timedelta

    def accept(self, deliveries: Sequence[Keyed], *, attempt: str) -> None:  # noqa: ARG002 - a transaction knows its end
        """Accept all of them or none, when the caller's transaction commits. Raises `BadInput` and others."""
        connection = connections[self.alias]
        if connection.vendor != "postgresql":
            raise ImproperlyConfigured(
                f"The database {self.alias!r} cannot hold a room, it is not PostgreSQL: set POSTROOM['URL'] and 'KEY'."
            )
        requests = [
            request_from(body, source=self.source, idempotency_key=key, traceparent=None) for body, key in deliveries
        ]
        statement = store.QUERIES.in_room("send", self.room)
        sql = _PARAMETER.sub(lambda found: f"%({statement.parameters[int(found[1]) - 1]})s", statement.sql)
        with transaction.atomic(using=self.alias), connection.cursor() as cursor:
            for request in requests:
                with _translated():
                    cursor.execute(sql, send_values(request, idempotency_ttl=self.idempotency_ttl))


@contextmanager
def _translated() -> Iterator[None]:
    """As `db.faults.translated`, for the errors of either psycopg."""
    try:
        yield
    except DatabaseError as error:
        cause: Any = error.__cause__
        state = getattr(cause, "sqlstate", None) or getattr(cause, "pgcode", None)
        if state == IdempotencyConflict.sqlstate:
            raise IdempotencyConflict from error
        if state == BAD_INPUT:
            raise BadInput.of(cause.diag.column_name or "request", cause.diag.message_primary) from error
        raise
