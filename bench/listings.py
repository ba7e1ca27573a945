"""Every listing of the API and the dashboard, the values its filters are tried with, and the rows it is tried among.

The endpoints and their filters are not named here: `offered_listings` reads the table of endpoints, and the filters of
a page are those of its form. A listing or a filter that is new and has no values here fails a test.
"""

import contextlib
import itertools
import re
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import urlencode

import asyncpg
from msgspec import Struct

from bench.statements import read_statements
from postroom.dashboard.endpoints import ENDPOINTS
from postroom.http.asgi import api_endpoints
from postroom.settings import Settings

SQL = read_statements(Path(__file__).with_suffix(".sql"))
HALF = "half"
"""A value that stands for a time in the middle of the rows."""


@dataclass(frozen=True)
class Listing:
    """A listing: its addresses in API and dashboard, and values of each filter: of few rows, of none, of most.

    The value "old" of a filter of deliveries is that of most, but of none of the newest third.

    `fills` are the statements that make its rows, in order: each is named after its table.
    """

    name: str
    paths: tuple[str, ...]
    fills: tuple[str, ...]
    values: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    needs: tuple[str, ...] = ()  # at least one of these is required
    alone: tuple[str, ...] = ()  # not together with others
    also: Mapping[str, str] = field(default_factory=dict)  # given with each two filters, if the path offers it


ADDRESS = ("reader-5000@domain-0.example", "no-one@nowhere.example")
TIMES = (HALF,)
QUERY = '[{"types": ["Rare"], "tags": ["bank=1"]}]'
LISTINGS = (
    Listing(
        "deliveries",
        ("/v1/deliveries", "/deliveries"),
        ("deliveries", "other_recipients", "unsent_deliveries", "due_deliveries"),
        {
            "status": ("failed", "dead_letter", "suppressed", "sent", "queued", "rendered", "sending"),
            "lane": ("auth", "bulk"),
            "recipient": ("ada@rare.example", "no-one@nowhere.example", "old@old.example"),
            "recipient_contains": ("da@rare", "nowhere", "old@"),
            **dict.fromkeys(("recipient_domain", "domain"), ("rare.example", "nowhere.example", "old.example")),
            "template": ("rare", "none", "old", "usual"),
            "source": ("rare", "none", "old", "usual"),
            **dict.fromkeys(("idempotency_key", "key"), ("key-5000", "none")),
            "message_id": ("pr.5000.0123456789abcdef@example.org", "none@example.org", "rare@example.org"),
            "tag": ("kind=rare", "kind=none", "kind=some", "kind=old", "all=1"),
            **dict.fromkeys(("campaign_id", "campaign", "sender_account_id", "sender"), ("77", "99", "1")),
            **dict.fromkeys(("created_from", "created_before", "finished_before", "from", "before"), TIMES),
            "reason": ("rare", "none", "old"),
            "custom_data": (
                '{"kind": ["rare"]}',
                '{"kind": ["none"]}',
                '{"kind": ["old"], "all": {}}',
                '{"all": {"1": true}}',
            ),
        },
    ),
    Listing(
        "suppressions",
        ("/v1/suppressions", "/suppressions"),
        ("suppressions",),
        {
            "email": ADDRESS,
            "reason": ("complaint", "unsubscribe", "manual"),
            "origin": ("rare", "none", "bounce"),
        },
    ),
    Listing(
        "audit",
        ("/v1/audit", "/audit"),
        ("audit_log",),
        {
            "actor": ("operator:ada@rare.example", "cli:none", "key:7:ci"),
            "person": ("ada@rare.example", "none@rare.example"),
            "action": ("key.revoke", "key", "none", "suppression.add", "delivery"),
            "subject": ("delivery:5000", "delivery:0"),
            **dict.fromkeys(("recorded_from", "recorded_before", "from", "before"), TIMES),
        },
    ),
    Listing(
        "bounces",
        ("/v1/bounces",),
        ("bounces",),
        {
            "email": ADDRESS,
            "delivery_id": ("5000", "999999999"),
            "kind": ("complaint", "unsubscribe", "bounce"),
            "verified": ("true", "false"),
        },
    ),
    Listing(
        "malformed",
        ("/v1/malformed-commands", "/malformed"),
        ("malformed_commands",),
        {
            "reason": ("rare", "none", "bad_json"),
            "source": ("rare", "none", "till"),
            "resubmitted": ("true", "false"),
            "dismissed": ("true", "false"),
            "state": ("resubmitted", "waiting"),
        },
    ),
    Listing(
        "accounts",
        ("/v1/accounts", "/accounts"),
        ("accounts",),
        {"email": ADDRESS, "login": ("reader-5000", "none"), "status": ("suspended", "active")},
    ),
    Listing("people", ("/v1/users", "/people"), ("users",), {"email": ADDRESS}),
    Listing(
        "schedule",
        ("/v1/scheduled-events", "/schedule"),
        ("users", "scheduled_events"),
        {
            "status": ("FAILED", "PROCESSING", "COMPLETED", "PENDING"),
            "kind": ("REMINDER", "BIRTHDAY"),
            "user_id": ("a35fe7f7-fe82-17b4-369a-0af4244d1fca",),
            "late": ("true", "false"),
            "due_from": TIMES,
            "due_before": TIMES,
            "order": ("soonest",),
        },
    ),
    Listing(
        "campaigns",
        ("/v1/campaigns", "/campaigns"),
        ("campaigns",),
        {"status": ("draft", "paused", "completed"), "name": ("rare", "none", "letter")},
    ),
    Listing(
        "recipients",
        ("/v1/campaigns/1/recipients", "/campaigns/1/people"),
        ("campaign_zones", "campaign_recipients"),
        {
            "state": ("suppressed", "cancelled", "waiting", "fed"),
            "custom_data": ('{"plan": "rare"}', '{"plan": "none"}', '{"plan": "usual"}'),
            "email": ADDRESS,
            "result": ("suppressed", "bounced", "fed"),
        },
    ),
    Listing(
        "clicks",
        ("/v1/clicks",),
        ("campaign_zones", "click_events"),
        {
            "campaign_id": ("1", "99"),
            "email": ("reader-5000@domain-0.example", "no-one@nowhere.example"),
            "url": ("https://example.org/rare", "https://example.org/none", "https://example.org/7"),
        },
        needs=("campaign_id", "email", "url"),
    ),
    Listing(
        "dead-letters",
        ("/v1/dead-letters", "/dead-letters"),
        ("deliveries_given_up", "dead_letters"),
        {"reason": ("ambiguous", "attempts_exhausted", "max_age")},
    ),
    Listing(
        "commands",
        ("/v1/commands", "/events/commands"),
        ("commands",),
        {"transaction_id": ("2500", "99999999")},
    ),
    Listing(
        "events",
        ("/v1/events", "/events"),
        ("event_clock", "events", "event_tags"),
        {
            "type": ("Rare", "None", "Deposited"),
            "tag": ("wallet=250", "wallet=none", "side=in"),
            "or_type": ("Rare", "Withdrawn"),
            "and_tag": ("bank=1", "side=out"),
            "from": TIMES,
            "before": TIMES,
            "backwards": ("true",),
            "query": (QUERY,),
        },
        alone=("query",),
        also={"backwards": "true"},  # only a search is bounded; a read in the order of the store misses no event
    ),
    Listing("mass-actions", ("/v1/mass-actions", "/deliveries/mass-actions"), ("mass_actions",)),
    Listing("erasures", ("/v1/erasures",), ("erasures",)),
)

FEW = {
    "/campaigns/{campaign_id:int}/links": "counted for each link of a campaign",
    "/campaigns/{campaign_id:int}/links.csv": "a file of all",
    "/statistics": "figures, measured by `bench dashboard`",
    "/statistics.csv": "figures, measured by `bench dashboard`",
    "/suppressions/export": "a file of all",
    "/v1/archive": "a few pieces of each month",
    "/v1/domains": "configured by operators",
    "/v1/inbox": "holds the newest 500 messages",
    "/v1/keys": "configured by operators",
    "/v1/operators": "configured by operators",
    "/v1/senders": "configured by operators",
    "/v1/templates/{template_id}/versions": "one for each change of a template",
    "/v1/webhooks": "configured by operators",
    "/v1/suppressions/export": "a file of all",
    "/v1/clicks/export": "a file of all",
    "/v1/campaigns/{campaign_id:int}/links": "counted for each link of a campaign",
    "/v1/campaigns/{campaign_id:int}/links/export": "a file of all",
    "/v1/webhooks/{endpoint_id:int}/deliveries": "the listing of deliveries by endpoint",
    "/v1/users/{user_id:uuid}/events": "the listing of events by person",
}
"""Listings that are not measured with rows of their own, and why."""

PAGING = {"cursor", "limit"}


def offered_listings() -> dict[str, set[str]]:
    """The listings of the API, by the table of endpoints, and the filters that each offers."""
    endpoints = api_endpoints(Settings(database_url="postgresql://"))
    filters = {each.path: set(_parameters(each.query)) for each in endpoints if each.method == "GET"}
    return {path: names - PAGING for path, names in filters.items() if names >= PAGING}


def _parameters(query: type | None) -> tuple[str, ...]:
    """The names of query parameters as clients write them."""
    return query.__struct_encode_fields__ if query is not None and issubclass(query, Struct) else ()


def offered_filters(path: str) -> set[str]:
    """The filters of the endpoint that serves a path."""
    return next(filters for pattern, filters in offered_listings().items() if serves(pattern, path))


def serves(pattern: str, path: str) -> bool:
    parts = list(zip(pattern.split("/"), path.split("/"), strict=False))
    return pattern.count("/") == path.count("/") and all(part[:1] == "{" or part == given for part, given in parts)


def page_filters(html: str) -> set[str]:
    """The filters of a page of the dashboard, from its form."""
    found = re.search(r'<form class="filters".*?</form>', html, re.DOTALL)
    return set(re.findall(r'<(?:input|select) name="(\w+)"', found[0])) if found else set()


def listing_pages() -> set[str]:
    """The pages of the dashboard that list records."""
    return {each.path for each in ENDPOINTS if each.method == "GET" and each.from_replica}


def listing_rows() -> list[str]:
    """The rows of the report: each path with no filter and with each value of each filter."""
    requests = ((path, name) for each in LISTINGS for path in each.paths for name in _single(each))
    return [f"list {path} {name}".rstrip() for path, name in requests]


def _single(listing: Listing) -> list[str]:
    return [
        *([] if listing.needs else [""]),
        *(f"{name}={each}" for name in listing.values for each in listing.values[name]),
    ]


def targets(listing: Listing, path: str, filters: set[str], *, most: int = 1) -> Iterator[tuple[str, str]]:
    """Each request with up to `most` of these filters together, and a short name of it."""
    for count in range(most + 1):
        for names in itertools.combinations(sorted(filters), count):
            is_complete = not listing.needs or set(names) & set(listing.needs)
            if not is_complete or (count > 1 and set(names) & set(listing.alone)):
                continue
            for values in itertools.product(*(listing.values[name] for name in names)):
                chosen = dict(zip(names, map(written, values), strict=True))
                if count > 1:
                    chosen |= {name: value for name, value in listing.also.items() if name in filters}
                named = " ".join(f"{name}={value}" for name, value in zip(names, values, strict=True))
                yield f"{path}?{urlencode(chosen)}", f"list {path} {named}".rstrip()


def written(value: str) -> str:
    return (datetime.now(UTC) - timedelta(days=15)).strftime("%Y-%m-%dT%H:%M:%SZ") if value == HALF else value


async def fill(connection: asyncpg.Connection, listing: Listing, rows: int) -> None:
    """Make the rows of a listing; the indexes of their tables are built afterwards."""
    await connection.execute(SQL["begin_fill"])
    for name in listing.fills:
        async with _without_indexes(connection, TABLES.get(name, name)):
            await connection.execute(SQL[f"fill_{name}"], rows, timeout=3600)


TABLES = {"deliveries_given_up": "deliveries"}
"""Fills that are not named after their table."""


@contextlib.asynccontextmanager
async def _without_indexes(connection: asyncpg.Connection, table: str) -> AsyncIterator[None]:
    await connection.execute(f"ALTER TABLE {table} DISABLE TRIGGER USER")
    for key in await connection.fetch(SQL["list_foreign_keys"], table):
        await connection.execute(f"ALTER TABLE {table} DROP CONSTRAINT {key['name']}")
    indexes = await connection.fetch(SQL["list_indexes"], table)
    for index in indexes:
        await connection.execute(f"DROP INDEX {index['name']}")
    yield
    for index in indexes:
        await connection.execute(index["definition"], timeout=3600)
    await connection.execute(f"VACUUM ANALYZE {table}", timeout=3600)


async def empty(connection: asyncpg.Connection, listing: Listing) -> None:
    tables = {TABLES.get(name, name) for name in listing.fills} - {"event_clock"}
    await connection.execute(f"TRUNCATE {', '.join(sorted(tables | {'campaigns', 'users'}))} RESTART IDENTITY CASCADE")
