"""Usage at the command line: readable types in `--help`, and one sentence about a wrong argument, with exit code 2."""

import re
import sys
from collections.abc import Callable
from typing import Any

from typer.exceptions import TyperException

WRONG_USAGE = 2  # exit code of usage errors, as in most Unix programs
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
        return WRONG_USAGE
    sentence = plain(error.format_message())
    hint = f" See `{context.command_path} --help`." if context is not None else ""
    sys.stderr.write(f"postroom: {sentence}{'' if sentence.endswith(('.', '?')) else '.'}{hint}\n")
    return WRONG_USAGE


def plain(message: str) -> str:
    for found, ours in _PLAIN:
        message = found.sub(ours, message)
    return " ".join(message.split())
