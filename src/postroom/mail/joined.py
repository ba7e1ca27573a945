"""Template parts whose only tags are plain variables: rendered by joining strings instead of by the engine. Pure.

Most letters are like that, and joining takes half of the engine's time. It also gives a promise that the engine
cannot give without a scan of the result: a value that is one line of words separated by single spaces changes nothing
about the spaces of the text around it. If the text has its canonical form with such values, every rendered part has it,
and DKIM need not normalise the part. The same holds for lines that start with a dot, which SMTP would have to stuff.

Anything else is left to the engine: other tags, missing variables, and values that are not such a line of text.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from html import escape
from typing import Any

from postroom.runtime.template_tags import tag_spans

_VARIABLE = re.compile(r"\{\{\s*([A-Za-z_][A-Za-z0-9_]*)\s*\}\}")
_NOT_NAMES = frozenset(
    {"true", "false", "none", "loop", "self", "super", "caller"}
)  # they mean something to the engine
_NOT_CANONICAL = re.compile(r"\t|  | (?:[\r\n]|\Z)|(?:\A|[\r\n])\.")
"""Text that relaxed canonicalisation changes (RFC 6376, 3.4.4), or a line that SMTP must stuff."""
_SPECIAL = re.compile("[&<>\"']").search


@dataclass(frozen=True, slots=True)
class JoinedPart:
    """A part as literals with a variable between each two of them."""

    pieces: tuple[str, ...]  # the literals, and the name of a variable after each but the last
    names: tuple[str, ...]
    html: bool
    is_canonical: bool

    @classmethod
    def parse(cls, source: str, *, html: bool) -> "JoinedPart | None":
        """None if the part needs the engine."""
        pieces: list[str] = []
        at = 0
        for start, end in tag_spans(source):
            variable = _VARIABLE.fullmatch(source, start, end)
            if variable is None or variable[1].lower() in _NOT_NAMES:
                return None
            pieces += (source[at:start], variable[1])
            at = end
        pieces.append(source[at:].removesuffix("\n").removesuffix("\r"))  # as the engine does
        canonical = _NOT_CANONICAL.search("x".join(pieces[::2])) is None
        return cls(tuple(pieces), tuple(pieces[1::2]), html, canonical)

    def render(self, lines: Mapping[str, str]) -> str | None:
        """The rendered part, from the values that `lines_of` returned; None if another value needs the engine."""
        try:
            values = [lines[name] for name in self.names]
        except KeyError:
            return None
        if self.html and _SPECIAL("".join(values)):
            values = list(map(escape, values))
        pieces = list(self.pieces)
        pieces[1::2] = values
        return "".join(pieces)


def lines_of(values: Mapping[str, Any]) -> dict[str, str]:
    """The values that can be joined, checked once for all parts of a message."""
    return {name: value for name, value in values.items() if type(value) is str and is_line(value)}


def is_line(value: str) -> bool:
    """True for printable text without a dot or a space at its start, a space at its end or two spaces in a row."""
    return value.isprintable() and bool(value) and value[0] not in " ." and value[-1] != " " and "  " not in value
