"""Acceptance inside the site's own transaction, by Django's connection.

The statement is the one that `postroom.delivery` uses itself, in the way Django's cursors write parameters. A savepoint
around it keeps the site's transaction usable whatever happens to the mail.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.db import connections, transaction

from postroom.delivery import store
from postroom.delivery.columns import accept_values
from postroom.delivery.model import Acceptance
from postroom.delivery.shapes import request_from
from postroom.errors import IdempotencyConflict
from postroom.intake.django.message import Keyed

_PARAMETER = re.compile(r"\$(\d+)")


@dataclass(frozen=True, slots=True)
class DatabaseDoor:
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
        statement = store.QUERIES.in_room("accept_one", self.room)
        sql = _PARAMETER.sub(lambda found: f"%({statement.parameters[int(found[1]) - 1]})s", statement.sql)
        with transaction.atomic(using=self.alias), connection.cursor() as cursor:
            for request in requests:
                cursor.execute(sql, accept_values(request, idempotency_ttl=self.idempotency_ttl, now=None))
                _check(cursor)


def _check(cursor: Any) -> None:
    columns = [column[0] for column in cursor.description]
    answer = dict(zip(columns, cursor.fetchone(), strict=True))
    if answer["acceptance"] == Acceptance.CONFLICT.value:
        raise IdempotencyConflict
