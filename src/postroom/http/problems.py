"""Convert errors to problem documents (RFC 9457) by one table.

    {"type": "urn:postroom:problem:<code>", "title", "status", "detail", "code", "errors": [{"field", "message"}]}

An error that is not in the table is a bug: 500 without its cause, which goes to the log.
"""

from collections.abc import Sequence
from http import HTTPStatus

import asyncpg
import msgspec

from postroom.db.errors import DatabaseError
from postroom.db.faults import INTERRUPTIONS, is_connection_lost
from postroom.errors import (
    AccessError,
    BadInput,
    ConflictError,
    FieldError,
    GoneError,
    InputError,
    LimitError,
    NotFoundError,
    PostroomError,
    ScopeMissing,
    Unauthenticated,
)
from postroom.events.errors import EventsBusy
from postroom.rooms.errors import RoomNotReady
from postroom.runtime.endpoint import PROBLEM, Answer, Problem, ProblemField, ProtocolError

MOVING = "moving"  # the constraint name of errors of `refuse_while_moving`

# A refusal quotes what it refuses, but not megabytes of it.
LONGEST_DETAIL = 1000
LONGEST_FIELD = 200  # a client may send names of any length
MOST_ERRORS = 100  # bounds the response to a batch in which every item is invalid

STATUS: dict[type[PostroomError], HTTPStatus] = {
    InputError: HTTPStatus.BAD_REQUEST,
    Unauthenticated: HTTPStatus.UNAUTHORIZED,
    AccessError: HTTPStatus.FORBIDDEN,
    NotFoundError: HTTPStatus.NOT_FOUND,
    ConflictError: HTTPStatus.CONFLICT,
    GoneError: HTTPStatus.GONE,
    LimitError: HTTPStatus.TOO_MANY_REQUESTS,
    DatabaseError: HTTPStatus.SERVICE_UNAVAILABLE,
    EventsBusy: HTTPStatus.SERVICE_UNAVAILABLE,
}
"""An error answers with the status of its nearest class here."""


def answer_to(error: BaseException) -> Answer | None:
    """The answer to an error that the table knows; None for one that is our fault."""
    if isinstance(error, ProtocolError):
        return problem(error.status, error.detail, errors=error.errors, headers=error.headers)
    if isinstance(error, PostroomError):
        return _known(error)
    if isinstance(error, RecursionError):
        return _known(BadInput.of("body", "is nested too deeply"))
    if isinstance(error, asyncpg.DataError) and not is_connection_lost(error):
        return _known(BadInput.of("request", "holds a value that cannot be stored"))
    return _of_database(error)


def _of_database(error: BaseException) -> Answer | None:
    """503 while the database cannot finish requests; None for an error that will not pass."""
    if is_connection_lost(error):
        return problem(HTTPStatus.SERVICE_UNAVAILABLE, "The database does not answer.", code="database_unreachable")
    if isinstance(error, asyncpg.ReadOnlySQLTransactionError) and error.constraint_name == MOVING:
        return _known(RoomNotReady(f"{error.args[0]} {error.hint}"))
    if isinstance(error, INTERRUPTIONS):  # a deadlock with another request, a full disk, a server that became read-only
        detail = "The database could not finish this request. It was rolled back; try again."
        return problem(HTTPStatus.SERVICE_UNAVAILABLE, detail, headers={"retry-after": "1"})
    return None


def our_fault() -> Answer:
    """The response to a bug."""
    return problem(HTTPStatus.INTERNAL_SERVER_ERROR, "Something went wrong here. The request can be tried again.")


def problem(
    status: HTTPStatus,
    detail: str,
    *,
    code: str | None = None,
    errors: Sequence[FieldError] = (),
    headers: dict[str, str] | None = None,
    scope: str | msgspec.UnsetType = msgspec.UNSET,
) -> Answer:
    named = errors[:MOST_ERRORS]
    slug = code or status.phrase.lower().replace(" ", "_").replace("-", "_")
    value = Problem(
        type=f"urn:postroom:problem:{slug}",
        title=status.phrase,
        status=int(status),
        detail=_short(detail, LONGEST_DETAIL),
        code=slug,
        errors=[ProblemField(_short(e.field, LONGEST_FIELD), _short(e.message, LONGEST_DETAIL)) for e in named],
        scope=scope,
    )
    return Answer(value, int(status), PROBLEM, headers or {})


def _short(text: str, longest: int) -> str:
    return text if len(text) <= longest else text[: longest - 1] + "…"


def _known(error: PostroomError) -> Answer | None:
    status = next((STATUS[kind] for kind in type(error).__mro__ if kind in STATUS), None)
    if status is None:
        return None
    headers = {"www-authenticate": 'Bearer realm="postroom"'} if status is HTTPStatus.UNAUTHORIZED else {}
    if error.retry_after_s is not None:
        headers["retry-after"] = str(error.retry_after_s)
    # Details such as the database address go to the log; a room that is not ready has none.
    is_secret = isinstance(error, DatabaseError) and not isinstance(error, RoomNotReady)
    detail = "The database is not ready." if is_secret else error.message
    scope = error.scope if isinstance(error, ScopeMissing) else msgspec.UNSET
    return problem(status, detail, code=error.code, errors=error.errors, headers=headers, scope=scope)
