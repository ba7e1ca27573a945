"""Rights in the catalog of a migrated room."""

from postroom.db.pool import Pool

OPEN_TO_PUBLIC: frozenset[str] = frozenset()
"""Functions that run as the owner, or are trigger functions, and that every role may execute on purpose."""


async def test_no_function_of_the_owner_is_open_to_public(pool: Pool) -> None:
    """A function that runs as the owner needs a grant; a trigger function has none."""
    rows = await pool.fetch(
        """
        SELECT proname, has_function_privilege('public', oid, 'EXECUTE') AS is_open
        FROM pg_proc
        WHERE pronamespace = current_schema()::regnamespace AND (prosecdef OR prorettype = 'trigger'::regtype)
        """
    )
    assert len(rows) > 25
    assert {row["proname"] for row in rows if row["is_open"]} == OPEN_TO_PUBLIC


async def test_functions_of_the_owner_search_temporary_tables_last(pool: Pool) -> None:
    """A caller's temporary table must not shadow one of the room."""
    rows = await pool.fetch(
        "SELECT proconfig FROM pg_proc WHERE pronamespace = current_schema()::regnamespace AND prosecdef"
    )
    paths = {each for row in rows for each in row["proconfig"] or [""] if not each or each.startswith("search_path")}
    assert paths == {'search_path="postroom", pg_temp'}
