"""One function per statement of `queries.sql`."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from postroom.db.queries import Connection, load
from postroom.limits.model import AllowanceAnswer, HeldLimits, MailLimits, Use
from postroom.runtime.record import read_row

QUERIES = load("postroom.limits")


async def delete_room_limits(connection: Connection) -> None:
    await QUERIES["delete_room_limits"].exec(connection)


async def find_key_limits(connection: Connection, *, key_id: int) -> HeldLimits | None:
    row = await QUERIES["find_key_limits"].maybe(connection, key_id=key_id)
    return (
        read_row(HeldLimits, {**row, "holder": f"key:{key_id}", "name": f"The API key {row['name']}"}) if row else None
    )


async def find_room_limits(connection: Connection) -> MailLimits | None:
    row = await QUERIES["find_room_limits"].maybe(connection)
    return read_row(MailLimits, row) if row else None


async def list_use(connection: Connection, *, holders: Sequence[str]) -> dict[str, Use]:
    rows = await QUERIES["list_use"].many(connection, holders=list(holders))
    return {row["holder"]: read_row(Use, row) for row in rows}


async def put_room_limits(connection: Connection, **limits: Any) -> None:
    await QUERIES["put_room_limits"].exec(connection, **limits)


async def take_allowance(  # noqa: PLR0913 - one parameter per value of the statement
    connection: Connection,
    *,
    holder: str,
    rate: int | None,
    quota: int | None,
    least: int,
    wanted: int,
    ahead: int = 0,
    returned: int = 0,
    returned_minute: datetime | None = None,
) -> AllowanceAnswer:
    row = await QUERIES["take_allowance"].one(
        connection,
        holder=holder,
        rate=rate,
        quota=quota,
        least=least,
        wanted=wanted,
        ahead=ahead,
        returned=returned,
        returned_minute=returned_minute,
    )
    return read_row(AllowanceAnswer, row)
