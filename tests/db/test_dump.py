"""The committed schema: generated from the migrations, the same with every version of PostgreSQL."""

from tests.conftest import postgres_major
from tests.support.schema_dump import HEADER, SCHEMA_FILE, dump_schema, normalised

DUMP = r"""--
-- PostgreSQL database dump
--

\restrict abc

-- Dumped from database version 18.4

SET statement_timeout = 0;
SELECT pg_catalog.set_config('search_path', '', false);

CREATE SCHEMA room;


CREATE FUNCTION room.f() RETURNS void
    LANGUAGE plpgsql
    AS $$
-- ours
SET x = 1;


PERFORM room.g();
$$;


CREATE TABLE room.t (
    id bigint CONSTRAINT t_id_not_null NOT NULL,
    kind room.k NOT NULL
);

\unrestrict abc
"""


def test_dump_contains_only_the_schema() -> None:
    """pg_dump's remarks and the schema name are removed, NOT NULL has one form; function bodies are left out."""
    assert normalised(DUMP, "room") == HEADER + (
        "\nCREATE FUNCTION f() RETURNS void\n    LANGUAGE plpgsql\n"
        "    AS $$…$$;\n\n"
        "CREATE TABLE t (\n    id bigint NOT NULL,\n    kind k NOT NULL\n);\n"
    )


async def test_a_real_room_is_dumped(database_url: str) -> None:
    """The dump of a migrated room has its tables and nothing that changes from run to run."""
    dump = await dump_schema(database_url, "postroom", major=postgres_major())
    assert dump.startswith(HEADER)
    assert "CREATE TABLE deliveries (" in dump
    assert "restrict" not in dump.replace("ON DELETE RESTRICT", "")
    assert dump == await dump_schema(database_url, "postroom", major=postgres_major())


async def test_committed_schema_matches_the_migrations(database_url: str) -> None:
    """Run `./dev schema` after changing a migration or a function; every PostgreSQL version gives the same result."""
    dump = await dump_schema(database_url, "postroom", major=postgres_major())
    assert dump == SCHEMA_FILE.read_text(), "run ./dev schema"
