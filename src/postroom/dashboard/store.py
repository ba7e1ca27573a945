"""One function per statement of `queries.sql`."""

from postroom.dashboard.model import Partition, RequestedCodes, SeenWorker, TriedCode
from postroom.db.queries import Connection, load, model
from postroom.delivery.model import Lane
from postroom.http.model import ApiKey, Operator

QUERIES = load("postroom.dashboard")


async def count_sending(connection: Connection) -> dict[Lane, int]:
    rows = await QUERIES["count_sending"].many(connection)
    return {Lane(row["lane"]): row["sending"] for row in rows}


count_sign_in_codes = QUERIES["count_sign_in_codes"].one_as(model(RequestedCodes))
end_session = QUERIES["end_session"].exec
find_session_key = QUERIES["find_session_key"].maybe_as(model(ApiKey))
find_session_operator = QUERIES["find_session_operator"].maybe_as(model(Operator))
insert_sign_in_code = QUERIES["insert_sign_in_code"].exec
list_partitions = QUERIES["list_partitions"].many_as(lambda row: Partition(**row))
list_workers = QUERIES["list_workers"].many_as(
    lambda row: SeenWorker(**{**row, "asleep": tuple(map(Lane, row["asleep"]))})
)
lock_sign_in_codes = QUERIES["lock_sign_in_codes"].exec
try_sign_in_code = QUERIES["try_sign_in_code"].maybe_as(lambda row: TriedCode(**row))
use_sign_in_code = QUERIES["use_sign_in_code"].exec
