"""Every listing of the API and the dashboard reads a bounded number of rows, by each filter and by each two filters."""

from collections.abc import AsyncIterator
from dataclasses import asdict, fields

import asyncpg
import pytest
from bench.listings import (
    FEW,
    LISTINGS,
    Listing,
    empty,
    fill,
    listing_pages,
    offered_filters,
    offered_listings,
    page_filters,
    serves,
    targets,
)
from tests.support.dashboard import Guest, dashboard_app, open_guest
from tests.support.http import Browser, open_browser

from bench import growth
from postroom.db.pool import Pool
from postroom.db.room import Room
from postroom.delivery.filter import DeliveryFilter

ROWS = 30_000
MOST_READ = 16_000
"""Entries of indexes and rows of tables that a page may read: 5,000 of a search, and a count up to 10,000. A page of
deliveries finds up to 5,561 ids in one index, and reads these deliveries by another."""

READ = """
    SELECT (SELECT sum(seq_tup_read) FROM pg_stat_user_tables WHERE schemaname = current_schema())
        + (SELECT sum(idx_tup_read) FROM pg_stat_user_indexes WHERE schemaname = current_schema())
"""


@pytest.fixture(params=LISTINGS, ids=[listing.name for listing in LISTINGS], scope="module")
async def listing(request: pytest.FixtureRequest, shared_room: Room) -> AsyncIterator[Listing]:
    """A listing whose table has `ROWS` rows."""
    chosen: Listing = request.param
    connection = await asyncpg.connect(shared_room.url, server_settings={"search_path": shared_room.name})
    await fill(connection, chosen, ROWS)
    await connection.execute("SELECT pg_stat_force_next_flush()")
    yield chosen
    await empty(connection, chosen)
    await connection.close()


@pytest.fixture(scope="module")
async def guest(shared_room: Room) -> Guest:
    return await open_guest(shared_room)


@pytest.fixture(scope="module")
async def browser(shared_room: Room) -> Browser:
    return await open_browser(shared_room, app=dashboard_app(shared_room))


async def on_all(pool: Pool, statement: str) -> None:
    """Execute a statement on every connection of the pool."""
    held = [await pool.acquire() for _ in range(pool.get_size())]
    for connection in held:
        await connection.execute(statement)
        await pool.release(connection)


async def rows_read(pool: Pool) -> int:
    await on_all(pool, "SELECT pg_stat_force_next_flush()")
    return int(await pool.fetchval(READ))


@pytest.mark.parametrize("mode", ["force_generic_plan", "force_custom_plan"])
async def test_a_page_reads_a_bounded_number_of_rows(
    shared_room: Room, guest: Guest, browser: Browser, listing: Listing, mode: str
) -> None:
    """By no filter, by each and by each two, with a plan for the values and with a cached plan."""
    pool, unbounded = shared_room.pool, {}
    for path in listing.paths:
        client = browser if path.startswith("/v1/") else guest
        filters = (
            offered_filters(path) if path.startswith("/v1/") else page_filters((await guest.get(path)).body.decode())
        )
        await on_all(pool, f"SET plan_cache_mode = {mode}")
        before = await rows_read(pool)
        for target, _name in targets(listing, path, filters, most=2):
            assert (await client.get(target)).status == 200, target
            after = await rows_read(pool)
            if after - before > MOST_READ:
                unbounded[target] = after - before
            before = after
    assert not unbounded


def test_every_listing_is_tried() -> None:
    """A listing of the API or the dashboard is in the table, or has a reason not to be."""
    paths = [path for listing in LISTINGS for path in listing.paths]
    offered = {*offered_listings(), *listing_pages()}
    assert {each for each in offered if not any(serves(each, path) for path in paths)} == set(FEW)


def test_every_filter_has_values() -> None:
    """A new filter of the API is tried as soon as it is offered."""
    for listing in LISTINGS:
        for path in listing.paths:
            if path.startswith("/v1/"):
                assert offered_filters(path) <= set(listing.values), path


def test_every_filter_of_deliveries_is_measured() -> None:
    """The filters of deliveries have rows of their own; endpoint and ids are found as campaigns and pages are."""
    tried = {
        name for chosen in growth.LISTINGS.values() for name, value in asdict(chosen()).items() if value is not None
    }
    assert tried | {"ids", "endpoint_id", "created_from"} == {each.name for each in fields(DeliveryFilter)}
