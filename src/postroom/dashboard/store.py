"""One function per statement of `queries.sql`."""

from datetime import datetime, timedelta

from postroom.dashboard.model import Partition, RequestedCodes, SeenWorker, TriedCode
from postroom.db.queries import Connection, load
from postroom.delivery.model import Lane
from postroom.http.model import ApiKey, Operator
from postroom.runtime.record import read_row

QUERIES = load("postroom.dashboard")


async def count_sending(connection: Connection) -> dict[Lane, int]:
    rows = await QUERIES["count_sending"].many(connection)
    return {Lane(row["lane"]): row["sending"] for row in rows}


async def count_sign_in_codes(connection: Connection, *, address_hash: bytes, client: str) -> RequestedCodes:
    row = await QUERIES["count_sign_in_codes"].one(connection, address_hash=address_hash, client=client)
    return read_row(RequestedCodes, row)


async def end_session(connection: Connection, *, nonce: str, expires_at: datetime) -> int:
    return await QUERIES["end_session"].exec(connection, nonce=nonce, expires_at=expires_at)


async def find_session_key(connection: Connection, *, key_id: int, nonce: str) -> ApiKey | None:
    row = await QUERIES["find_session_key"].maybe(connection, key_id=key_id, nonce=nonce)
    return read_row(ApiKey, row) if row else None


async def find_session_operator(connection: Connection, *, operator_id: int, nonce: str) -> Operator | None:
    row = await QUERIES["find_session_operator"].maybe(connection, operator_id=operator_id, nonce=nonce)
    return read_row(Operator, row) if row else None


async def insert_sign_in_code(  # noqa: PLR0913 - one parameter per column
    connection: Connection,
    *,
    nonce_hash: bytes,
    lifetime: timedelta,
    operator_id: int | None,
    address_hash: bytes,
    client: str,
    code_hash: bytes,
) -> None:
    await QUERIES["insert_sign_in_code"].exec(
        connection,
        nonce_hash=nonce_hash,
        lifetime=lifetime,
        operator_id=operator_id,
        address_hash=address_hash,
        client=client,
        code_hash=code_hash,
    )


async def list_partitions(connection: Connection, *, page_limit: int) -> list[Partition]:
    return [Partition(**row) for row in await QUERIES["list_partitions"].many(connection, page_limit=page_limit)]


async def list_workers(connection: Connection, *, page_limit: int) -> list[SeenWorker]:
    rows = await QUERIES["list_workers"].many(connection, page_limit=page_limit)
    return [SeenWorker(**{**row, "asleep": tuple(map(Lane, row["asleep"]))}) for row in rows]


async def lock_sign_in_codes(connection: Connection) -> None:
    await QUERIES["lock_sign_in_codes"].exec(connection)


async def try_sign_in_code(connection: Connection, *, nonce_hash: bytes, most_attempts: int) -> TriedCode | None:
    row = await QUERIES["try_sign_in_code"].maybe(connection, nonce_hash=nonce_hash, most_attempts=most_attempts)
    return TriedCode(**row) if row else None


async def use_sign_in_code(connection: Connection, *, nonce_hash: bytes) -> None:
    await QUERIES["use_sign_in_code"].exec(connection, nonce_hash=nonce_hash)
