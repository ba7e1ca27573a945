"""Query plans of frequent statements: their cost does not depend on the number of planned events."""

import json
from collections.abc import AsyncIterator

import pytest
from tests.support.plans import nodes, plan_of, planning_session

from postroom.db.pool import Pool, Session
from postroom.db.room import Room
from postroom.schedule.store import QUERIES

PEOPLE = """
    INSERT INTO users (first_name, last_name, date_of_birth, timezone, planned_version)
    SELECT 'Ada', 'Lovelace', '1990-01-01', 'UTC', 1 FROM generate_series(1, 8000)
"""
EVENTS = """
    INSERT INTO scheduled_events (
        user_id, status, target_timestamp_utc, target_timestamp_local, target_timezone, idempotency_key,
        delivery_payload, executed_at, lease_expires_at, delivery_id
    )
    SELECT id, s, now() + n * interval '1 minute', now()::timestamp, 'UTC', id || s::text, '{}', now(),
        CASE WHEN s = 'PROCESSING' THEN now() + interval '1 minute' END, CASE WHEN s <> 'PENDING' THEN n END
    FROM (SELECT id, row_number() OVER () AS n FROM users) AS u
    CROSS JOIN unnest(ARRAY['PENDING', 'COMPLETED', 'PROCESSING']::scheduled_event_status[]) AS s
"""
OCCASIONS = """
    INSERT INTO user_occasions (user_id, event_type, message, rule)
    SELECT id, 'RECURRING', '', '{"every": "day", "start": "2026-01-01"}' FROM users
"""


@pytest.fixture(scope="module")
async def filled(shared_room: Room) -> Room:
    """Eight thousand people, each with past, due and planned events and an occasion."""
    for statement in (PEOPLE, EVENTS, OCCASIONS, "ANALYZE"):
        await shared_room.pool.execute(statement)
    return shared_room


@pytest.fixture
async def full(filled: Room) -> AsyncIterator[Session]:
    """A session of the filled room."""
    async with planning_session(filled) as connection:
        yield connection


INDEXES = {
    "claim_due": "scheduled_events_due_idx",
    "find_next_due": "scheduled_events_due_idx",
    "hand_over": "scheduled_events_pkey",
    "list_user_events": "scheduled_events_user_idx",
    "lock_unplanned_users": "users_unplanned_idx",
    "lock_unscheduled_users": "scheduled_events_pending_idx",
    "lock_users": "users_pkey",
    "move_events": "scheduled_events_pkey",
    "recover_events": "scheduled_events_lease_idx",
}


async def test_hot_statements_use_their_indexes(full: Session) -> None:
    """Each statement uses its index, without a sequential scan."""
    for name, index in INDEXES.items():
        plan = await plan_of(full, QUERIES[name])
        assert index in {node.get("Index Name") for node in plan}, name
        scanned = {node["Relation Name"] for node in plan if node["Node Type"] == "Seq Scan"}
        assert not scanned & {"users", "scheduled_events", "user_occasions"}, name


async def test_a_claim_sorts_only_what_it_has_claimed(full: Session) -> None:
    """Due events are read in index order; only the claimed hundred are sorted."""
    [due] = [node for node in await plan_of(full, QUERIES["claim_due"]) if node.get("Subplan Name") == "CTE due"]
    assert "Limit" in {node["Node Type"] for node in nodes(due)}
    assert not [node for node in nodes(due) if "Sort" in node["Node Type"]]


async def test_the_end_of_a_delivery_finds_its_event_by_index(full: Session) -> None:
    """The UPDATE of the trigger reads one row."""
    row = await full.fetchval(
        "EXPLAIN (FORMAT JSON) UPDATE scheduled_events SET version = version + 1 WHERE delivery_id = 77"
    )
    assert "scheduled_events_delivery_idx" in {node.get("Index Name") for node in nodes(json.loads(row)[0]["Plan"])}


async def test_a_delivery_of_another_source_calls_no_function(pool: Pool) -> None:
    """The trigger's WHEN condition excludes deliveries of other sources."""
    condition = await pool.fetchval(
        "SELECT pg_get_triggerdef(oid) FROM pg_trigger WHERE tgname = 'settle_scheduled_event'"
    )
    assert "WHEN (((new.source = 'schedule'::text)" in condition


ANY_STATUS = "ARRAY['PENDING', 'PROCESSING', 'COMPLETED', 'FAILED']"
LISTINGS: list[tuple[dict[str, str], set[str]]] = [
    ({}, {"scheduled_events_due_idx", "scheduled_events_status_idx"}),
    ({"statuses": "ARRAY['FAILED']"}, {"scheduled_events_due_idx", "scheduled_events_status_idx"}),
    ({"kind": "'REMINDER'"}, {"scheduled_events_kind_idx"}),
    ({"user_id": "?"}, {"scheduled_events_pending_idx", "scheduled_events_user_idx"}),
    ({"is_late": "true"}, {"scheduled_events_late_idx"}),
]


@pytest.mark.parametrize("name", ["list_latest_events", "list_soonest_events"])
@pytest.mark.parametrize("chosen, indexes", LISTINGS)
async def test_every_filter_of_a_listing_has_its_index(
    full: Session, name: str, chosen: dict[str, str], indexes: set[str]
) -> None:
    """A page does not read or sort all events."""
    await full.execute("RESET plan_cache_mode")  # lists are rare: they get custom plans for their filters
    given = {"page_limit": "51", "statuses": ANY_STATUS, **chosen}
    if "user_id" in given:
        given["user_id"] = f"'{await full.fetchval('SELECT id FROM users LIMIT 1')}'"
    statement = QUERIES[name]
    await full.execute(f"PREPARE asked AS {statement.sql}")
    arguments = ", ".join(given.get(parameter, "NULL") for parameter in statement.parameters)
    plan = nodes(json.loads(await full.fetchval(f"EXPLAIN (FORMAT JSON) EXECUTE asked({arguments})"))[0]["Plan"])
    assert {node["Index Name"] for node in plan if "Index Name" in node} <= indexes
    assert [node for node in plan if "Index Name" in node]
    assert not [node for node in plan if node["Node Type"] == "Seq Scan"]
