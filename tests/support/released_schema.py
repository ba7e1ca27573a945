"""The schema of the last release, and the rules for changing it: `./dev schema --release` records it.

Two releases run side by side during an upgrade; `postroom.db.migrate` describes the phases.
"""

import json
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

from postroom.db.migrate import RELEASE, SqlFile, function_files, migration_files

RECORD = Path(__file__).parent.parent / "schema" / "released.json"
_LATER = re.compile(r"\d{4}_[a-z]+_[a-z0-9_]+(\.after)?\.sql")
_FUNCTION = re.compile(r"CREATE OR REPLACE FUNCTION (\w+)\s*\((.*?)\)\s*(?:RETURNS|LANGUAGE)", re.DOTALL)
_BREAKS_OLD_PROCESSES = re.compile(
    r"\bDROP\s+(TABLE|COLUMN|VIEW|FUNCTION|TYPE)\b|\bRENAME\b|\bSET\s+NOT\s+NULL\b"
    r"|\bALTER\s+COLUMN\s+\w+\s+(SET\s+DATA\s+)?TYPE\b",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Schema:
    """The files of one release: checksums by name, and the parameters of each function."""

    release: int
    migrations: Mapping[str, str]
    functions: Mapping[str, str]
    parameters: Mapping[str, str]

    @classmethod
    def of(cls, release: int, migrations: Sequence[SqlFile], functions: Sequence[SqlFile]) -> Self:
        found = {name: " ".join(given.split()) for file in functions for name, given in _FUNCTION.findall(file.text)}
        return cls(release, _checksums(migrations), _checksums(functions), found)

    @classmethod
    def read(cls) -> Self:
        return cls(**json.loads(RECORD.read_text()))


def _checksums(found: Sequence[SqlFile]) -> dict[str, str]:
    return {file.name: file.checksum for file in found}


def problems(released: Schema, release: int, migrations: Sequence[SqlFile], functions: Sequence[SqlFile]) -> list[str]:
    """The rules that the present files break."""
    present = Schema.of(release, migrations, functions)
    new = [file for file in migrations if file.name not in released.migrations]
    return [
        *_number(released, present),
        *_released_files(released, present),
        *_names(released, new),
        *_phases(new),
        *_signatures(released, present, new),
    ]


def _number(released: Schema, present: Schema) -> Iterator[str]:
    is_same = (present.migrations, present.functions) == (released.migrations, released.functions)
    wanted = released.release if is_same else released.release + 1
    if present.release != wanted:
        change = "has not changed" if is_same else "has changed"
        yield f"RELEASE is {present.release}; the schema {change} since release {released.release}: set it to {wanted}"


def _released_files(released: Schema, present: Schema) -> Iterator[str]:
    for name, checksum in released.migrations.items():
        if present.migrations.get(name) != checksum:
            yield f"{name} belongs to release {released.release} and was changed or removed: add a new file instead"


def _names(released: Schema, new: Sequence[SqlFile]) -> Iterator[str]:
    last = max(int(name[:4]) for name in released.migrations)
    for number, file in enumerate(new, last + 1):
        if not _LATER.fullmatch(file.name) or file.version != number:
            yield f"{file.name}: name it {number:04}_<capability>_<change>.sql, or .after.sql for the second phase"


def _phases(new: Sequence[SqlFile]) -> Iterator[str]:
    last = max((file.version for file in new if not file.is_after), default=0)
    for file in new:
        if file.is_after and file.version < last:
            yield f"{file.name}: files of the first phase of a release have the lower numbers"
        found = None if file.is_after else _BREAKS_OLD_PROCESSES.search(file.text)
        if found is not None:
            yield f"{file.name}: {found[0]} breaks processes of the previous release; move it to an .after.sql file"


def _signatures(released: Schema, present: Schema, new: Sequence[SqlFile]) -> Iterator[str]:
    """A function with other parameters is a second one; processes of the previous release call the first."""
    second_phase = "\n".join(file.text for file in new if file.is_after)
    for name, parameters in released.parameters.items():
        is_dropped_later = re.search(rf"\bDROP FUNCTION (IF EXISTS )?{name}\b", second_phase) is not None
        if present.parameters.get(name) != parameters and not is_dropped_later:
            yield f"{name}: its parameters changed or it is gone; drop the released one in an .after.sql file"


def main() -> None:
    """Record the present schema as released."""
    made = Schema.of(RELEASE, migration_files(), function_files())
    RECORD.write_text(json.dumps(asdict(made), indent=1, sort_keys=True) + "\n")
    sys.stdout.write(f"recorded release {RELEASE} in {RECORD.name}\n")


if __name__ == "__main__":
    main()
