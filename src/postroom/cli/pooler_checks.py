"""The doctor's questions about a pooler: whether there is one, in which mode, and whether it is set up right.

PostgreSQL tells a client its process id at login, and PgBouncer makes one up; so a pooler is where that id and
`pg_backend_pid()` differ. In transaction mode a second client gets the server process of the first one while that is
idle; in session mode it never does.
"""

import asyncio
from enum import StrEnum

from postroom.db.errors import DatabaseError
from postroom.db.migrate import check_search_path
from postroom.db.pool import Session, connected
from postroom.db.queries import load
from postroom.runtime.finding import Finding, fail, ok
from postroom.settings import Settings

PATIENCE_S = 5.0  # a pooler that needs longer delays every statement

_QUERIES = load("postroom.cli", "doctor.sql")


class Pooling(StrEnum):
    """How connections of one URL reach the server."""

    NONE = "none"
    SESSION = "session"
    TRANSACTION = "transaction"


async def examine(settings: Settings, direct_url: str) -> Finding:
    """Check the URL that must not be pooled by transaction, and the one that may be."""
    pooling = await find_pooling(direct_url, settings.schema)
    if pooling is Pooling.TRANSACTION:
        return _wrong_url(settings)
    if not settings.is_pooled or settings.database_url is None:
        return ok("pooler", "none" if pooling is Pooling.NONE else "one in session mode, which needs no settings")
    try:
        async with connected(settings.database_url, settings.schema, pooled=True) as session:
            await check_search_path(session, settings.schema)
    except DatabaseError as error:
        return fail("pooler", error.message, "see `A pooler` in docs/how-to/connect-to-postgresql.md")
    return ok("pooler", f"{await find_pooling(settings.database_url, settings.schema)} mode; LISTEN goes around it")


def _wrong_url(settings: Settings) -> Finding:
    lost = "LISTEN, advisory locks and prepared statements do not work through it"
    if settings.is_pooled:
        advice = "set POSTROOM_DATABASE_DIRECT_URL to PostgreSQL itself, not to the pooler"
        return fail("pooler", f"POSTROOM_DATABASE_DIRECT_URL leads to a pooler in transaction mode: {lost}", advice)
    advice = "set POSTROOM_DATABASE_DIRECT_URL to the URL of PostgreSQL itself, beside POSTROOM_DATABASE_URL"
    return fail("pooler", f"POSTROOM_DATABASE_URL leads to a pooler in transaction mode: {lost}", advice)


async def find_pooling(url: str, room: str) -> Pooling:
    """Which kind of pooler is between us and the server, if any."""
    async with connected(url, room, pooled=True) as first:
        backend = await _backend(first)
        if backend == first.get_server_pid():
            return Pooling.NONE
        try:
            async with asyncio.timeout(PATIENCE_S):
                return await _compare(first, backend, url, room)
        except TimeoutError:  # the pooler has one server connection, and the first client keeps it
            return Pooling.SESSION


async def _compare(first: Session, backend: int, url: str, room: str) -> Pooling:
    async with connected(url, room, pooled=True) as second, second.transaction():
        is_shared = await _backend(second) == backend or await _backend(first) != backend
    return Pooling.TRANSACTION if is_shared else Pooling.SESSION


async def _backend(session: Session) -> int:
    return int((await _QUERIES["identify_backend"].one(session))["pid"])
