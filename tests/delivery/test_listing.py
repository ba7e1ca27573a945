"""Listings of deliveries: filters, pages, and plans in a room with a hundred thousand deliveries."""

import json
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest
from tests.support.builders import (
    DELIVERED,
    NOON,
    Recording,
    a_mail,
    a_worker,
    accepted,
    addresses,
    claimed,
)

from postroom.db.pool import Pool, Session
from postroom.db.room import Room
from postroom.delivery import service
from postroom.delivery.listing import pages, store
from postroom.delivery.model import DeliveryFilter, DeliveryState, Lane
from postroom.errors import BadInput

ADA = "cli:ada"


async def test_deliveries_are_paged_newest_first(pool: Pool) -> None:
    """Every delivery once; what is accepted meanwhile does not move the pages."""
    ids = await accepted(pool, *(a_mail() for _ in range(5)))
    first, cursor = await service.list_deliveries(pool, DeliveryFilter(), limit=3)
    await accepted(pool)
    second, end = await service.list_deliveries(pool, DeliveryFilter(), cursor=cursor, limit=3)
    assert [line.id for line in [*first, *second]] == ids[::-1]
    assert end is None


async def test_invalid_cursor_is_refused(pool: Pool) -> None:
    """An invalid cursor is bad input."""
    with pytest.raises(BadInput):
        await service.list_deliveries(pool, DeliveryFilter(), cursor="nonsense")


@pytest.fixture(scope="module")
async def three_mails(shared_room: Room) -> Pool:
    """A cancelled mail, one with a copy of another source, and a later one with tags and data."""
    pool = shared_room.pool
    [cancelled, _] = await accepted(
        pool,
        a_mail("Ann@example.org", subject="a"),
        a_mail(
            subject="b",
            source="shop",
            cc=addresses("copy@example.org", "more@example.net"),
            reply_to=addresses("reply@example.com"),
            headers={"Message-Id": "<own@shop.example>"},
        ),
        now=NOON,
    )
    labelled = a_mail(
        subject="c", idempotency_key="order-7", tags={"kind": "receipt"}, custom_data={"order": 7, "x": 1}
    )
    await accepted(pool, labelled, now=NOON + timedelta(hours=1))
    await service.cancel(pool, cancelled, actor=ADA)
    return pool


@pytest.mark.parametrize(
    "chosen, subjects",
    [
        (DeliveryFilter(state=DeliveryState.QUEUED), ["c", "b"]),
        (DeliveryFilter(state=DeliveryState.CANCELLED), ["a"]),
        (DeliveryFilter(recipient="ANN@example.org"), ["a"]),
        (DeliveryFilter(recipient="copy@example.org"), ["b"]),
        (DeliveryFilter(recipient="reply@example.com"), []),
        (DeliveryFilter(recipient_contains="NN@exam"), ["a"]),
        (DeliveryFilter(recipient_contains="reply@"), []),
        (DeliveryFilter(recipient_contains="_nn"), []),
        (DeliveryFilter(recipient_contains="copy", source="shop"), ["b"]),
        (DeliveryFilter(sender_account_id=7), []),
        (DeliveryFilter(recipient_domain="EXAMPLE.net"), ["b"]),
        (DeliveryFilter(recipient_domain="example.com"), []),
        (DeliveryFilter(source="shop"), ["b"]),
        (DeliveryFilter(idempotency_key="order-7"), ["c"]),
        (DeliveryFilter(message_id="own@shop.example"), ["b"]),
        (DeliveryFilter(message_id="<OWN@shop.example>"), []),
        (DeliveryFilter(tags={"kind": "receipt"}), ["c"]),
        (DeliveryFilter(tags={"kind": "receipt", "city": "Bonn"}), []),
        (DeliveryFilter(custom_data={"order": 7}), ["c"]),
        (DeliveryFilter(created_from=NOON + timedelta(hours=1)), ["c"]),
        (DeliveryFilter(created_before=NOON + timedelta(hours=1)), ["b", "a"]),
        (DeliveryFilter(created_from=NOON, created_before=NOON + timedelta(hours=1), source="shop"), ["b"]),
        (DeliveryFilter(source="shop", recipient="ann@example.org"), []),
        (DeliveryFilter(state=DeliveryState.QUEUED, tags={"kind": "receipt"}), ["c"]),
        (DeliveryFilter(state=DeliveryState.SENT, source="shop"), []),
        (DeliveryFilter(state=DeliveryState.QUEUED, recipient_domain="example.net", source="shop"), ["b"]),
    ],
    ids=str,
)
async def test_a_listing_is_filtered(three_mails: Pool, chosen: DeliveryFilter, subjects: list[str]) -> None:
    """By each filter and by several: addresses and domains in any case, never Reply-To."""
    found, _ = await service.list_deliveries(three_mails, chosen)
    assert [line.subject for line in found] == subjects


async def test_a_line_names_its_recipients_in_order(pool: Pool) -> None:
    """To, Cc, Bcc; never Reply-To."""
    await accepted(
        pool,
        a_mail("z@example.org", "a@example.org", cc=addresses("c@example.org"), reply_to=addresses("r@example.org")),
    )
    [line], _ = await service.list_deliveries(pool, DeliveryFilter())
    assert line.recipients == ("z@example.org", "a@example.org", "c@example.org")


async def test_the_mail_of_a_campaign_is_listed(pool: Pool) -> None:
    """By the campaign's id, which each line shows."""
    first, _other, resent_from = await accepted(pool, a_mail(), a_mail(), a_mail())
    await pool.execute("UPDATE deliveries SET campaign_id = 7 WHERE id = ANY($1)", [first, resent_from])
    found, _ = await service.list_deliveries(pool, DeliveryFilter(campaign_id=7))
    assert [(line.id, line.campaign_id) for line in found] == [(resent_from, 7), (first, 7)]
    assert (await service.list_deliveries(pool, DeliveryFilter(campaign_id=8)))[0] == []


async def test_mail_is_found_by_the_message_id_it_left_with(pool: Pool) -> None:
    """Postroom's own Message-ID names the delivery; a forged digest finds nothing."""
    await accepted(pool)
    [delivery] = await accepted(pool)
    await a_worker(pool, Recording(DELIVERED)).run_once(Lane.TRANSACTIONAL)
    message_id = await pool.fetchval("SELECT message_id FROM attempts WHERE delivery_id = $1", delivery)
    for written in (message_id, message_id.strip("<>")):
        found, _ = await service.list_deliveries(pool, DeliveryFilter(message_id=written))
        assert [line.id for line in found] == [delivery]
    forged = message_id.replace("@", "0@")
    assert (await service.list_deliveries(pool, DeliveryFilter(message_id=forged)))[0] == []


async def test_claimed_deliveries_are_listed(pool: Pool) -> None:
    """A delivery that a worker holds has the status `sending`."""
    [waiting, held] = await accepted(pool, a_mail(), a_mail(lane=Lane.AUTH))
    await claimed(pool, Lane.AUTH)
    assert [
        line.id for line in (await service.list_deliveries(pool, DeliveryFilter(state=DeliveryState.SENDING)))[0]
    ] == [held]
    assert [
        line.id for line in (await service.list_deliveries(pool, DeliveryFilter(state=DeliveryState.QUEUED)))[0]
    ] == [waiting]


async def test_a_long_search_goes_on_at_its_cursor(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A page that found nothing among the examined deliveries says where the search continues."""
    monkeypatch.setattr(pages, "EXAMINED", 5)
    monkeypatch.setattr(pages, "WINDOWS", 2)
    [first, *_] = await accepted(pool, a_mail(template="welcome"), *(a_mail() for _ in range(20)))
    chosen = DeliveryFilter(source="python", template_id="welcome")
    monkeypatch.delitem(pages.FINDERS, "template_id")
    found, cursor = await service.list_deliveries(pool, chosen, limit=2)
    assert found == []
    pages_read = 1
    while cursor is not None:
        more, cursor = await service.list_deliveries(pool, chosen, limit=2, cursor=cursor)
        found, pages_read = found + more, pages_read + 1
    assert ([line.id for line in found], pages_read) == ([first], 3)


async def test_a_part_of_an_address_is_searched_in_spans(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A page examines a bounded range of ids and says where the search continues."""
    monkeypatch.setattr(pages, "SPAN", 5)
    monkeypatch.setattr(pages, "WINDOWS", 2)
    [first, *_] = await accepted(pool, a_mail("ada@example.org"), *(a_mail("bob@example.org") for _ in range(20)))
    chosen, cursor, read = DeliveryFilter(recipient_contains="Ada@"), None, list[Any]()
    for _ in range(3):
        found, cursor = await service.list_deliveries(pool, chosen, limit=2, cursor=cursor)
        read += [line.id for line in found]
    assert (read, cursor) == ([first], None)


async def test_a_frequent_tag_is_found_among_the_newest(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the newest deliveries fill the page, the index that cannot sort is not read."""
    ids = await accepted(pool, *(a_mail(tags={"kind": "news"}) for _ in range(5)))
    monkeypatch.setitem(pages.FINDERS, "tags", store.ids_by_tags)
    found, cursor = await service.list_deliveries(pool, DeliveryFilter(tags={"kind": "news"}), limit=2)
    rest, end = await service.list_deliveries(pool, DeliveryFilter(tags={"kind": "news"}), limit=3, cursor=cursor)
    assert [line.id for line in [*found, *rest]] == ids[::-1]
    assert end is None


# ── plans ───────────────────────────────────────────────────────────────────────────────────────────────────────────

ROWS = 120_000
RARE = 2_000
"""One delivery in so many has the values that the finders look for."""

FILL = f"""
    INSERT INTO deliveries (state, finished_at, reason, ladder, source, template_id, campaign_id, endpoint_id, tags,
        custom_data, idempotency_key, request_fingerprint, idempotency_expires_at, created_at)
    SELECT (CASE WHEN n % {RARE} = 0 THEN 'failed' ELSE 'sent' END)::delivery_state, now(), 'refused', 'generic',
        CASE WHEN n % {RARE} = 0 THEN 'rare' ELSE 'usual' END, CASE WHEN n % {RARE} = 0 THEN 'rare' ELSE 'usual' END,
        CASE WHEN n % {RARE} = 0 THEN 7 ELSE 8 END, CASE WHEN n % {RARE} = 0 THEN 7 ELSE 8 END,
        jsonb_build_object('kind', CASE WHEN n % {RARE} = 0 THEN 'rare' ELSE 'usual' END),
        jsonb_build_object('kind', CASE WHEN n % {RARE} = 0 THEN 'rare' ELSE 'usual' END),
        'key-' || n, '', now(), now() - interval '1 second' * ({ROWS} - n)
    FROM generate_series(1, {ROWS}) AS n
"""
FILL_RECIPIENTS = f"""
    INSERT INTO delivery_recipients (delivery_id, kind, position, email)
    SELECT id, 'to', 0, CASE WHEN id % {RARE} = 0 THEN 'ada@rare.example' ELSE 'person' || id || '@usual.example' END
    FROM deliveries
"""
FILL_UNSENT = "INSERT INTO unsent_deliveries (id, state) SELECT id, state FROM deliveries WHERE state <> 'sent'"
FILL_PAYLOADS = "INSERT INTO delivery_payloads (delivery_id, subject) SELECT id, 'Hello' FROM deliveries"

FOUND: dict[str, tuple[str, str]] = {
    "ids_by_campaign": ("7", "deliveries_campaign_idx"),
    "ids_by_custom_data": ("""'{"kind": "rare"}'""", "deliveries_custom_data_idx"),
    "ids_by_domain": ("'rare.example'", "delivery_recipients_domain_idx"),
    "ids_by_endpoint": ("7", "deliveries_endpoint_idx"),
    "ids_by_idempotency_key": ("'key-2000'", "deliveries_idempotency_idx"),
    "ids_by_message_id": ("'<pr.2000.0@example.org>'", "delivery_payloads_message_id_idx"),
    "ids_by_recipient": ("'ada@rare.example'", "delivery_recipients_email_idx"),
    "ids_by_source": ("'rare'", "deliveries_source_idx"),
    "ids_by_tags": ("""'{"kind": "rare"}'""", "deliveries_tags_idx"),
    "ids_by_template": ("'rare'", "deliveries_template_idx"),
    "ids_newest": ("", "deliveries_pkey"),
    "ids_unsent": ("'failed'", "unsent_deliveries_pkey"),
    "ids_waiting": ("", "due_deliveries_pkey"),
}
"""Finder → a rare value, and the index that finds it."""


@pytest.fixture
async def full(pool: Pool) -> AsyncIterator[Session]:
    """A connection to a room with very many finished deliveries and generic plans, as a busy process has them."""
    async with pool.acquire() as connection:
        await connection.execute("ALTER TABLE deliveries DISABLE TRIGGER USER")
        for statement in (FILL, FILL_RECIPIENTS, FILL_UNSENT, FILL_PAYLOADS):
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
    row = await connection.fetchval(f"EXPLAIN (ANALYZE, TIMING OFF, FORMAT JSON) EXECUTE listing({arguments})")
    await connection.execute("DEALLOCATE listing")
    return [node for node in nodes(json.loads(row)[0]["Plan"]) if "Scan" in node["Node Type"]]


def nodes(plan: dict[str, Any]) -> list[dict[str, Any]]:
    return [plan, *(node for child in plan.get("Plans", []) for node in nodes(child))]


def rows_read(scan: dict[str, Any]) -> float:
    removed = sum(value for key, value in scan.items() if key.startswith("Rows Removed"))
    return float((scan["Actual Rows"] + removed) * scan["Actual Loops"])


async def test_every_finder_reads_only_its_matches(full: Session) -> None:
    """The generic plan reads the index of a rare value, on the first page and below a cursor."""
    assert {*FOUND, "ids_sending", "ids_by_recipient_part"} == {
        each.name for each in store.QUERIES if each.name.startswith("ids_")
    }
    for name, (value, index) in FOUND.items():
        for before in (2**62, ROWS // 2):
            window = {"before_id": str(before), "first_id": "0", "id_limit": "51"}
            scans = await scans_of(full, name, value=value, **window)
            assert index in {scan.get("Index Name") for scan in scans}, name
            assert max(rows_read(scan) for scan in scans) <= ROWS / RARE, name


async def test_a_part_of_an_address_reads_the_recipients_of_its_range(full: Session) -> None:
    """No index finds a part: the statement reads the given range of ids by the primary key, and nothing else."""
    window = {"before_id": str(ROWS // 2), "first_id": str(ROWS // 2 - pages.SPAN), "id_limit": "51"}
    scans = await scans_of(full, "ids_by_recipient_part", value="'nowhere'", **window)
    assert {scan.get("Index Name") for scan in scans} == {"delivery_recipients_pkey"}
    assert max(rows_read(scan) for scan in scans) <= pages.SPAN


async def test_a_frequent_value_costs_one_key(full: Session) -> None:
    """By source, template, endpoint and domain a page reads and sorts at most the 1024 ids of a few keys."""
    for name, value in {
        "source": "'usual'",
        "template": "'usual'",
        "endpoint": "8",
        "domain": "'usual.example'",
    }.items():
        window = {"before_id": str(2**62), "first_id": "0", "id_limit": "51"}
        scans = await scans_of(full, f"ids_by_{name}", value=value, **window)
        assert max(rows_read(scan) for scan in scans) <= 3 * 1024, name


async def test_other_filters_read_only_the_found_ids(full: Session) -> None:
    """The statement that filters reads by primary key."""
    filters = {
        "delivery_ids": f"ARRAY{list(range(ROWS - 5000, ROWS))}",
        "source": "'rare'",
        "recipient_domain": "'rare.example'",
        "page_limit": "51",
    }
    scans = await scans_of(full, "match_deliveries", **filters)
    assert max(rows_read(scan) for scan in scans) <= 5000
    assert "Seq Scan" not in {scan["Node Type"] for scan in scans}


async def test_a_time_is_found_without_reading_the_deliveries(full: Session) -> None:
    """A binary search of the primary key, in some twenty steps."""
    count = "SELECT idx_tup_fetch + seq_tup_read FROM pg_stat_user_tables WHERE relname = 'deliveries'"
    await full.execute("SELECT pg_stat_force_next_flush()")
    before = await full.fetchval(count)
    half = await full.fetchval("SELECT first_delivery_since(now() - interval '1 second' * $1)", ROWS // 2)
    assert abs(half - ROWS // 2) < 600  # the seconds since the room was filled
    await full.execute("SELECT pg_stat_force_next_flush()")
    assert await full.fetchval(count) - before < 50
