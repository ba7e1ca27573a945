"""Convert errors to one sentence and an exit code, by one table.

With `--json` the sentence is a JSON object with the code and the wrong fields, on standard error as well.
"""

import json
import os
import sys
from collections.abc import Iterator, Sequence

from postroom.errors import BadInput, FieldError, PostroomError

DONE, REFUSED, USAGE, INTERRUPTED = 0, 1, 2, 130  # 2 as in getopt, 130 = 128 + SIGINT as in a shell

EXIT_CODES: dict[type[BaseException], int] = {
    PostroomError: REFUSED,
    BrokenPipeError: REFUSED,  # the reader of the output closed the pipe, as `| head` does
    KeyboardInterrupt: INTERRUPTED,
}
"""An error ends with the code of its nearest class here; wrong usage is typer's to report, with 2."""


def exit_code(error: BaseException) -> int:
    return next((EXIT_CODES[kind] for kind in type(error).__mro__ if kind in EXIT_CODES), REFUSED)


def report(error: Exception) -> int:
    """Say in one sentence what went wrong; returns the exit code. A bug of ours is raised again, with its trace."""
    causes = list(_causes(error))
    known = next((cause for cause in causes if isinstance(cause, PostroomError)), None)
    if known is not None:
        _complain(known.message, code=known.code, errors=known.errors if isinstance(known, BadInput) else ())
        return exit_code(known)
    if any(isinstance(cause, BrokenPipeError) for cause in causes):
        # Python would complain again when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return exit_code(BrokenPipeError())
    file_trouble = next((cause for cause in causes if isinstance(cause, OSError) and cause.filename is not None), None)
    if isinstance(file_trouble, FileNotFoundError):
        _complain(f"{os.fsdecode(file_trouble.filename)} does not exist.")
        return USAGE
    if file_trouble is not None:
        _complain(f"{os.fsdecode(file_trouble.filename)}: {file_trouble.strerror}")
        return REFUSED
    if all(_is_connection_lost(cause) for cause in causes):
        _complain(f"The database went away: {causes[0]}")
        return REFUSED
    raise error


def _complain(sentence: str, *, code: str = "failed", errors: Sequence[FieldError] = ()) -> None:
    if "--json" not in sys.argv:
        sys.stderr.write(f"postroom: {sentence}\n")
        return
    fields = [{"field": error.field, "message": error.message} for error in errors]
    sys.stderr.write(json.dumps({"code": code, "detail": sentence, "errors": fields}) + "\n")


def _causes(error: BaseException) -> Iterator[BaseException]:
    """The errors themselves, out of the groups that tasks put them in."""
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from _causes(inner)
    else:
        yield error


def _is_connection_lost(error: BaseException) -> bool:
    if "asyncpg" not in sys.modules:  # no driver was loaded, so it cannot be its error
        return False
    from postroom.db.faults import is_connection_lost

    return is_connection_lost(error)
