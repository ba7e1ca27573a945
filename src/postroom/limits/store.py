"""One function per statement of `queries.sql`."""

from postroom.db.queries import Connection, load, model
from postroom.limits.model import AllowanceAnswer, HeldLimits, MailLimits, Use
from postroom.runtime.record import read_row

QUERIES = load("postroom.limits")

delete_room_limits = QUERIES["delete_room_limits"].exec


async def find_key_limits(connection: Connection, *, key_id: int) -> HeldLimits | None:
    row = await QUERIES["find_key_limits"].maybe(connection, key_id=key_id)
    return (
        read_row(HeldLimits, {**row, "holder": f"key:{key_id}", "name": f"The API key {row['name']}"}) if row else None
    )


find_room_limits = QUERIES["find_room_limits"].maybe_as(model(MailLimits))
list_use = QUERIES["list_use"].dict_as("holder", model(Use))
put_room_limits = QUERIES["put_room_limits"].exec
take_allowance = QUERIES["take_allowance"].one_as(model(AllowanceAnswer))
