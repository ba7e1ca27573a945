"""The table that maps PostgreSQL's errors to Postroom's.

Our stored functions raise SQLSTATEs of class PR; the standard reserves classes that begin with I–Z for implementations.
For bad input, COLUMN is the field.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import asyncpg

from postroom.db.errors import DatabaseUnreachable, RoomMissing
from postroom.errors import BadInput, PostroomError, list_errors

BAD_INPUT = "PR001"
BAD_TIME_ZONE = "PR030"
NOT_SETTABLE = "PR101"
NO_SCHEMA = "3F000"

INTERRUPTIONS = (
    OSError,  # includes TimeoutError: a statement or a connection took too long
    DatabaseUnreachable,
    asyncpg.PostgresConnectionError,
    asyncpg.InvalidAuthorizationSpecificationError,  # a password that is being rotated
    asyncpg.IdleInTransactionSessionTimeoutError,  # the process stood still for too long
    asyncpg.InsufficientResourcesError,  # disk full, out of memory, too many connections
    asyncpg.LockNotAvailableError,
    asyncpg.OperatorInterventionError,  # a restart, a cancelled statement
    asyncpg.PostgresSystemError,  # an error of the server's disk or kernel
    asyncpg.ReadOnlySQLTransactionError,  # the first seconds of a switchover
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,  # the driver's error for a connection lost between two messages
    asyncpg.TransactionRollbackError,  # a deadlock, for example with the recovery of an expired claim
)
"""Temporary errors of the database, its connections and its driver. A loop pauses and retries."""


def is_passing(error: BaseException) -> bool:
    """True for an interruption: the same statement may succeed later, without any change to it or to the data."""
    # asyncpg's InterfaceError for an argument that it cannot encode is a ValueError too.
    return isinstance(error, INTERRUPTIONS) and not isinstance(error, ValueError)


_LOST = (
    OSError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
    asyncpg.PostgresConnectionError,
    asyncpg.OperatorInterventionError,
    asyncpg.IdleInTransactionSessionTimeoutError,
)


def is_connection_lost(error: BaseException) -> bool:
    """True if the database could not be reached or the connection was lost, so that the result is unknown."""
    return isinstance(error, _LOST) and not isinstance(error, ValueError)


DATABASE_ERRORS = (OSError, asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError)
"""All errors of the database, the driver and the network between them."""

_ABOUT_DATA = ("21", "22", "23", "42", "P0", "PR")
"""SQLSTATE classes of errors that the same values raise again: data, constraints, syntax, our own functions."""


def is_about_data(error: BaseException) -> bool:
    """True if the same statement with the same values can never succeed. A missing privilege is not included."""
    if isinstance(error, asyncpg.PostgresError):
        state = error.sqlstate or ""
        return state.startswith(_ABOUT_DATA) and not isinstance(error, asyncpg.InsufficientPrivilegeError)
    return isinstance(error, ValueError)  # the driver cannot encode a value


@dataclass(frozen=True, slots=True)
class _Reported:
    """The fields of an error that PostgreSQL reported, by any driver."""

    sqlstate: str
    message: str
    column: str | None
    constraint: str | None


Fault = Callable[[_Reported], PostroomError]

_FAULTS: dict[str, Fault] = {
    BAD_INPUT: lambda error: BadInput.of(error.column or "request", error.message),
    BAD_TIME_ZONE: lambda error: BadInput.of(error.column or "timezone", error.message),
    NOT_SETTABLE: lambda error: BadInput.of(error.column or "column", error.message),
    NO_SCHEMA: lambda error: RoomMissing(
        f"There is no such room in this database: {error.message}.",
        "Create it with `postroom migrate`, or correct the name of the room.",
    ),
}

# Constraints that a service checks first, by its own clock; the table decides.
_CHECKS = {
    "users_date_of_birth_past": ("date_of_birth", "must be in the past"),
}


@cache
def _by_sqlstate() -> dict[str, Fault]:
    """Errors by the SQLSTATE of a stored function, loaded when the first one is raised."""
    return {kind.sqlstate: _with_message(kind) for kind in list_errors() if kind.sqlstate}


def _with_message(kind: type[PostroomError]) -> Fault:
    return lambda error: kind(error.message)


class translated:  # noqa: N801 - read as a verb; a generator of contextlib costs five times as much per statement
    """Raise Postroom's error for a PostgreSQL error in the table, whichever driver raised it; other errors pass."""

    __slots__ = ()

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if not isinstance(error, Exception) or isinstance(error, PostroomError):
            return
        reported = _find_report(error)
        fault = None if reported is None else _translate(reported)
        if fault is not None:
            raise fault from error


def _translate(reported: _Reported) -> PostroomError | None:
    if reported.constraint in _CHECKS:
        return BadInput.of(*_CHECKS[reported.constraint])
    make = _FAULTS.get(reported.sqlstate) or _by_sqlstate().get(reported.sqlstate)
    return None if make is None else make(reported)


def _find_report(error: BaseException) -> _Reported | None:
    """PostgreSQL's report in an error of asyncpg, psycopg or psycopg2; SQLAlchemy and Django wrap it in their own."""
    found: BaseException | None = error
    while found is not None:
        if isinstance(found, asyncpg.PostgresError):
            return _Reported(found.sqlstate or "", str(found), found.column_name, found.constraint_name)
        diagnostics: Any = getattr(found, "diag", None)
        if getattr(diagnostics, "sqlstate", None):
            message = diagnostics.message_primary
            return _Reported(diagnostics.sqlstate, message, diagnostics.column_name, diagnostics.constraint_name)
        found = found.__cause__
    return None
