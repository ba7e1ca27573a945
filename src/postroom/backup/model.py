"""Models of backups. Pure."""

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True)
class TableCount:
    """The number of rows of one table, and a checksum of their values."""

    name: str
    rows: int
    fingerprint: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BackupManifest:
    """The manifest of a backup, stored beside it."""

    room: str
    made_at: datetime
    server: str  # version of the PostgreSQL server
    migration: str  # the last migration of the room
    bytes: int
    sha256: str
    tables: tuple[TableCount, ...]

    @property
    def rows(self) -> int:
        return sum(table.rows for table in self.tables)


def differences(expected: tuple[TableCount, ...], found: tuple[TableCount, ...]) -> list[str]:
    """Sentences about the tables that differ."""
    there = {table.name: table for table in found}
    different = []
    for table in expected:
        other = there.get(table.name)
        if other is None:
            different.append(f"{table.name} is missing")
        elif other.rows != table.rows:
            different.append(f"{table.name} has {other.rows} rows instead of {table.rows}")
        elif other.fingerprint != table.fingerprint:
            different.append(f"{table.name} has different values")
    return different
