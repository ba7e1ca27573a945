"""Plans of listings in a room with a hundred thousand deliveries."""

import json
from collections import Counter
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import pytest

from postroom.db.pool import Pool, Session
from postroom.db.room import Room
from postroom.delivery.listing import pages, store

ROWS = 120_000
RARE = 2_000
"""One delivery in so many has the values that the finders look for."""

FILL = f"""
    INSERT INTO deliveries (state, finished_at, reason, ladder, source, template_id, campaign_id, endpoint_id, tags,
        custom_data, idempotency_key, request_fingerprint, idempotency_expires_at, created_at, recipient_email)
    SELECT (CASE WHEN n % {RARE} = 0 THEN 'failed' ELSE 'sent' END)::delivery_state, now(), 'refused', 'generic',
        CASE WHEN n % {RARE} = 0 THEN 'rare' ELSE 'usual' END, CASE WHEN n % {RARE} = 0 THEN 'rare' ELSE 'usual' END,
        CASE WHEN n % {RARE} = 0 THEN 7 ELSE 8 END, CASE WHEN n % {RARE} = 0 THEN 7 ELSE 8 END,
        jsonb_build_object('kind', CASE WHEN n % {RARE} = 0 THEN 'rare' ELSE 'usual' END),
        jsonb_build_object('kind', CASE WHEN n % {RARE} = 0 THEN 'rare' ELSE 'usual' END),
        'key-' || n, 0, now(), now() - interval '1 second' * ({ROWS} - n),
        CASE WHEN n % {RARE} = 0 THEN 'ada@rare.example' ELSE 'bob@usual.example' END
    FROM generate_series(1, {ROWS}) AS n
"""
FILL_UNSENT = "INSERT INTO unsent_deliveries (id, state) SELECT id, state FROM deliveries WHERE state <> 'sent'"
FILL_PAYLOADS = """
    INSERT INTO delivery_payloads (delivery_id, subject, headers)
    SELECT id, 'Hello', CASE WHEN id % 4 = 0 THEN jsonb_build_object('Message-ID', '<' || id || '@shop.example>') END
    FROM deliveries
"""
FILL_OTHERS = """
    INSERT INTO other_recipients (delivery_id, kind, position, email) SELECT id, 'cc', 0, recipient_email
    FROM deliveries WHERE id % 4 = 0
"""
FILL_ATTEMPTS = """
    INSERT INTO attempts (delivery_id, attempt_no, outcome, lane, started_at, finished_at, message_id)
    SELECT id, 1, 'sent', lane, created_at, created_at, '<pr.' || id || '.0@example.org>'
    FROM deliveries WHERE id % 4 = 0
"""

FILL_SAMPLE = """
    INSERT INTO deliveries (id, ladder, source, recipient_email, tags)
    SELECT id, 'generic', 'shop', 'ada@example.org', '{"kind": "usual"}' FROM generate_series(1, 2600000) AS id
    WHERE hashint8(id) & 255 = 0
"""

FOUND: dict[str, tuple[str, str]] = {
    "ids_by_idempotency_key": ("'key-2000'", "deliveries_idempotency_idx"),
    "ids_by_message_id": ("'<pr.2000.0@example.org>'", "delivery_payloads_message_id_idx"),
    "ids_unsent": ("'failed'", "unsent_deliveries_pkey"),
    "ids_waiting": ("", "due_deliveries_pkey"),
}
"""Finder → a rare value, and the index that finds it."""

MOST_BLOCKS = 60
"""Blocks of 8 kB that a finder of these may read. A scan of all entries of an index reads at least 150."""

CALLED: dict[str, tuple[tuple[Any, Any], set[str]]] = {
    "campaign_id": ((7, 8), {"deliveries_campaign_idx"}),
    "endpoint_id": ((7, 8), {"deliveries_endpoint_idx"}),
    "recipient": (
        ("ada@rare.example", "Bob@usual.example"),
        {"deliveries_recipient_idx", "other_recipients_email_idx"},
    ),
    "recipient_domain": (("rare.example", "Usual.example"), {"deliveries_domain_idx", "other_recipients_domain_idx"}),
    "source": (("rare", "usual"), {"deliveries_source_idx"}),
    "template_id": (("rare", "usual"), {"deliveries_template_idx"}),
}
"""Column of `delivery_ids_by` → a rare value, a frequent one, and the indexes."""

READ = """
    SELECT indexrelname AS name, idx_tup_read AS entries FROM pg_stat_user_indexes WHERE schemaname = current_schema()
    UNION ALL
    SELECT relname, seq_tup_read FROM pg_stat_user_tables WHERE schemaname = current_schema()
"""


@pytest.fixture(scope="module")
async def full(shared_room: Room) -> AsyncIterator[Session]:
    """A connection to a room with very many finished deliveries and generic plans, as a busy process has them."""
    async with shared_room.pool.acquire() as connection:
        await connection.execute("ALTER TABLE deliveries DISABLE TRIGGER USER")
        for statement in (FILL, FILL_UNSENT, FILL_PAYLOADS, FILL_OTHERS, FILL_ATTEMPTS):
            await connection.execute(statement)
        await connection.execute("ALTER TABLE deliveries ENABLE TRIGGER USER")
        await connection.execute("VACUUM ANALYZE")
        await connection.execute("SET plan_cache_mode = force_generic_plan")
        yield connection


async def scans_of(connection: Session, name: str, **given: str) -> list[dict[str, Any]]:
    """The scans that a statement made, with the rows that each read."""
    statement = store.QUERIES[name]
    await connection.execute(f"PREPARE listing AS {statement.sql}")
    arguments = ", ".join(given.get(parameter, "NULL") for parameter in statement.parameters)
    row = await connection.fetchval(f"EXPLAIN (ANALYZE, BUFFERS, TIMING OFF, FORMAT JSON) EXECUTE listing({arguments})")
    await connection.execute("DEALLOCATE listing")
    return [node for node in nodes(json.loads(row)[0]["Plan"]) if "Scan" in node["Node Type"]]


async def entries_read(connection: Session) -> Counter[str]:
    """The entries read so far, by index; rows read without one, by table."""
    await connection.execute("SELECT pg_stat_force_next_flush()")
    return Counter({row["name"]: row["entries"] for row in await connection.fetch(READ)})


def nodes(plan: dict[str, Any]) -> list[dict[str, Any]]:
    return [plan, *(node for child in plan.get("Plans", []) for node in nodes(child))]


def rows_read(scan: dict[str, Any]) -> float:
    removed = sum(value for key, value in scan.items() if key.startswith("Rows Removed"))
    return float((scan["Actual Rows"] + removed) * scan["Actual Loops"])


async def test_every_finder_reads_only_its_matches(full: Session) -> None:
    """The generic plan reads the index of a rare value, on the first page and below a cursor."""
    assert {*FOUND, "ids_by_column", "ids_newest", "ids_given", "ids_sending", "ids_by_recipient_part"} == {
        each.name for each in store.QUERIES if each.name.startswith("ids_")
    }
    assert {name for name, find in pages.FINDERS.items() if isinstance(find, partial)} == {*CALLED}
    for name, (value, index) in FOUND.items():
        for before in (2**62, ROWS // 2):
            window = {"before_id": str(before), "first_id": "0", "id_limit": "51"}
            scans = await scans_of(full, name, value=value, **window)
            assert index in {scan.get("Index Name") for scan in scans}, name
            assert max(rows_read(scan) for scan in scans) <= ROWS / RARE, name
            assert sum(scan["Shared Hit Blocks"] + scan["Shared Read Blocks"] for scan in scans) <= MOST_BLOCKS, name


async def read_by(connection: Session, find: pages.Find, **value: object) -> list[Counter[str]]:
    """The entries that a finder reads for the first page, and for one below a cursor."""
    read = []
    for before in (2**62, ROWS // 2):
        earlier = await entries_read(connection)
        assert len(await find(connection, **value, before_id=before, first_id=0, id_limit=51)) >= ROWS // 2 // RARE - 1
        read.append(await entries_read(connection) - earlier)
    return read


@pytest.mark.parametrize("name", CALLED)
async def test_every_indexed_column_reads_only_its_matches(full: Session, name: str) -> None:
    """A function keeps its plan: it reads its indexes, and of a frequent value the 1024 ids of a few keys."""
    values, indexes = CALLED[name]
    for value, most in zip(values, (ROWS / RARE, 3 * 1024), strict=True):
        for read in await read_by(full, pages.FINDERS[name], value=value):
            assert {*read} == indexes
            assert max(read.values()) <= most


async def test_the_newest_deliveries_are_read_from_the_primary_key(full: Session) -> None:
    """The function keeps its plan, too."""
    for read in await read_by(full, store.ids_newest, created_before=None):
        assert {*read} == {"deliveries_pkey"}
        assert max(read.values()) <= 51


async def test_a_part_of_an_address_reads_the_recipients_of_its_range(full: Session) -> None:
    """No index finds a part: the statement reads the given range of ids by the primary key, and nothing else."""
    window = {"before_id": str(ROWS // 2), "first_id": str(ROWS // 2 - pages.EXAMINED), "id_limit": "51"}
    scans = await scans_of(full, "ids_by_recipient_part", value="'nowhere'", **window)
    assert {scan.get("Index Name") for scan in scans} == {"deliveries_pkey", "other_recipients_pkey"}
    assert max(rows_read(scan) for scan in scans) <= pages.EXAMINED


async def test_the_range_of_a_part_is_read_from_the_primary_key(full: Session) -> None:
    """The statement counts entries of the index, and reads no delivery."""
    window = {"before_id": str(2**62), "first_id": "0", "row_limit": str(pages.EXAMINED)}
    [scan] = await scans_of(full, "find_rest_id", **window)
    assert (scan["Node Type"], scan["Index Name"]) == ("Index Only Scan", "deliveries_pkey")
    assert rows_read(scan) == pages.EXAMINED + 1


@pytest.mark.parametrize("column", ["tags", "custom_data"])
async def test_of_a_frequent_tag_only_the_sample_is_read(full: Session, column: str) -> None:
    """A rare value is read completely, of a frequent one a 256th part, to decide that it is frequent."""
    for value, most, is_rare in (("rare", ROWS / RARE + 1, True), ("none", 0, True), ("usual", ROWS / 200, False)):
        earlier = await entries_read(full)
        given = {"tags": None, "custom_data": None, column: f'{{"kind": "{value}"}}'}
        assert (await store.rare_ids(full, **given, id_limit=pages.EXAMINED) is not None) == is_rare
        read = await entries_read(full) - earlier
        assert read.total() == read["deliveries_data_idx"] <= most, value


async def test_of_a_large_sample_about_a_thousand_are_read(pool: Pool) -> None:
    """A sample of 10,000 stands for 2.6 million deliveries with a value; rooms may have more."""
    async with pool.acquire() as connection:
        await connection.execute("ALTER TABLE deliveries DISABLE TRIGGER USER")
        await connection.execute(FILL_SAMPLE)
        await connection.execute("VACUUM ANALYZE deliveries")  # entries that wait to be merged are not limited
        earlier = await entries_read(connection)
        assert await connection.fetchval("""SELECT has_frequent_data('{"kind": "usual"}')""")
        read = await entries_read(connection) - earlier
    assert read.total() == read["deliveries_data_idx"] < 2_000


async def test_a_time_is_found_without_reading_the_deliveries(full: Session) -> None:
    """A binary search of the primary key, in some twenty steps."""
    count = "SELECT idx_tup_fetch + seq_tup_read FROM pg_stat_user_tables WHERE relname = 'deliveries'"
    await full.execute("SELECT pg_stat_force_next_flush()")
    before = await full.fetchval(count)
    half = await full.fetchval("SELECT first_delivery_since(now() - interval '1 second' * $1)", ROWS // 2)
    assert abs(half - ROWS // 2) < 600  # the seconds since the room was filled
    await full.execute("SELECT pg_stat_force_next_flush()")
    assert await full.fetchval(count) - before < 50


async def test_later_deliveries_are_skipped_by_their_time(full: Session) -> None:
    """Between the id that a time leads to and the first match are seconds of mail: one window skips them."""
    moment = await full.fetchval("SELECT created_at FROM deliveries WHERE id = $1", ROWS // 2)
    later = await store.find_id_since(full, since=moment + pages.CLOCK_SLACK)
    found = await store.ids_newest(full, before_id=later, first_id=0, id_limit=51, created_before=moment)
    assert later - ROWS // 2 >= pages.CLOCK_SLACK.total_seconds()
    assert found == list(range(ROWS // 2 - 1, ROWS // 2 - 52, -1))
