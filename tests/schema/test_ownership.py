"""Ownership of tables: only the capability that owns a table writes it, in SQL as in Python.

A capability owns the tables under OWNS in its manual page, and its migration file creates them. Other capabilities call
a function of the owner. The test reads every statement and stored function of the package and fails on a write whose
target is a literal name of a table, view or partition root of another capability; `EXECUTE` of a literal text counts.

A write whose target is a value (`EXECUTE format('… %I', name)`) names no table. Two kinds of work may do that, because
they are the same for every table: partitions (archive, db), where no column is known to the function, and the search
for an address (erasure), whose tables and columns are listed in `erasure/columns.py` and checked against the schema.
delivery erases addresses from detached months of its own table.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

SOURCE = Path(__file__).parents[2] / "src" / "postroom"
MIGRATIONS = SOURCE / "db" / "migrations"

_SKIPPED = re.compile(r"('(?:[^']|'')*')|--[^\n]*|/\*.*?\*/", re.DOTALL)
_CREATED = re.compile(r"CREATE (?:UNLOGGED )?(?:TABLE|VIEW) (?:IF NOT EXISTS )?(\w+)\b(?! PARTITION OF)")
_OWNS = re.compile(r"^OWNS\s.*?(?=^[A-Z]|^$|\Z)", re.MULTILINE | re.DOTALL)
_WRITTEN = re.compile(
    r"""\b(?:
        INSERT\s+INTO\s+(?:\w+\.)?(\w+)
        | UPDATE\s+(?:ONLY\s+)?(?:\w+\.)?(\w+)\s+(?:(?:AS\s+)?\w+\s+)?SET\b
        | DELETE\s+FROM\s+(?:ONLY\s+)?(?:\w+\.)?(\w+)
        | MERGE\s+INTO\s+(?:ONLY\s+)?(?:\w+\.)?(\w+)
        | TRUNCATE\s+(?:TABLE\s+)?(?:ONLY\s+)?(?:\w+\.)?(\w+)
        | COPY\s+(?:\w+\.)?(\w+)[^;]*?\sFROM\b
        | (?:ALTER|DROP)\s+TABLE\s+(?:IF\s+EXISTS\s+)?(?:ONLY\s+)?(?:\w+\.)?(\w+)
    )""",
    re.VERBOSE | re.IGNORECASE,
)


_TARGET_IS_VALUE = re.compile(r"\b(?:INSERT\s+INTO|UPDATE|DELETE\s+FROM|ALTER\s+TABLE|DROP\s+TABLE)\s+(?:\w+\s+)*%")


class Write(NamedTuple):
    file: str
    line: int
    table: str

    @property
    def writer(self) -> str:
        return self.file.partition("/")[0]


def without_comments(sql: str) -> str:
    """The statement without its comments; literals stay, because `EXECUTE` runs them, and lines keep their numbers."""
    return _SKIPPED.sub(lambda found: found[1] or "\n" * found[0].count("\n"), sql)


def writes_of(file: str, sql: str) -> Iterator[Write]:
    text = without_comments(sql)
    for found in _WRITTEN.finditer(text):
        table = next(name for name in found.groups() if name)
        yield Write(file, text.count("\n", 0, found.start()) + 1, table.lower())


def owners() -> dict[str, str]:
    """The capability whose migration file creates each table and view."""
    files = {path: path.stem.split("_")[1] for path in sorted(MIGRATIONS.glob("[0-9]*.sql"))}
    return {name: owner for path, owner in files.items() for name in _CREATED.findall(path.read_text("utf-8"))}


OWNERS = owners()


def foreign_writes() -> list[Write]:
    files = (path for path in SOURCE.rglob("*.sql") if MIGRATIONS not in path.parents)
    texts = ((str(path.relative_to(SOURCE)), path.read_text("utf-8")) for path in files)
    writes = (write for file, sql in texts for write in writes_of(file, sql))
    return sorted(write for write in writes if write.table in OWNERS and write.writer != OWNERS[write.table])


@pytest.mark.parametrize("table, owner", sorted(OWNERS.items()))
def test_the_manual_of_the_owner_names_the_table(table: str, owner: str) -> None:
    """The capability whose migration file creates a table has the table under OWNS."""
    manual = ast.get_docstring(ast.parse((SOURCE / owner / "__init__.py").read_text("utf-8"))) or ""
    assert re.search(rf"\b{table}\b", " ".join(_OWNS.findall(manual)))


def test_only_the_owner_writes_a_table() -> None:
    """No statement or stored function writes a table of another capability."""
    assert [f"{write.file}:{write.line} writes {write.table}" for write in foreign_writes()] == []


def test_only_work_on_every_table_writes_to_a_table_by_value() -> None:
    """No other capability builds the name of a table that it writes."""
    files = (path for path in SOURCE.rglob("*.sql") if MIGRATIONS not in path.parents)
    found = {path.relative_to(SOURCE) for path in files if _TARGET_IS_VALUE.search(path.read_text("utf-8"))}
    own = Path("delivery", "functions", "erase_attempts.sql")
    assert {path.parts[0] for path in found - {own}} <= {"archive", "db", "erasure"}


@pytest.mark.parametrize(
    "sql, table",
    [
        ("INSERT INTO deliveries (id) VALUES (1)", "deliveries"),
        ("UPDATE deliveries AS d SET state = 'sent'", "deliveries"),
        ("update only deliveries set state = 'sent'", "deliveries"),
        ("WITH gone AS (DELETE FROM deliveries RETURNING id) SELECT 1", "deliveries"),
        ("MERGE INTO deliveries USING x ON true", "deliveries"),
        ("TRUNCATE deliveries", "deliveries"),
        ("COPY deliveries (id) FROM STDIN", "deliveries"),
        ("EXECUTE format('DELETE FROM deliveries WHERE id = %L', 1)", "deliveries"),
        ("ALTER TABLE deliveries DETACH PARTITION x", "deliveries"),
    ],
)
def test_writes_are_found(sql: str, table: str) -> None:
    """Each statement that writes is read with its target."""
    assert [write.table for write in writes_of("x/queries.sql", sql)] == [table]


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT 1 FROM deliveries FOR UPDATE OF deliveries SKIP LOCKED",
        "ON CONFLICT (id) DO UPDATE SET state = 'sent'",
        "-- INSERT INTO deliveries\nSELECT 1",
        "/* DELETE FROM deliveries */ SELECT '--'",
        "EXECUTE format('DELETE FROM %I', name)",
    ],
)
def test_reads_are_no_writes(sql: str) -> None:
    """Locks, conflict clauses, comments and names handed in are not writes to a named table."""
    assert [*writes_of("x/queries.sql", sql)] == []
