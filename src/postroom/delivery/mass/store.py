"""One function per statement of `queries.sql`."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

import asyncpg
import msgspec

from postroom.db.queries import Connection, load
from postroom.delivery.mass.model import MassAction, MassKind, Standing, read_filter, write_filter
from postroom.delivery.model import DeliveryFilter, DeliveryId
from postroom.runtime.record import read_row

QUERIES = load("postroom.delivery.mass")


async def delete_old_mass_actions(
    connection: Connection, *, retention: timedelta, batch_limit: int, now: datetime | None
) -> int:
    statement = QUERIES["delete_old_mass_actions"]
    return int((await statement.one(connection, retention=retention, batch_limit=batch_limit, now=now))["deleted"])


async def find_mass_action(connection: Connection, *, id: int) -> MassAction | None:  # noqa: A002 - the column's name
    row = await QUERIES["find_mass_action"].maybe(connection, id=id)
    return read_action(row) if row else None


async def find_started(connection: Connection, *, actor: str, idempotency_key: str) -> MassAction | None:
    row = await QUERIES["find_started"].maybe(connection, actor=actor, idempotency_key=idempotency_key)
    return read_action(row) if row else None


async def list_mass_actions(connection: Connection, *, before_id: int | None, page_limit: int) -> list[MassAction]:
    rows = await QUERIES["list_mass_actions"].many(connection, before_id=before_id, page_limit=page_limit)
    return [read_action(row) for row in rows]


async def list_standings(
    connection: Connection, *, delivery_ids: Sequence[int], now: datetime | None
) -> list[Standing]:
    rows = await QUERIES["list_standings"].many(connection, delivery_ids=delivery_ids, now=now)
    return [read_row(Standing, row) for row in rows]


async def list_unfinished(connection: Connection) -> list[int]:
    return [row["id"] for row in await QUERIES["list_unfinished"].many(connection)]


async def lock_deliveries(connection: Connection, *, delivery_ids: Sequence[int]) -> list[DeliveryId]:
    return [
        DeliveryId(row["id"]) for row in await QUERIES["lock_deliveries"].many(connection, delivery_ids=delivery_ids)
    ]


async def lock_mass_action(
    connection: Connection,
    *,
    id: int,  # noqa: A002 - the column's name
) -> tuple[MassKind, DeliveryFilter, int] | None:
    """The kind, the filter, and the id below which the next step begins."""
    row = await QUERIES["lock_mass_action"].maybe(connection, id=id)
    return (MassKind(row["kind"]), read_filter(row["filter"]), row["before_id"]) if row else None


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


def read_action(row: asyncpg.Record) -> MassAction:
    read = {"filter": read_filter(row["filter"]), "skipped": msgspec.json.decode(row["skipped"])}
    return MassAction(**{**row, **read, "kind": MassKind(row["kind"])})
