"""What a backup says of itself. Pure."""

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True)
class TableCount:
    """One table: how many rows, and a number that changes with any value in them."""

    name: str
    rows: int
    fingerprint: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BackupManifest:
    """What stands beside a backup, in a file of its own."""

    room: str
    made_at: datetime
    server: str  # the version of PostgreSQL it was made from
    migration: str  # the last migration of the room
    bytes: int
    sha256: str
    tables: tuple[TableCount, ...]

    @property
    def rows(self) -> int:
        return sum(table.rows for table in self.tables)


def differences(expected: tuple[TableCount, ...], found: tuple[TableCount, ...]) -> list[str]:
    """The tables that are not the same, by name, in words."""
    there = {table.name: table for table in found}
    told = []
    for table in expected:
        other = there.get(table.name)
        if other is None:
            told.append(f"{table.name} is missing")
        elif other.rows != table.rows:
            told.append(f"{table.name} has {other.rows} rows and not {table.rows}")
        elif other.fingerprint != table.fingerprint:
            told.append(f"{table.name} has other values")
    return told
