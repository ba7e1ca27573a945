"""Plans of hot statements: each uses its index, at any size of the table."""

from collections.abc import AsyncIterator
from datetime import timedelta

import pytest
from tests.support.builders import QUEUE_WAITING
from tests.support.plans import measured_plan, plan_of, planning_session

from postroom.db.pool import Session
from postroom.db.room import Room
from postroom.delivery.store import QUERIES
from postroom.mail.store import QUERIES as TEMPLATES

FILL = """
    INSERT INTO deliveries (state, lane, next_attempt_at, ladder, source, recipient_email, template_id, expires_at)
    SELECT 'queued', 'bulk', now() - interval '1 minute', 'generic', 'test', 'person' || n || '@example.org',
        CASE WHEN n % 2 = 0 THEN 'welcome' END, CASE WHEN n % 100 = 0 THEN now() + interval '1 day' END
    FROM generate_series(1, 20000) AS n
"""
FILL_PAYLOADS = "INSERT INTO delivery_payloads (delivery_id, variables) SELECT id, '{}' FROM deliveries"


@pytest.fixture(scope="module")
async def filled(shared_room: Room) -> Room:
    """Twenty thousand waiting deliveries."""
    for statement in (FILL, QUEUE_WAITING, FILL_PAYLOADS, "ANALYZE"):
        await shared_room.pool.execute(statement)
    return shared_room


@pytest.fixture
async def full(filled: Room) -> AsyncIterator[Session]:
    """A session of the filled room."""
    async with planning_session(filled) as connection:
        yield connection


@pytest.mark.parametrize(
    "name, index",
    [
        ("claim_due", "deliveries_pkey"),
        ("list_claim_recipients", "deliveries_pkey"),
        ("mark_started", "delivery_payloads_pkey"),
        ("recover_claims", "deliveries_pkey"),
        ("expire_waiting", "due_deliveries_watch_idx"),
        ("delete_old_deliveries", "deliveries_pkey"),
        ("delete_old_payloads", "delivery_payloads_pkey"),
        ("complete", "deliveries_pkey"),
        ("release", "deliveries_pkey"),
        ("mark_rendered", "deliveries_pkey"),
        ("fail_unwritable", "deliveries_pkey"),
    ],
)
async def test_a_hot_statement_uses_its_index(full: Session, name: str, index: str) -> None:
    """No sequential scan of deliveries, and the index that the migration made for this statement."""
    plan = await plan_of(full, QUERIES[name])
    assert index in {node.get("Index Name") for node in plan}
    assert not [node for node in plan if node["Node Type"] == "Seq Scan" and node["Relation Name"] == "deliveries"]


@pytest.mark.parametrize(
    "call, index",
    [
        ("lock_due_deliveries('bulk', 100, now())", "due_deliveries_order_idx"),
        ("lock_unrendered_deliveries(100)", "due_deliveries_watch_idx"),
    ],
)
async def test_choosing_a_batch_reads_only_the_batch(full: Session, call: str, index: str) -> None:
    """The index is read in order, and only as many entries as the batch has rows."""
    count = "SELECT idx_tup_read FROM pg_stat_user_indexes WHERE indexrelname = $1"
    await full.execute("SELECT pg_stat_force_next_flush()")
    before = await full.fetchval(count, index)
    for _ in range(6):
        await full.fetch(f"SELECT * FROM {call}")
    await full.execute("SELECT pg_stat_force_next_flush()")
    assert await full.fetchval(count, index) - before == 600
    assert (
        await full.fetchval("SELECT seq_scan FROM pg_stat_user_tables WHERE relname = 'deliveries'") <= 2
    )  # the filling


@pytest.mark.parametrize("name", ["list_claim_recipients", "mark_started"])
async def test_suppression_lookup_is_inlined(full: Session, name: str) -> None:
    """Checking recipients calls no function per row: the planner uses the index of suppressions."""
    plan = await plan_of(full, QUERIES[name])
    assert "suppressions_pkey" in {node.get("Index Name") for node in plan}
    assert {node["Function Name"] for node in plan if node["Node Type"] == "Function Scan"} <= {"unnest"}


async def test_a_start_looks_up_other_recipients_by_their_delivery(full: Session) -> None:
    """As a hashed EXISTS, the planner would read all of them."""
    plan = await plan_of(full, QUERIES["mark_started"])
    [lookup] = [node for node in plan if node.get("Index Name") == "other_recipients_pkey"]
    assert "delivery_id" in lookup["Index Cond"]


async def test_a_result_wakes_followers_once_per_statement(full: Session) -> None:
    """The function is in a CTE; joined as a subquery, it was called for every result."""
    [scan] = [node for node in await plan_of(full, QUERIES["complete"]) if node.get("CTE Name") == "followed"]
    assert scan["Node Type"] == "CTE Scan"


async def test_retention_of_versions_reads_few_deliveries(full: Session) -> None:
    """It reads 100 of the 10,000 deliveries of a template, in the order of an index that listings have."""
    transaction = full.transaction()
    await transaction.start()
    await full.execute(
        "INSERT INTO template_versions (template, content_hash, published_by, files, replaced_at)"
        " VALUES ('welcome', 'old', 'tests', '{}', now() - interval '1 hour')"
    )
    plan = await measured_plan(
        full, TEMPLATES["delete_old_versions"], after=None, batch_limit=100, retention=timedelta(), now=None
    )
    await transaction.rollback()
    read = {node["Index Name"]: node["Actual Rows"] for node in plan if node.get("Relation Name") == "deliveries"}
    assert read == {"deliveries_template_idx": 100, "deliveries_resend_idx": 0}


async def test_a_result_reads_no_earlier_attempt(full: Session) -> None:
    """The function that looks for proof of rendering is not inlined: it would open every partition for each batch."""
    plan = await plan_of(full, QUERIES["complete"])
    read = {str(node.get("Relation Name")) for node in plan if "Scan" in node["Node Type"]}
    assert "deliveries" in read
    assert not {name for name in read if name.startswith("attempts")}


async def test_a_claim_sorts_nothing_but_its_batch(full: Session) -> None:
    """The cost depends on the batch, not on the queue: the order of the mail for the worker and in the claim."""
    sorts = [node for node in await plan_of(full, QUERIES["claim_due"]) if "Sort" in node["Node Type"]]
    assert sorted(node["Sort Key"] for node in sorts) == [["claimed.ordinal"], ["claimed_1.ordinal"]]
