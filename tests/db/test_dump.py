"""The committed schema: written from the migrations, the same by every version of PostgreSQL."""

from tests.conftest import postgres_major

from postroom.db.dump import HEADER, SCHEMA_FILE, dump_schema, normalised

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


def test_only_the_schema_itself_is_kept() -> None:
    """No word of pg_dump about itself, no schema name, one form of NOT NULL; bodies stay to the letter."""
    assert normalised(DUMP, "room") == HEADER + (
        "\nCREATE FUNCTION f() RETURNS void\n    LANGUAGE plpgsql\n"
        "    AS $$\n-- ours\nSET x = 1;\n\n\nPERFORM room.g();\n$$;\n\n"
        "CREATE TABLE t (\n    id bigint NOT NULL,\n    kind k NOT NULL\n);\n"
    )


async def test_a_real_room_is_dumped(database_url: str) -> None:
    """The dump of a migrated room holds its tables and nothing that changes from run to run."""
    dump = await dump_schema(database_url, "postroom", major=postgres_major())
    assert dump.startswith(HEADER)
    assert "CREATE TABLE deliveries (" in dump
    assert "restrict" not in dump.replace("ON DELETE RESTRICT", "")
    assert dump == await dump_schema(database_url, "postroom", major=postgres_major())


async def test_the_committed_schema_is_what_the_migrations_make(database_url: str) -> None:
    """Who changes a migration or a function runs `./dev schema`; every version of PostgreSQL makes the same schema."""
    dump = await dump_schema(database_url, "postroom", major=postgres_major())
    assert dump == SCHEMA_FILE.read_text(), "run ./dev schema"
