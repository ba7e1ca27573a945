"""Acceptance inside the site's own transaction, by Django's connection.

The site's role needs EXECUTE on SQL `send` and no right on a table. A savepoint around the statement keeps the site's
transaction usable if the mail is rejected.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

from django.core.exceptions import ImproperlyConfigured
from django.db import connections, transaction

from postroom.blocking import run_blocking
from postroom.db.drivers import blocking_connection
from postroom.delivery.service import accept_from_application
from postroom.delivery.shapes import request_from
from postroom.dropins.django.message import Keyed


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
        with transaction.atomic(using=self.alias):
            for request in requests:
                run_blocking(
                    accept_from_application(
                        blocking_connection(connection),
                        request,
                        room=self.room,
                        idempotency_ttl=self.idempotency_ttl,
                    )
                )
