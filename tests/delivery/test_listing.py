"""Listings of deliveries: filters and pages."""

from datetime import UTC, datetime, timedelta
from typing import Any, cast

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

from postroom.db.pool import Pool
from postroom.db.queries import Connection
from postroom.db.room import Room
from postroom.delivery import service
from postroom.delivery.filter import DeliveryFilter, StateFilter
from postroom.delivery.listing import pages, store
from postroom.delivery.model import Lane
from postroom.errors import BadInput
from postroom.post.address import parse_address

ADA = "cli:ada"
ENDLESS = datetime.max.replace(tzinfo=UTC)
"""Clients write the last second of the year 9999 for a period without an end."""


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
        (DeliveryFilter(state=StateFilter.QUEUED), ["c", "b"]),
        (DeliveryFilter(state=StateFilter.CANCELLED), ["a"]),
        (DeliveryFilter(recipient="ANN@example.org"), ["a"]),
        (DeliveryFilter(recipient="copy@example.org"), ["b"]),
        (DeliveryFilter(recipient="reply@example.com"), []),
        (DeliveryFilter(recipient_contains="NN@exam"), ["a"]),
        (DeliveryFilter(recipient_contains="reply@"), []),
        (DeliveryFilter(recipient_contains="_nn"), []),
        (DeliveryFilter(recipient_contains="copy", source="shop"), ["b"]),
        (DeliveryFilter(lane=Lane.TRANSACTIONAL), ["c", "b", "a"]),
        (DeliveryFilter(lane=Lane.BULK, state=StateFilter.QUEUED), []),
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
        (DeliveryFilter(created_from=datetime.min.replace(tzinfo=UTC), created_before=ENDLESS), ["c", "b", "a"]),
        (DeliveryFilter(finished_before=ENDLESS), ["a"]),
        (DeliveryFilter(created_from=NOON, created_before=NOON + timedelta(hours=1), source="shop"), ["b"]),
        (DeliveryFilter(source="shop", recipient="ann@example.org"), []),
        (DeliveryFilter(state=StateFilter.QUEUED, tags={"kind": "receipt"}), ["c"]),
        (DeliveryFilter(state=StateFilter.SENT, source="shop"), []),
        (DeliveryFilter(state=StateFilter.QUEUED, recipient_domain="example.net", source="shop"), ["b"]),
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


@pytest.mark.parametrize(
    "chosen",
    [
        DeliveryFilter(recipient="zoë@bücher.example"),
        DeliveryFilter(recipient="ZOË@BÜCHER.example"),
        DeliveryFilter(recipient="zoe\u0308@xn--bcher-kva.example"),
        DeliveryFilter(recipient_contains="ZOE\u0308@"),
        DeliveryFilter(recipient_domain="bücher.example"),
        DeliveryFilter(recipient_domain="XN--BCHER-KVA.example"),
    ],
    ids=str,
)
async def test_an_address_is_found_as_people_write_it(pool: Pool, chosen: DeliveryFilter) -> None:
    """A domain in its Unicode form or its ASCII form, in which it is stored; letters beyond ASCII in any case."""
    written = parse_address("Zoë@Bücher.example")
    await accepted(pool)
    [wanted] = await accepted(pool, a_mail(written.email))
    found, _ = await service.list_deliveries(pool, chosen)
    assert [line.id for line in found] == [wanted]


async def test_a_webhook_is_found_by_its_url(pool: Pool) -> None:
    """Text that is no address is compared as it is."""
    await accepted(pool)
    [webhook] = await accepted(pool)
    await pool.execute("UPDATE deliveries SET recipient_email = 'https://ada@example.org/hook' WHERE id = $1", webhook)
    found, _ = await service.list_deliveries(pool, DeliveryFilter(recipient="https://ada@example.org/hook"))
    assert [line.id for line in found] == [webhook]


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


@pytest.mark.parametrize("name", ["Message-ID", "Message-Id", "Message-id", "message-id", "MESSAGE-ID"])
async def test_mail_is_found_by_the_message_id_of_its_caller(pool: Pool, name: str) -> None:
    """In any spelling of the header's name, but not by another header with this value."""
    headers = {"X-Order": "7", name: "<own@shop.example>", "References": "<first@shop.example>"}
    [delivery, *_] = await accepted(
        pool,
        a_mail(headers=headers),
        a_mail(headers={"References": "<own@shop.example>", "X-Kind": "message-id"}),
    )
    found, _ = await service.list_deliveries(pool, DeliveryFilter(message_id="own@shop.example"))
    assert [line.id for line in found] == [delivery]
    assert (await service.list_deliveries(pool, DeliveryFilter(message_id="first@shop.example")))[0] == []


async def test_claimed_deliveries_are_listed(pool: Pool) -> None:
    """A delivery that a worker holds has the status `sending`."""
    [waiting, held] = await accepted(pool, a_mail(), a_mail(lane=Lane.AUTH))
    await claimed(pool, Lane.AUTH)
    assert [
        line.id for line in (await service.list_deliveries(pool, DeliveryFilter(state=StateFilter.SENDING)))[0]
    ] == [held]
    assert [line.id for line in (await service.list_deliveries(pool, DeliveryFilter(state=StateFilter.QUEUED)))[0]] == [
        waiting
    ]


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


async def test_an_indexed_filter_finds_an_old_delivery_at_once(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first page, which examines two ids here, is the last; a filter without an index needs more pages."""
    monkeypatch.setattr(pages, "WINDOWS", 1)
    wanted = a_mail(
        "ann@old.example",
        template="welcome",
        source="old",
        idempotency_key="old",
        tags={"kind": "old"},
        custom_data={"kind": "old"},
        headers={"Message-ID": "<own@old.example>"},
    )
    [old, *_] = await accepted(pool, wanted, *(a_mail() for _ in range(5)))
    await pool.execute("UPDATE deliveries SET campaign_id = 7, endpoint_id = 3 WHERE id = $1", old)
    await service.cancel(pool, old, actor=ADA)
    for chosen in (
        DeliveryFilter(message_id="own@old.example"),
        DeliveryFilter(idempotency_key="old"),
        DeliveryFilter(recipient="ann@old.example"),
        DeliveryFilter(endpoint_id=3),
        DeliveryFilter(campaign_id=7),
        DeliveryFilter(custom_data={"kind": "old"}),
        DeliveryFilter(tags={"kind": "old"}),
        DeliveryFilter(state=StateFilter.CANCELLED),
        DeliveryFilter(recipient_domain="old.example"),
        DeliveryFilter(template_id="welcome"),
        DeliveryFilter(source="old"),
    ):
        found, cursor = await service.list_deliveries(pool, chosen, limit=1)
        assert (chosen, [line.id for line in found], cursor) == (chosen, [old], None)
    unfinished = await service.list_deliveries(pool, DeliveryFilter(reason="cancelled"), limit=1)
    assert (unfinished[0], unfinished[1] is None) == ([], False)


async def test_a_part_of_an_address_is_searched_in_steps(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A page examines a bounded number of deliveries, however far apart their ids are, and says where it ended."""
    monkeypatch.setattr(pages, "EXAMINED", 7)
    [first, *_] = await accepted(pool, a_mail("ada@example.org"), *(a_mail("bob@example.org") for _ in range(6)))
    await pool.execute("SELECT setval('deliveries_id_seq', 1000000)")
    await accepted(pool, *(a_mail("bob@example.org") for _ in range(14)))
    chosen, cursor, read = DeliveryFilter(recipient_contains="Ada@"), None, list[Any]()
    for _ in range(3):
        found, cursor = await service.list_deliveries(pool, chosen, limit=2, cursor=cursor)
        read.append([line.id for line in found])
    assert (read, cursor) == ([[], [], [first]], None)


async def test_pages_of_a_part_repeat_and_skip_nothing(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages end at their last delivery or after the examined ones, whichever is first."""
    monkeypatch.setattr(pages, "EXAMINED", 6)
    ids = await accepted(pool, *(a_mail(f"{'ada' if n % 5 < 3 else 'bob'}@example.org") for n in range(20)))
    chosen = DeliveryFilter(recipient_contains="ada@")
    found, cursor = await service.list_deliveries(pool, chosen, limit=2)
    while cursor is not None:
        more, cursor = await service.list_deliveries(pool, chosen, limit=2, cursor=cursor)
        found += more
    assert [line.id for line in found] == [each for n, each in reversed([*enumerate(ids)]) if n % 5 < 3]


async def test_a_page_without_ids_runs_no_further_statement() -> None:
    """A page that found no ids asks the database nothing more: planning costs more than the search."""
    unused = cast("Connection", None)
    assert await store.match_deliveries(unused, delivery_ids=[], page_limit=51) == []
    assert await store.list_deliveries(unused, delivery_ids=[]) == []


NEWS = {"kind": "news"}


@pytest.mark.parametrize("most", [1, 5_000])
@pytest.mark.parametrize(
    "chosen",
    [
        DeliveryFilter(tags=NEWS),
        DeliveryFilter(custom_data={"of": [NEWS]}),
        DeliveryFilter(custom_data={"of": [NEWS, {"order": 7}]}, tags=NEWS),
        DeliveryFilter(custom_data={"of": []}, recipient_contains="ada"),
    ],
    ids=str,
)
async def test_pages_by_data_repeat_and_skip_nothing(
    pool: Pool, monkeypatch: pytest.MonkeyPatch, chosen: DeliveryFilter, most: int
) -> None:
    """By the index of a rare value, and among all deliveries if more than `EXAMINED` have it."""
    monkeypatch.setattr(pages, "EXAMINED", most)
    news = a_mail("ada@example.org", tags=NEWS | {"city": "Bonn"}, custom_data={"of": [{"order": 7}, NEWS]})
    ids = await accepted(pool, *(news if n % 3 else a_mail() for n in range(12)))
    found, cursor = await service.list_deliveries(pool, chosen, limit=3)
    while cursor is not None:
        more, cursor = await service.list_deliveries(pool, chosen, limit=3, cursor=cursor)
        found += more
    assert [line.id for line in found] == [each for n, each in reversed([*enumerate(ids)]) if n % 3]


async def test_no_limit_of_the_database_hides_deliveries(pool: Pool) -> None:
    """PostgreSQL returns some of the entries of an index where an operator has limited them."""
    await pool.execute("ALTER TABLE deliveries DISABLE TRIGGER USER")
    await pool.execute(
        "INSERT INTO deliveries (ladder, source, recipient_email, tags)"
        """ SELECT 'generic', 'shop', 'ada@example.org', '{"kind": "news"}' FROM generate_series(1, 2000)"""
    )
    await pool.execute("VACUUM deliveries")  # entries that wait to be merged into the index are not limited
    async with pool.acquire() as connection:
        await connection.execute("SET gin_fuzzy_search_limit = 10")
        found = await store.rare_ids(connection, tags='{"kind": "news"}', custom_data=None, id_limit=5000)
    assert len(found or ()) == 2000


async def test_a_value_is_frequent_by_its_share_of_a_sample(pool: Pool) -> None:
    """Values of 20,000 and 5,000 deliveries are frequent, of 2,000 and of none rare; by tag or custom data."""
    await pool.execute("ALTER TABLE deliveries DISABLE TRIGGER USER")
    await pool.execute(
        "INSERT INTO deliveries (ladder, source, recipient_email, tags, custom_data)"
        " SELECT 'generic', 'shop', 'ada@example.org', jsonb_build_object('all', '1', 'tenth', (n % 10)::text),"
        " CASE WHEN n % 2 = 0 THEN jsonb_build_object('half', jsonb_build_array(n % 4)) END"
        " FROM generate_series(1, 20000) AS n"
    )
    for state in ("waiting to be merged", "merged"):
        frequent = {
            value: await pool.fetchval("SELECT has_frequent_data($1::text::jsonb)", value)
            for value in ('{"all": "1"}', '{"half": [2]}', '{"tenth": "3"}', '{"all": "2"}', '{"all": 1}')
        }
        assert [*frequent.values()] == [True, True, False, False, False], state
        await pool.execute("VACUUM ANALYZE deliveries")


async def test_waiting_selects_mail_before_and_after_its_first_attempt(pool: Pool) -> None:
    """A templated mail waits as `queued` before its first attempt and as `rendered` after it: one filter has both."""
    queued, rendered, ended = await accepted(pool, *(a_mail() for _ in range(3)), now=NOON)
    await pool.execute(
        "UPDATE deliveries SET state = 'rendered', template_id = 'welcome', template_version_id = 1 WHERE id = $1",
        rendered,
    )
    await pool.execute("SELECT cancel_deliveries(ARRAY[$1::bigint], 'tests', now())", ended)
    waiting = DeliveryFilter(state=StateFilter.WAITING)
    found, _ = await service.list_deliveries(pool, waiting)
    assert [each.id for each in found] == [rendered, queued]
    assert [each.waits_for for each in found] == ["time", "time"]  # noon is in the year 2030
    searched, _ = await service.list_deliveries(pool, DeliveryFilter(state=StateFilter.WAITING, source="python"))
    assert [each.id for each in searched] == [rendered, queued]
