"""The loader of named statements."""

import asyncpg
import pytest

from postroom.db import queries
from postroom.db.pool import Pool
from postroom.db.queries import Statement

TEXT = """
-- A file may begin with remarks.

-- name: find_thing :maybe
-- One thing
-- by its id.
SELECT name::text, ':quoted' AS literal FROM @room.things WHERE id = :id AND (:name::text IS NULL OR id <> :id);

-- name: touch :exec
-- Nothing but a touch.
UPDATE things SET n = n + 1;
"""

CALL = """
-- name: make :one
-- One thing.
SELECT @room.make(
    p_name => :name::text,
    p_colour => :colour::text,
    p_size => :size
) AS id;
"""


def test_a_block_becomes_a_statement() -> None:
    """Parameters are numbered by first appearance; casts and comments are unchanged."""
    find, touch = queries._parse(TEXT.replace("':quoted'", "'quoted'"))
    assert (find.name, find.kind, find.purpose) == ("find_thing", "maybe", "One thing by its id.")
    assert find.parameters == ("id", "name")
    assert "id = $1 AND ($2::text IS NULL OR id <> $1)" in find.sql
    assert "name::text" in find.sql
    assert (touch.parameters, touch.sql) == ((), "UPDATE things SET n = n + 1")


def test_room_prefix_is_used_on_other_connections_only() -> None:
    """`@room.` is removed on our own connections and the quoted schema on others, which pass only given arguments."""
    call = next(queries._parse(CALL))
    statement = queries._call_in_room(call, 'odd"name', ("name", "size"))
    assert statement.sql == 'SELECT "odd""name".make(p_name => $1::text, p_size => $2) AS id'
    assert statement.parameters == ("name", "size")
    assert "@room" not in queries.load("postroom.delivery")["send"].sql


async def test_statement_called_as_another_kind_raises(pool: Pool) -> None:
    """The declared kind is checked."""
    statement = Statement("one", "one", "", "SELECT 1 AS n", ())
    with pytest.raises(TypeError, match="is :one, called as :many"):
        await statement.many(pool)
    with pytest.raises(TypeError, match="takes"):
        await statement.one(pool, surplus=1)


async def test_one_requires_a_row(pool: Pool) -> None:
    """Without a row `:one` raises, and `:maybe` returns None."""
    with pytest.raises(LookupError):
        await Statement("none", "one", "", "SELECT 1 WHERE false", ()).one(pool)
    assert await Statement("none", "maybe", "", "SELECT 1 WHERE false", ()).maybe(pool) is None


async def test_exec_counts_rows(pool: Pool) -> None:
    """`:exec` returns the number of changed rows."""
    insert = Statement(
        "add", "exec", "", "INSERT INTO workers (pid, host) SELECT 1, 'h' FROM generate_series(1, 3)", ()
    )
    assert await insert.exec(pool) == 3


async def test_database_error_is_not_hidden(pool: Pool) -> None:
    """The loader raises the driver's error."""
    with pytest.raises(asyncpg.UndefinedTableError):
        await Statement("lost", "many", "", "SELECT 1 FROM nowhere", ()).many(pool)
