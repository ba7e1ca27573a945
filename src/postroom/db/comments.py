r"""Descriptions of tables, views, columns and functions for COMMENT ON: `\d+` and `\df+` in psql show them.

The comment above CREATE TABLE or CREATE VIEW describes the relation, the comment behind a column that column, the first
comment of a function's file the function. `columns.txt` describes columns with one meaning in every table, a line each:
`name: text`.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib.resources import files

_STATEMENT = re.compile(r"CREATE (?:UNLOGGED )?(?:TABLE|VIEW) (\w+)|ALTER TABLE (\w+)")
_COLUMN = re.compile(r"    (?!CONSTRAINT|PRIMARY|CHECK|UNIQUE|FOREIGN|ADD|ALTER|DROP)(\w+) +\S")
_ADDED = re.compile(r"\bADD COLUMN (\w+)")
_FUNCTION = re.compile(r"^CREATE (?:OR REPLACE )?FUNCTION (\w+)", re.MULTILINE)
_RULE = re.compile(r"── .* ─+$")


@dataclass(frozen=True, slots=True)
class Comments:
    """Texts by object name; columns as `table.column`, or alone if all columns of the name have one meaning."""

    relations: Mapping[str, str]
    columns: Mapping[str, str]
    functions: Mapping[str, str]


def read_comments(migrations: Iterable[str], functions: Iterable[str]) -> Comments:
    """The comments of these SQL files, and of `columns.txt`."""
    relations = {
        "migrations": "The files of SQL that were applied to the room."
    }  # created by the migrator, not by a migration
    columns = _shared_columns()
    for text in migrations:
        for relation, column, comment in _described(text):
            if column is None:
                relations[relation] = comment
            else:
                columns[f"{relation}.{column}"] = comment
    described = {name: comment for text in functions for name, comment in _described_functions(text)}
    return Comments(relations, columns, described)


def _shared_columns() -> dict[str, str]:
    lines = files("postroom.db").joinpath("columns.txt").read_text("utf-8").splitlines()
    return {
        name: text for name, _, text in (line.partition(": ") for line in lines if not line.startswith("#")) if text
    }


def _described(text: str) -> Iterator[tuple[str, str | None, str]]:
    """Relation, column or None, and the comment above or behind it."""
    above: list[str] = []
    relation = ""
    for line in text.splitlines():
        if line.startswith("-- "):
            above = [] if _RULE.search(line) else [*above, line[3:]]
            continue
        if (found := _STATEMENT.match(line)) is not None:
            relation = found[1] or found[2]
            if found[1] and above:
                yield relation, None, _sentence(above)
        if relation and (column := _column(line, above)) is not None:
            yield relation, *column
        if line.endswith(";"):
            relation = ""
        if not (found and found[2]):
            above = []


def _column(line: str, above: list[str]) -> tuple[str, str] | None:
    """The column that a line describes: by a comment behind it or, for ADD COLUMN, above the statement."""
    code, _, behind = line.partition(" -- ")
    found = _ADDED.search(code) or _COLUMN.match(code)
    comment = [behind] if behind else above
    return (found[1], _sentence(comment)) if found and comment else None


def _described_functions(text: str) -> Iterator[tuple[str, str]]:
    """The functions of a file, with its first paragraph."""
    opening: list[str] = []
    for line in text.splitlines():
        if not line.startswith("-- "):
            break
        opening.append(line[3:])
    for found in _FUNCTION.finditer(text):
        if opening:
            yield found[1], _sentence(opening)


def _sentence(lines: list[str]) -> str:
    text = " ".join(line.strip() for line in lines)
    is_word = text.partition(" ")[0].isalpha()  # not key=value or delivery.cancel
    return (text[:1].upper() + text[1:] if is_word else text) + ("" if text.endswith((".", ":", "!", "?")) else ".")
