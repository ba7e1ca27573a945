"""Comments in the database: psql explains every table, view, index, column and function."""

from postroom.db.comments import read_comments
from postroom.db.migrate import function_files, migration_files
from postroom.db.pool import Pool

RELATIONS = """
    SELECT relname AS name, obj_description(oid, 'pg_class') AS comment FROM pg_class
    WHERE relnamespace = 'postroom'::regnamespace AND relkind IN ('r', 'p', 'v') AND NOT relispartition
"""
INDEXES = """
    SELECT relname AS name, obj_description(oid, 'pg_class') AS comment FROM pg_class
    WHERE relnamespace = 'postroom'::regnamespace AND relkind IN ('i', 'I') AND NOT relispartition
"""
COLUMNS = """
    SELECT c.relname || '.' || a.attname AS name, col_description(c.oid, a.attnum) AS comment FROM pg_class AS c
    JOIN pg_attribute AS a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
    WHERE c.relnamespace = 'postroom'::regnamespace AND c.relkind IN ('r', 'p', 'v') AND NOT c.relispartition
"""
FUNCTIONS = """
    SELECT proname AS name, obj_description(oid, 'pg_proc') AS comment FROM pg_proc
    WHERE pronamespace = 'postroom'::regnamespace
"""


async def test_everything_in_a_room_has_a_comment(pool: Pool) -> None:
    """A new object needs a comment in its migration or its function file, a shared column a line in columns.txt."""
    for sql in (RELATIONS, INDEXES, COLUMNS, FUNCTIONS):
        rows = await pool.fetch(sql)
        assert len(rows) > 50
        assert [row["name"] for row in rows if not row["comment"]] == []


async def test_shared_column_comments_are_all_used(pool: Pool) -> None:
    """Every line of columns.txt describes a column that has no comment of its own."""
    comments = read_comments([file.text for file in migration_files()], [file.text for file in function_files()])
    columns = [row["name"] for row in await pool.fetch(COLUMNS)]
    used = {name.partition(".")[2] for name in columns if name not in comments.columns}
    assert sorted(name for name in comments.columns if "." not in name and name not in used) == []
    assert sorted(name for name in comments.columns if "." in name and name not in columns) == []


async def test_column_comment_precedes_the_shared_text(pool: Pool) -> None:
    """The comment in the migration is used; without one, the shared text of the column name."""
    comments = {row["name"]: row["comment"] for row in await pool.fetch(COLUMNS)}
    assert comments["events.tags"] == "key=value."
    assert comments["deliveries.tags"] == "Tags of the caller."


def test_a_comment_above_alter_table_describes_the_column_it_adds() -> None:
    """A later migration describes a column above its statement or behind the column, and never its table."""
    later = """
-- The colour of the envelope.
ALTER TABLE deliveries ADD COLUMN colour text;

-- Not a description of the table.
ALTER TABLE deliveries
    ADD COLUMN weight integer, -- in grams
    ADD CONSTRAINT deliveries_weight CHECK (weight > 0);
"""
    comments = read_comments([later], [])
    assert comments.columns["deliveries.colour"] == "The colour of the envelope."
    assert comments.columns["deliveries.weight"] == "In grams."
    assert "deliveries" not in comments.relations


def test_every_setting_of_a_function_has_its_reason() -> None:
    """A function that changes a setting says why on the same line; `search_path` is the same everywhere."""
    clauses = [
        f"{file.name}: {line}"
        for file in function_files()
        for line in file.text.partition("AS $$")[0].splitlines()
        if line.startswith("SET ") and "search_path" not in line
    ]
    assert len(clauses) > 50
    assert [clause for clause in clauses if " -- " not in clause] == []


async def test_index_comment_names_its_queries(pool: Pool) -> None:
    """The comment above an index or behind it; a group of indexes shares one; a constraint describes its own index."""
    comments = {row["name"]: row["comment"] for row in await pool.fetch(INDEXES)}
    assert comments["audit_log_actor_idx"] == comments["audit_log_subject_idx"] == "list_audit: one for each filter."
    assert comments["deliveries_resend_idx"] == "list_standings."
    assert comments["deliveries_domain_idx"] == "delivery_ids_by: see deliveries_source_idx."
    assert comments["suppressions_pkey"] == "PRIMARY KEY (address, scope) of suppressions."
