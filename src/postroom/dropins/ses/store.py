"""One function per statement of `queries.sql`."""

import asyncpg

from postroom.db.queries import Connection, load
from postroom.dropins.ses.credentials import SesKey

QUERIES = load("postroom.dropins.ses")


def _key(row: asyncpg.Record) -> SesKey:
    return SesKey(row["id"], row["created_at"], row["name"], tuple(row["scopes"]), row["expires_at"])


async def find_key(connection: Connection, *, key_id: int | None, name: str) -> SesKey | None:
    row = await QUERIES["find_key"].maybe(connection, key_id=key_id, name=name)
    return _key(row) if row else None


async def use_key(connection: Connection, *, key_id: int) -> SesKey | None:
    row = await QUERIES["use_key"].maybe(connection, key_id=key_id)
    return _key(row) if row else None
