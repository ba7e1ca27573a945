"""One function per statement of `queries.sql`."""

from datetime import datetime

from postroom.dashboard.model import SeenWorker
from postroom.db.queries import Connection, load
from postroom.delivery.model import Lane
from postroom.http.model import ApiKey, Operator
from postroom.runtime.record import read_row

QUERIES = load("postroom.dashboard")


async def count_sending(connection: Connection) -> dict[Lane, int]:
    rows = await QUERIES["count_sending"].many(connection)
    return {Lane(row["lane"]): row["sending"] for row in rows}


async def end_session(connection: Connection, *, nonce: str, expires_at: datetime) -> None:
    await QUERIES["end_session"].exec(connection, nonce=nonce, expires_at=expires_at)


async def find_session_key(connection: Connection, *, key_id: int, nonce: str) -> ApiKey | None:
    row = await QUERIES["find_session_key"].maybe(connection, key_id=key_id, nonce=nonce)
    return read_row(ApiKey, row) if row else None


async def find_session_operator(connection: Connection, *, operator_id: int, nonce: str) -> Operator | None:
    row = await QUERIES["find_session_operator"].maybe(connection, operator_id=operator_id, nonce=nonce)
    return read_row(Operator, row) if row else None


async def list_workers(connection: Connection, *, page_limit: int) -> list[SeenWorker]:
    rows = await QUERIES["list_workers"].many(connection, page_limit=page_limit)
    return [SeenWorker(**{**row, "asleep": tuple(map(Lane, row["asleep"]))}) for row in rows]
