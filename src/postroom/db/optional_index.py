"""Optional indexes, which cost every write and serve only some installations: created on request."""

from collections.abc import Awaitable, Callable

from postroom.db.pool import Pool, quote_identifier
from postroom.db.queries import Connection, load

_QUERIES = load("postroom.db")


async def make_index(pool: Pool, name: str, create: Callable[[Connection], Awaitable[object]]) -> bool:
    """Create an index without blocking writes; False if it exists. Needs the owner of the room.

    CREATE INDEX CONCURRENTLY runs outside any transaction. An interrupted one leaves an invalid index behind, which is
    dropped first.
    """
    async with pool.acquire() as connection:
        found = await _QUERIES["find_index"].maybe(connection, name=name)
        if found is not None and found["is_valid"]:
            return False
        if found is not None:
            await connection.execute(f"DROP INDEX CONCURRENTLY IF EXISTS {quote_identifier(name)}")
        await create(connection)
    return True
