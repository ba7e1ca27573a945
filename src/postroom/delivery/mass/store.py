"""One function per statement of `queries.sql`."""

from collections.abc import Mapping
from datetime import datetime, timedelta

import asyncpg
import msgspec

from postroom.db.queries import Connection, column, load, model
from postroom.delivery.mass.model import MassAction, MassKind, Standing, read_filter, write_filter
from postroom.delivery.model import DeliveryFilter, DeliveryId

QUERIES = load("postroom.delivery.mass")


def read_action(row: asyncpg.Record) -> MassAction:
    read = {"filter": read_filter(row["filter"]), "skipped": msgspec.json.decode(row["skipped"])}
    return MassAction(**{**row, **read, "kind": MassKind(row["kind"])})


def _lock_mass_action(row: asyncpg.Record) -> tuple[MassKind, DeliveryFilter, int]:
    return (MassKind(row["kind"]), read_filter(row["filter"]), row["before_id"])


async def delete_old_mass_actions(
    connection: Connection, *, retention: timedelta, batch_limit: int, now: datetime | None
) -> int:
    statement = QUERIES["delete_old_mass_actions"]
    return int((await statement.one(connection, retention=retention, batch_limit=batch_limit, now=now))["deleted"])


find_mass_action = QUERIES["find_mass_action"].maybe_as(read_action)
find_started = QUERIES["find_started"].maybe_as(read_action)
list_mass_actions = QUERIES["list_mass_actions"].many_as(read_action)
list_standings = QUERIES["list_standings"].many_as(model(Standing))
list_unfinished = QUERIES["list_unfinished"].many_as(column("id", int))
lock_deliveries = QUERIES["lock_deliveries"].many_as(column("id", DeliveryId))
lock_mass_action = QUERIES["lock_mass_action"].maybe_as(_lock_mass_action)
"""The kind, the filter, and the id below which the next step begins."""


async def record_step(
    connection: Connection,
    *,
    id: int,  # noqa: A002 - the column's name
    changed: int,
    skipped: Mapping[str, int],
    before_id: int | None,
    now: datetime | None,
) -> MassAction:
    written = msgspec.json.encode(skipped).decode()
    statement = QUERIES["record_step"]
    row = await statement.one(connection, id=id, changed=changed, skipped=written, before_id=before_id, now=now)
    return read_action(row)


async def start_mass_action(
    connection: Connection,
    *,
    kind: MassKind,
    actor: str,
    idempotency_key: str | None,
    filter: DeliveryFilter,  # noqa: A002 - the column's name
    before_id: int,
) -> MassAction | None:
    row = await QUERIES["start_mass_action"].maybe(
        connection,
        kind=kind.value,
        actor=actor,
        idempotency_key=idempotency_key,
        filter=msgspec.json.encode(write_filter(filter)).decode(),
        before_id=before_id,
    )
    return read_action(row) if row else None
