"""One function per statement of `queries.sql`."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

import asyncpg
import msgspec

from postroom.db.queries import Connection, column, load, model
from postroom.delivery.filter import DeliveryFilter
from postroom.delivery.mass.model import MassAction, MassKind, MassWork, Standing, read_filter, write_filter
from postroom.delivery.model import DeliveryId

QUERIES = load("postroom.delivery.mass")


def read_action(row: asyncpg.Record) -> MassAction:
    read = {"filter": read_filter(row["filter"]), "skipped": msgspec.json.decode(row["skipped"])}
    return MassAction(**{**row, **read, "kind": MassKind(row["kind"])})


def _lock_mass_action(row: asyncpg.Record) -> MassWork:
    return MassWork(**{**row, "kind": MassKind(row["kind"]), "filter": read_filter(row["filter"])})


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


async def record_step(  # noqa: PLR0913 - the statement's parameters
    connection: Connection,
    *,
    id: int,  # noqa: A002 - the column's name
    changed: int,
    skipped: Mapping[str, int],
    before_id: int | None,
    pending: Sequence[int],
    now: datetime | None,
) -> MassAction:
    written = msgspec.json.encode(skipped).decode()
    statement = QUERIES["record_step"]
    row = await statement.one(
        connection, id=id, changed=changed, skipped=written, before_id=before_id, pending=pending, now=now
    )
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
