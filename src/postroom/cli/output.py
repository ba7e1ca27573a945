"""Convert errors to one sentence and an exit code, by one table; and readable types in `--help`.

With `--json` the sentence is a JSON object with the code and the wrong fields, on standard error as well.
"""

import json
import os
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from typer.exceptions import TyperException

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


# ── usage ───────────────────────────────────────────────────────────────────────────────────────────────────────────

HELP_OPTIONS = ["-h", "--help"]

_PLAIN = (
    (re.compile(r"^Invalid value(?: for '?(?P<name>.+?)'?)?: (?P<words>.*)$", re.DOTALL), r"\g<name>: \g<words>"),
    (re.compile(r"Value error, "), ""),
    (re.compile(r"Input should be a valid integer.*"), "must be a whole number"),
    (re.compile(r"Input should be a valid number.*"), "must be a number"),
    (re.compile(r"Input should be greater than or equal to (\S+)"), r"must be at least \1"),
    (re.compile(r"Input should be less than or equal to (\S+)"), r"must be at most \1"),
    (re.compile(r"Input should be "), "must be "),
    (re.compile(r"[Ff]ile '([^']+)' does not exist"), r"\1 does not exist"),
    (re.compile(r"' / '"), " / "),
    (re.compile(r"^: "), ""),
)
"""The words of the libraries that parse arguments, and ours."""

_LABELS = {"str": "TEXT", "int": "NUMBER", "float": "NUMBER", "Path": "FILE", "path": "FILE", "file": "FILE"}


def readable_types(command: Any) -> None:
    """Name the types of options and arguments as people do: TEXT, NUMBER, FILE, or the choices; a flag has no type."""
    for inner in getattr(command, "commands", {}).values():
        readable_types(inner)
    # typer creates --help when it first needs it and keeps it.
    of_help = command.get_help_option(command.context_class(command, help_option_names=HELP_OPTIONS))
    for option in (*command.params, of_help):
        if option.param_type_name == "argument":
            option.display_type_rich = _constant(_label(option))  # a metavar would replace the name
        elif option.metavar is None:
            option.metavar = "" if option.is_flag else _label(option)


def _constant(text: str) -> Callable[..., str]:
    return lambda *_given, **_named: text


def _label(option: Any) -> str:
    kind = option.type_descriptor
    if kind.is_choice:
        return "|".join(str(getattr(choice, "value", choice)) for choice in kind.choices)
    name = re.sub(r"^list\[(.*)\]$", r"\1", option.bare_type())
    return _LABELS.get(name, "TEXT")


def report_usage(error: TyperException) -> int:
    """Say in one sentence which argument is wrong and how; returns the exit code."""
    context = getattr(error, "ctx", None)
    if type(error).__name__ == "NoArgsIsHelpError":  # a group without a command: its help is the answer
        sys.stdout.write(error.format_message() + "\n")
        return USAGE
    sentence = plain(error.format_message())
    hint = f" See `{context.command_path} --help`." if context is not None else ""
    sys.stderr.write(f"postroom: {sentence}{'' if sentence.endswith(('.', '?')) else '.'}{hint}\n")
    return USAGE


def plain(message: str) -> str:
    for found, ours in _PLAIN:
        message = found.sub(ours, message)
    return " ".join(message.split())
