"""From what PostgreSQL says to what Postroom raises: one table.

Our own stored functions raise SQLSTATEs of class PR; the standard leaves classes that begin with I–Z to
implementations. For bad input the field stands in COLUMN.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache

import asyncpg

from postroom.db.errors import DatabaseUnreachable
from postroom.errors import BadInput, PostroomError, list_errors

BAD_INPUT = "PR001"
BAD_TIME_ZONE = "PR030"
NOT_SETTABLE = "PR101"

INTERRUPTIONS = (
    OSError,  # TimeoutError is one: a statement or a connection took too long
    DatabaseUnreachable,
    asyncpg.PostgresConnectionError,
    asyncpg.InvalidAuthorizationSpecificationError,  # a password that is being rotated
    asyncpg.InsufficientResourcesError,  # disk full, out of memory, too many connections
    asyncpg.LockNotAvailableError,
    asyncpg.OperatorInterventionError,  # a restart, a cancelled statement
    asyncpg.PostgresSystemError,  # an error of the server's own disk or kernel
    asyncpg.ReadOnlySQLTransactionError,  # the first seconds of a switchover
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,  # the driver's name for a connection that dropped between two messages
    asyncpg.TransactionRollbackError,  # a deadlock, for example with the recovery of a lost claim
)
"""Errors of the database, its connections and its driver that pass. A loop that meets one pauses and tries again."""


def is_passing(error: BaseException) -> bool:
    """True for an interruption: the same statement may succeed later, without any change to it or to the data."""
    # For an argument that it cannot encode, asyncpg raises an InterfaceError that is a ValueError too.
    return isinstance(error, INTERRUPTIONS) and not isinstance(error, ValueError)


_LOST = (
    OSError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
    asyncpg.PostgresConnectionError,
    asyncpg.OperatorInterventionError,
)


def is_connection_lost(error: BaseException) -> bool:
    """True if the database could not be reached or went away, so that nothing is known about the statement."""
    return isinstance(error, _LOST) and not isinstance(error, ValueError)


DATABASE_ERRORS = (OSError, asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError)
"""Everything that the database, the driver or the network between them raises."""

_ABOUT_DATA = ("21", "22", "23", "42", "P0", "PR")
"""SQLSTATE classes of errors that the same values raise again: data, constraints, syntax, our own functions."""


def is_about_data(error: BaseException) -> bool:
    """True if the same statement with the same values can never succeed. A missing right can be granted: it may."""
    if isinstance(error, asyncpg.PostgresError):
        state = error.sqlstate or ""
        return state.startswith(_ABOUT_DATA) and not isinstance(error, asyncpg.InsufficientPrivilegeError)
    return isinstance(error, ValueError)  # the driver cannot encode a value


_FAULTS: dict[str, Callable[[asyncpg.PostgresError], PostroomError]] = {
    BAD_INPUT: lambda error: BadInput.of(error.column_name or "request", str(error)),
    BAD_TIME_ZONE: lambda error: BadInput.of(error.column_name or "timezone", str(error)),
    NOT_SETTABLE: lambda error: BadInput.of(error.column_name or "column", str(error)),
}

# Rules of tables that a service checks first, by its own clock; the table has the last word.
_CHECKS = {
    "users_date_of_birth_past": ("date_of_birth", "must be in the past"),
}


@cache
def _by_sqlstate() -> dict[str, Callable[[asyncpg.PostgresError], PostroomError]]:
    """The errors that name the SQLSTATE of a stored function, read when the first one is raised."""
    return {kind.sqlstate: _with_message(kind) for kind in list_errors() if kind.sqlstate}


def _with_message(kind: type[PostroomError]) -> Callable[[asyncpg.PostgresError], PostroomError]:
    return lambda error: kind(str(error))


@contextmanager
def translated() -> Iterator[None]:
    """Raise our error in place of PostgreSQL's where the table knows it; let every other through."""
    try:
        yield
    except asyncpg.CheckViolationError as error:
        if error.constraint_name not in _CHECKS:
            raise
        raise BadInput.of(*_CHECKS[error.constraint_name]) from error
    except asyncpg.PostgresError as error:
        translate = _FAULTS.get(error.sqlstate or "") or _by_sqlstate().get(error.sqlstate or "")
        if translate is None:
            raise
        raise translate(error) from error
