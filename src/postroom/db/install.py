"""A room as one SQL file, for installation by psql or by another migration tool.

The script creates the schema, applies every migration and function file in one transaction and records them, so that
`postroom migrate` finds the room up to date. `EVENT_STORE` installs the event store alone, into a schema that has
nothing else of Postroom; `postroom migrate` adds the rest later. `seed_names_script` makes a schema of views beside it.
"""

from collections.abc import Sequence
from importlib.metadata import version
from importlib.resources import files

from postroom.db.migrate import RELEASE, SqlFile, comment_texts, function_files, migration_files
from postroom.db.pool import quote_identifier
from postroom.db.queries import load

EVENT_STORE = ("db", "events")
"""The capabilities that the event store needs; their partition functions are included and not called."""

_QUERIES = load("postroom.db")


def room_script(room: str, *, only: Sequence[str] = ()) -> str:
    """The SQL that creates a room, or the tables of some capabilities."""
    migrations = [file for file in migration_files() if not only or file.capability in only]
    functions = [file for file in function_files() if not only or file.name.partition("/")[0] in only]
    name = quote_identifier(room)
    return "\n".join(
        [
            f"-- Postroom {version('postroom')}: {'the event store' if only else 'a room'}. Install it with",
            "-- psql --set ON_ERROR_STOP=1 --file this-file.sql; the schema must not have these tables yet.",
            "BEGIN;",
            f"CREATE SCHEMA IF NOT EXISTS {name};",
            f"SET LOCAL search_path = {name};",
            "SET LOCAL timezone = 'UTC';",
            _QUERIES["create_migrations_table"].sql.rstrip(";\n") + ";",
            *(_applied(file) for file in migrations),
            f"SET LOCAL search_path = {name}, pg_temp; -- a caller's temporary table must not shadow one of ours",
            *(_applied(file) for file in functions),
            "SELECT close_functions();",
            _described(migrations, functions),
            "COMMIT;\n",
        ]
    )


def seed_names_script(room: str) -> str:
    """The SQL that creates the schema `<room>_seed_names`: views under the names of the documents behind Postroom."""
    text = files("postroom.db").joinpath("seed_names.sql").read_text("utf-8")
    names = {"@names": quote_identifier(f"{room}_seed_names"), "@room": quote_identifier(room)}
    for placeholder, name in names.items():
        text = text.replace(placeholder, name)
    return text


def _applied(file: SqlFile) -> str:
    """The text of a file, and the statement that records it as applied."""
    values = f"({_literal(file.name)}, {_literal(file.checksum)}, {RELEASE})"
    record = f"INSERT INTO migrations (name, checksum, release) VALUES {values};"  # noqa: S608 - quoted, and from our own files
    return f"\n-- {file.name}\n{file.text.rstrip()}\n{record}"


def _described(migrations: Sequence[SqlFile], functions: Sequence[SqlFile]) -> str:
    texts = comment_texts(migrations, functions)
    given = ", ".join(_literal(texts[name]) for name in ("relations", "columns", "functions"))
    return f"SELECT describe_room({given});"


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
