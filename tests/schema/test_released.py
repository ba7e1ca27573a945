"""A release may change the schema only in ways that the previous release survives. No database."""

import pytest
from tests.support.released_schema import Schema, problems

from postroom.db.migrate import RELEASE, SqlFile, function_files, migration_files

FIRST = SqlFile("0001_delivery.sql", "CREATE TABLE workers (host text);")
WAKE = "CREATE OR REPLACE FUNCTION wake(p_lanes text[]) RETURNS void LANGUAGE sql AS $$ SELECT 1 $$;"
FUNCTION = SqlFile("delivery/wake.sql", WAKE)
RELEASED = Schema.of(1, [FIRST], [FUNCTION])
ADDED = SqlFile("0002_delivery_hostname.sql", "ALTER TABLE workers ADD COLUMN hostname text;")
REMOVED = SqlFile(
    "0003_delivery_hostname.after.sql", "ALTER TABLE workers DROP COLUMN host; DROP FUNCTION wake(text[]);"
)
CHANGED = SqlFile(FUNCTION.name, WAKE.replace("(p_lanes text[])", "(p_lanes text[], p_cause text)"))


def test_the_present_schema_follows_the_rules() -> None:
    """Fails when a released migration is edited, RELEASE is forgotten, or a file has the wrong number or phase."""
    assert problems(Schema.read(), RELEASE, migration_files(), function_files()) == []


def test_parameters_of_all_functions_are_found() -> None:
    """A function whose parameters the record lacks could change unnoticed."""
    count = sum(file.text.count("CREATE OR REPLACE FUNCTION") for file in function_files())
    assert len(Schema.of(1, migration_files(), function_files()).parameters) == count


@pytest.mark.parametrize(
    "release, migrations, functions",
    [
        (1, [FIRST], [FUNCTION]),
        (2, [FIRST, ADDED], [FUNCTION]),
        (2, [FIRST, ADDED, REMOVED], [CHANGED]),
        (2, [FIRST], [SqlFile(FUNCTION.name, WAKE.replace("SELECT 1", "SELECT 2"))]),
    ],
)
def test_changes_that_two_releases_survive(release: int, migrations: list[SqlFile], functions: list[SqlFile]) -> None:
    """Tables, columns and functions are added first, and removed in the second phase."""
    assert problems(RELEASED, release, migrations, functions) == []


@pytest.mark.parametrize(
    "release, migrations, functions, problem",
    [
        (1, [FIRST, ADDED], [FUNCTION], "set it to 2"),
        (2, [FIRST], [FUNCTION], "set it to 1"),
        (3, [FIRST, ADDED], [FUNCTION], "set it to 2"),
        (2, [SqlFile(FIRST.name, "")], [FUNCTION], "add a new file instead"),
        (2, [ADDED], [FUNCTION], "add a new file instead"),
        (2, [FIRST, SqlFile("0002_delivery.sql", "")], [FUNCTION], "name it 0002_"),
        (2, [FIRST, REMOVED], [FUNCTION], "name it 0002_"),
        (2, [FIRST, SqlFile("0002_delivery_x.sql", "DROP TABLE workers;")], [FUNCTION], "DROP TABLE breaks"),
        (2, [FIRST, SqlFile("0002_delivery_x.sql", "ALTER TABLE w RENAME a TO b;")], [FUNCTION], "RENAME breaks"),
        (2, [FIRST, ADDED], [CHANGED], "wake: its parameters changed"),
        (2, [FIRST, ADDED], [], "wake: its parameters changed"),
        (
            2,
            [FIRST, SqlFile("0002_delivery_x.after.sql", ""), SqlFile("0003_delivery_y.sql", "")],
            [FUNCTION],
            "first phase of a release have the lower numbers",
        ),
    ],
)
def test_changes_that_break_the_previous_release(
    release: int, migrations: list[SqlFile], functions: list[SqlFile], problem: str
) -> None:
    """Each rule has its message, which says how to follow it."""
    found = problems(RELEASED, release, migrations, functions)
    assert len(found) == 1
    assert problem in found[0]
