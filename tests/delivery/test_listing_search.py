"""Pages of deliveries by every filter, beside a search that reads the whole table."""

import random
from collections.abc import Awaitable, Callable
from dataclasses import fields
from datetime import timedelta
from itertools import combinations, product
from typing import Any

import msgspec
import pytest
from tests.support.builders import NOON, QUEUE_WAITING, a_mail, accepted

from postroom.db.pool import Pool
from postroom.db.room import Room
from postroom.delivery import service
from postroom.delivery.filter import DeliveryFilter, StateFilter
from postroom.delivery.listing import pages
from postroom.delivery.model import DeliveryState, Lane

SEED = 7
"""The rows and the searches are the same in each run."""

ROWS = 400
SEARCHES = 200
EXAMINED = 30
"""So few that windows end in the middle of a page, and that values of tags and custom data are rare and frequent."""

FILLS = (
    """
    INSERT INTO deliveries (id, state, lane, claim_id, next_attempt_at, created_at, finished_at, reason, ladder, source,
        template_id, template_version_id, campaign_id, endpoint_id, sender_account_id, tags, custom_data,
        idempotency_key, request_fingerprint, idempotency_expires_at, recipient_email)
    SELECT id, state::delivery_state, lane::delivery_lane, CASE state WHEN 'sending' THEN 1 END,
        CASE WHEN state IN ('queued', 'rendered') THEN at + wait * interval '1 second' END, at,
        CASE WHEN state NOT IN ('queued', 'rendered', 'sending') THEN at + wait * interval '1 second' END, reason,
        'generic', source, template, 1, campaign, endpoint, sender, tags, custom_data, key,
        CASE WHEN key IS NOT NULL THEN 0 END, CASE WHEN key IS NOT NULL THEN at END, email
    FROM jsonb_to_recordset($1::text::jsonb) AS r(id bigint, state text, lane text, at timestamptz, wait integer,
        reason text, source text, template text, campaign bigint, endpoint bigint, sender bigint, tags jsonb,
        custom_data jsonb, key text, email text)
    """,
    """
    INSERT INTO other_recipients (delivery_id, kind, position, email)
    SELECT id, (other ->> 0)::recipient_kind, place, other ->> 1
    FROM jsonb_to_recordset($1::text::jsonb) AS r(id bigint, others jsonb),
        jsonb_array_elements(others) WITH ORDINALITY AS o(other, place)
    """,
    """
    INSERT INTO delivery_payloads (delivery_id, headers)
    SELECT id, headers FROM jsonb_to_recordset($1::text::jsonb) AS r(id bigint, headers jsonb)
    """,
    """
    INSERT INTO attempts (delivery_id, attempt_no, outcome, lane, started_at, finished_at, message_id)
    SELECT id, n, 'deferred', 'bulk', at, at, '<pr.' || id || '.0123456789abcdef@example.org>'
    FROM jsonb_to_recordset($1::text::jsonb) AS r(id bigint, at timestamptz, attempts integer),
        generate_series(1, attempts) AS n
    """,
)
FOLLOW = (
    QUEUE_WAITING,
    """
    INSERT INTO unsent_deliveries (id, state)
    SELECT id, state FROM deliveries WHERE state IN ('failed', 'dead_letter', 'cancelled', 'suppressed')
    """,
    """
    INSERT INTO claims (lane, worker_id, claimed_at, expires_at, delivery_ids)
    SELECT 'bulk', 1, now(), now(), array_agg(id)
    FROM deliveries
    WHERE state IN ('sending', 'sent') -- those done are still listed
    GROUP BY id % 5
    """,
)

EMAILS = (
    "ada@example.org", "Ada@Example.ORG", "bob@example.org", "b_b%@example.net", "eve@sub.example.org",
    "zoë@xn--bcher-kva.example", '"a@b"@example.net', "adam@other.example",
)  # fmt: skip
DATA: tuple[dict[str, Any] | None, ...] = (
    None, {}, {"order": 7}, {"order": "7", "x": {"y": {"z": None}}}, {"of": [{"kind": "news"}, {"n": 1}]}, {"of": []},
    {"of": [{"kind": "news", "n": 1}]}, {"list": [1, [2, 3]], "x": {"y": {}}}, {"n": 1.5, "big": 2**60},
)  # fmt: skip
TAGS: tuple[dict[str, str] | None, ...] = (
    None,
    {},
    {"kind": "news"},
    {"kind": "news", "city": "Bonn"},
    {"kind": "", "é": "ü"},
)
HEADERS = (
    None, {"Message-ID": "<own@shop.example>"}, {"X-Order": "7", "message-id": "<own@shop.example>"},
    {"Message-Id": "<other@shop.example>"}, {"References": "<own@shop.example>"},
)  # fmt: skip

HAS = "EXISTS (SELECT FROM delivery_recipients AS r WHERE delivery_id = d.id AND kind <> 'reply_to' AND {})"
CONDITIONS = {
    "state": "CASE {0}::text WHEN 'waiting' THEN state IN ('queued', 'rendered') ELSE state::text = {0} END",
    "lane": "lane::text = {}",
    "recipient": HAS.format("lower(email) = lower({})"),
    "recipient_contains": HAS.format("position(lower({}) IN lower(email)) > 0"),
    "recipient_domain": HAS.format("lower(regexp_replace(email, '.*@', '')) = lower({})"),
    "template_id": "template_id = {}",
    "source": "source = {}",
    "idempotency_key": "idempotency_key = {}",
    "message_id": "(EXISTS (SELECT FROM attempts WHERE delivery_id = d.id AND message_id = {0}) OR EXISTS (SELECT"
    " FROM delivery_payloads AS p, jsonb_each_text(headers) AS h WHERE p.delivery_id = d.id AND headers <> 'null'"
    " AND lower(h.key) = 'message-id' AND h.value = {0}))",
    "campaign_id": "campaign_id = {}",
    "endpoint_id": "endpoint_id = {}",
    "sender_account_id": "sender_account_id = {}",
    "tags": "tags @> {}::jsonb",
    "custom_data": "custom_data @> {}::jsonb",
    "created_from": "created_at >= {}",
    "created_before": "created_at < {}",
    "finished_before": "finished_at < {}",
    "reason": "reason = {}",
    "ids": "id = ANY ({}::bigint[])",
}
"""Filter → its meaning, written without regard to indexes."""

TIMES = tuple(NOON + timedelta(seconds=seconds) for seconds in range(ROWS // 10, ROWS, ROWS // 5))
"""Between deliveries whose ids do not follow their times."""

VALUES: dict[str, tuple[Any, ...]] = {
    "state": tuple(StateFilter),
    "lane": tuple(Lane),
    "recipient": (
        "ADA@example.org",
        "b_b%@example.net",
        '"a@b"@example.net',
        "zoë@xn--bcher-kva.example",
        "no@example.org",
    ),
    "recipient_contains": ("ada@", "_", "%", "EXAMPLE", "@b"),
    "recipient_domain": ("Example.org", "example.net", "xn--bcher-kva.example", "nowhere.example"),
    "template_id": ("welcome", "none"),
    "source": ("shop", "rare"),
    "idempotency_key": ("order", "key-30"),
    "message_id": ("<own@shop.example>", "<pr.500.0123456789abcdef@example.org>", "<no@shop.example>"),
    "campaign_id": (7, 9),
    "endpoint_id": (3, 9),
    "sender_account_id": (5, 9),
    "tags": (*TAGS[1:], {"kind": "none"}),
    "custom_data": (*DATA[1:], {"of": [{"n": 1}, {"kind": "news"}]}, {"x": {"y": {}}}, {"list": [[2]]}, {"none": 1}),
    "created_from": TIMES,
    "created_before": TIMES,
    "finished_before": TIMES,
    "reason": ("refused", "none"),
    "ids": (tuple(range(0, 2000, 3)), ()),
}


def random_row(dice: random.Random, n: int, id_: int) -> dict[str, Any]:
    """A delivery; ids follow times to within seconds, and some times are equal."""
    kinds = ("to", "cc", "bcc", "reply_to")
    key = "order" if n % 40 == 0 else f"key-{n}" if n % 3 == 0 else None
    return {
        "id": id_,
        "state": dice.choices(tuple(DeliveryState), (3, 2, 2, 12, 1, 1, 1, 1))[0],
        "lane": dice.choice(tuple(Lane)),
        "at": NOON + timedelta(seconds=n // 3 * 3 + dice.choice((0, dice.uniform(-4, 4)))),
        "wait": dice.choice((0, 1, 3000)),
        "reason": dice.choice(("refused", "max_age")),
        "source": f"source-{n}" if key == "order" else dice.choices(("shop", "crm", "rare"), (9, 9, 1))[0],
        "template": dice.choice((None, "welcome")),
        "campaign": dice.choice((None, 7)),
        "endpoint": dice.choice((None, 3)),
        "sender": dice.choice((None, 5)),
        "tags": dice.choice(TAGS),
        "custom_data": dice.choice(DATA),
        "key": key,
        "email": dice.choice(EMAILS),
        "others": [(dice.choice(kinds), dice.choice(EMAILS)) for _ in range(dice.choice((0, 0, 0, 1, 5)))],
        "headers": dice.choice(HEADERS),
        "attempts": dice.choice((0, 1, 3)),
    }


async def fill(pool: Pool, dice: random.Random) -> None:
    id_, rows = 400, list[dict[str, Any]]()
    for n in range(ROWS):
        id_ += dice.choice((1, 1, 1, 2, 5, 700))
        rows.append(random_row(dice, n, id_))
    text = msgspec.json.encode(rows).decode()
    async with pool.acquire() as connection:
        for statement in FILLS:
            await connection.execute(statement, text)
        for statement in FOLLOW:
            await connection.execute(statement)
        await connection.execute("SELECT setval('deliveries_id_seq', $1)", id_)


@pytest.fixture(scope="module")
async def full(shared_room: Room) -> Pool:
    """A room with random deliveries."""
    await fill(shared_room.pool, random.Random(SEED))
    return shared_room.pool


async def expected(pool: Pool, given: dict[str, Any]) -> list[int]:
    """The deliveries that match, by a search of all."""
    where = " AND ".join(CONDITIONS[name].format(literal(value)) for name, value in given.items()) or "true"
    return [row["id"] for row in await pool.fetch(f"SELECT id FROM deliveries AS d WHERE {where} ORDER BY id DESC")]


def literal(value: Any) -> str:
    if isinstance(value, tuple):
        return "'{" + ",".join(map(str, value)) + "}'"
    text = msgspec.json.encode(value).decode() if isinstance(value, dict) else str(value)
    return "'" + text.replace("'", "''") + "'"


async def nothing() -> None:
    return


async def follow(
    pool: Pool, given: dict[str, Any], limit: int, between: Callable[[], Awaitable[None]] = nothing
) -> list[int]:
    """The deliveries of all pages."""
    found, cursor = await service.list_deliveries(pool, DeliveryFilter(**given), limit=limit)
    while cursor is not None:
        await between()
        more, cursor = await service.list_deliveries(pool, DeliveryFilter(**given), limit=limit, cursor=cursor)
        assert len(more) <= limit
        found += more
    return [line.id for line in found]


def searches(most: int) -> list[dict[str, Any]]:
    """Every combination of values of so many filters."""
    return [
        dict(zip(names, values, strict=True))
        for names in combinations(VALUES, most)
        for values in product(*(VALUES[name] for name in names))
    ]


def test_every_filter_is_searched() -> None:
    """A new filter of deliveries needs values here, and its meaning."""
    assert {*VALUES} == {*CONDITIONS} == {each.name for each in fields(DeliveryFilter)}


@pytest.mark.parametrize("names", [0, 1, 2, 3])
async def test_pages_have_what_a_search_of_all_finds(full: Pool, monkeypatch: pytest.MonkeyPatch, names: int) -> None:
    """In the same order, each once, however the filters are combined and however long the pages are."""
    monkeypatch.setattr(pages, "EXAMINED", EXAMINED)
    known, dice = searches(names), random.Random(SEED)
    for given in dice.sample(known, min(SEARCHES, len(known))):
        limit = dice.choice((3, 10, 50, 200))
        assert (given, await follow(full, given, limit)) == (given, await expected(full, given))


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"source": "shop"},
        {"recipient_domain": "example.org"},
        {"recipient_contains": "ada@"},
        {"tags": {"kind": "news"}},
        {"state": StateFilter.QUEUED},
        {"state": StateFilter.CANCELLED, "created_before": TIMES[2]},
    ],
    ids=str,
)
async def test_changes_between_pages_hide_no_delivery(
    pool: Pool, monkeypatch: pytest.MonkeyPatch, given: dict[str, Any]
) -> None:
    """Deliveries that match all the time are found, while others arrive, are cancelled or deleted."""
    monkeypatch.setattr(pages, "EXAMINED", EXAMINED)
    dice = random.Random(SEED)
    await fill(pool, dice)

    async def change() -> None:
        await accepted(pool, a_mail("ada@example.org", source="shop", tags={"kind": "news"}))
        waiting = await expected(pool, {"state": StateFilter.QUEUED})
        await service.cancel(pool, dice.choice(waiting), actor="cli:ada")
        await pool.execute("DELETE FROM deliveries WHERE id = $1", dice.choice(await expected(pool, {})))

    before = {*await expected(pool, given)}
    found = await follow(pool, given, 10, change)
    assert found == sorted(set(found), reverse=True)
    assert {*found} >= before & {*await expected(pool, given)}
    assert {*found} <= before | {*await expected(pool, given)}
