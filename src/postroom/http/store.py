"""One function per statement of `queries.sql`."""

from collections.abc import Sequence
from typing import Any

from postroom.db.queries import Connection, load
from postroom.http.model import ApiKey, Operator, OperatorOrigin, Role
from postroom.runtime.record import read_row

QUERIES = load("postroom.http")


async def change_key(connection: Connection, *, key_id: int, **limits: Any) -> ApiKey | None:
    row = await QUERIES["change_key"].maybe(connection, key_id=key_id, **limits)
    return read_row(ApiKey, row) if row else None


async def change_operator_role(connection: Connection, *, operator_id: int, role: Role) -> Operator | None:
    row = await QUERIES["change_operator_role"].maybe(connection, operator_id=operator_id, role=role)
    return read_row(Operator, row) if row else None


async def delete_operator(connection: Connection, *, operator_id: int) -> Operator | None:
    row = await QUERIES["delete_operator"].maybe(connection, operator_id=operator_id)
    return read_row(Operator, row) if row else None


async def disable_operator(connection: Connection, *, operator_id: int) -> Operator | None:
    row = await QUERIES["disable_operator"].maybe(connection, operator_id=operator_id)
    return read_row(Operator, row) if row else None


async def enable_operator(connection: Connection, *, operator_id: int) -> Operator | None:
    row = await QUERIES["enable_operator"].maybe(connection, operator_id=operator_id)
    return read_row(Operator, row) if row else None


async def find_key(connection: Connection, *, key_hash: bytes) -> tuple[ApiKey, bytes] | None:
    """The key and its stored hash, for a comparison in constant time."""
    row = await QUERIES["find_key"].maybe(connection, key_hash=key_hash)
    return (read_row(ApiKey, row), row["key_hash"]) if row else None


async def find_key_by_id(connection: Connection, *, key_id: int) -> ApiKey | None:
    row = await QUERIES["find_key_by_id"].maybe(connection, key_id=key_id)
    return read_row(ApiKey, row) if row else None


async def find_key_by_name(connection: Connection, *, name: str) -> ApiKey | None:
    row = await QUERIES["find_key_by_name"].maybe(connection, name=name)
    return read_row(ApiKey, row) if row else None


async def find_operator(connection: Connection, *, operator_id: int) -> Operator | None:
    row = await QUERIES["find_operator"].maybe(connection, operator_id=operator_id)
    return read_row(Operator, row) if row else None


async def find_operator_by_email(connection: Connection, *, email: str) -> Operator | None:
    row = await QUERIES["find_operator_by_email"].maybe(connection, email=email)
    return read_row(Operator, row) if row else None


async def insert_key(
    connection: Connection, *, name: str, prefix: str, scopes: Sequence[str], key_hash: bytes, **limits: Any
) -> ApiKey:
    row = await QUERIES["insert_key"].one(
        connection, name=name, prefix=prefix, scopes=list(scopes), key_hash=key_hash, **limits
    )
    return read_row(ApiKey, row)


async def insert_operator(connection: Connection, *, email: str, role: Role, origin: OperatorOrigin) -> Operator | None:
    row = await QUERIES["insert_operator"].maybe(connection, email=email, role=role, origin=origin)
    return read_row(Operator, row) if row else None


async def list_keys(connection: Connection, *, before_id: int | None, page_limit: int) -> list[ApiKey]:
    rows = await QUERIES["list_keys"].many(connection, before_id=before_id, page_limit=page_limit)
    return [read_row(ApiKey, row) for row in rows]


async def list_operators(connection: Connection, *, before_id: int | None, page_limit: int) -> list[Operator]:
    rows = await QUERIES["list_operators"].many(connection, before_id=before_id, page_limit=page_limit)
    return [read_row(Operator, row) for row in rows]


async def lock_keys(connection: Connection) -> None:
    await QUERIES["lock_keys"].exec(connection)


async def revoke_key(connection: Connection, *, key_id: int) -> ApiKey | None:
    row = await QUERIES["revoke_key"].maybe(connection, key_id=key_id)
    return read_row(ApiKey, row) if row else None


async def sign_in_operator(connection: Connection, *, operator_id: int) -> Operator | None:
    row = await QUERIES["sign_in_operator"].maybe(connection, operator_id=operator_id)
    return read_row(Operator, row) if row else None


async def touch_key(connection: Connection, *, key_id: int) -> int:
    return await QUERIES["touch_key"].exec(connection, key_id=key_id)
