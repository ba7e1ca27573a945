"""HTTP endpoints of statistics: responses, groupings and errors."""

import pytest
from tests.support.builders import NOON
from tests.support.http import Browser, open_browser

from postroom.db.room import Room
from postroom.http.asgi import HttpApplication
from postroom.http.auth import Authenticator
from postroom.stats import api

WRITE = """
    INSERT INTO stat_deltas (hour, campaign_id, sender_account_id, domain, template_id, tags, metric, amount)
    SELECT $1, 7, 3, 'example.org', 'welcome', '{kind=news}', metric, amount
    FROM (VALUES ('accepted', 12), ('sent', 10), ('bounced', 2), ('returned', 2), ('opened', 9), ('opened_unique', 4),
        ('opened_machine', 3), ('clicked', 2), ('clicked_unique', 2), ('unsubscribed', 1), ('complained', 1))
        AS counted(metric, amount)
"""
FIGURES = {
    "accepted": 12,
    "sent": 10,
    "delivered": 8,
    "bounced": 2,
    "returned": 2,
    "refused": 0,
    "deferred": 0,
    "ambiguous": 0,
    "suppressed": 0,
    "cancelled": 0,
    "dead_lettered": 0,
    "opens": {"total": 9, "unique": 4, "machine": 3},
    "clicks": {"total": 2, "unique": 2, "machine": 0},
    "unsubscribes": 1,
    "complaints": 1,
    "rates": {
        "delivery": 0.8,
        "bounce": 0.2,
        "open": 0.5,
        "click": 0.25,
        "unsubscribe": 0.125,
        "complaint": 0.125,
    },
}


@pytest.fixture
async def browser(room: Room) -> Browser:
    """A key with the scope of statistics, in a room where a campaign was sent at noon."""
    await room.pool.execute(WRITE, NOON)
    app = HttpApplication(room, api.ENDPOINTS, auth=Authenticator(room.pool))
    return await open_browser(room, app=app)


async def test_summary_is_one_object(browser: Browser) -> None:
    """The summary has every figure and the rates derived from them."""
    answer = await browser.get("/v1/stats/summary?campaign_id=7")
    assert (answer.status, answer.json) == (200, FIGURES)


async def test_rows_are_by_day_by_default(browser: Browser) -> None:
    """A day is a date."""
    answer = await browser.get("/v1/stats")
    assert answer.json == {"items": [{"day": "2030-06-01", **FIGURES}], "next_cursor": None}


@pytest.mark.parametrize(
    "by, group",
    [
        ("hour", {"hour": "2030-06-01T12:00:00Z"}),
        ("campaign", {"campaign_id": 7}),
        ("sender", {"sender_id": 3}),
        ("domain", {"domain": "example.org"}),
        ("template", {"template": "welcome"}),
        ("tag&by=hour", {"tag": "kind=news", "hour": "2030-06-01T12:00:00Z"}),
        ("domain&by=sender", {"domain": "example.org", "sender_id": 3}),
    ],
)
async def test_row_has_its_grouping_columns_only(browser: Browser, by: str, group: dict[str, object]) -> None:
    """Groupings may be combined."""
    answer = await browser.get(f"/v1/stats?by={by}")
    assert answer.json["items"] == [{**group, **FIGURES}]


@pytest.mark.parametrize(
    "query, found",
    [
        ("sender_id=3&domain=EXAMPLE.org", 1),
        ("sender_id=4", 0),
        ("template=welcome", 1),
        ("template=goodbye", 0),
        ("tag=kind%3Dnews", 1),
        ("tag=kind%3Dold", 0),
        ("from=2030-06-01T12:30:00Z", 1),
        ("from=2030-06-01T13:00:00Z", 0),
        ("to=2030-06-01T12:00:00Z", 0),
        ("from=2030-06-01T00:00:00%2B02:00&to=2030-06-02T00:00:00%2B02:00", 1),
        ("from=0001-01-01T00:00:00%2B14:00&to=2030-06-02T00:00:00Z", 1),
        ("from=2030-06-01T00:00:00Z&to=9999-12-31T23:59:59-12:00", 1),
        ("from=9999-12-31T23:59:59-12:00", 0),
    ],
)
async def test_rows_are_filtered(browser: Browser, query: str, found: int) -> None:
    """Filters are sender, domain, template, tag and period; times may have any zone."""
    assert len((await browser.get(f"/v1/stats?{query}")).json["items"]) == found


@pytest.mark.parametrize(
    "query, field",
    [
        ("by=week", "by"),
        ("by=hour&by=day", "by"),
        ("campaign_id=-1", "campaign_id"),
        ("from=2030-06-01T12:00:00", "from"),
        ("from=2030-06-02T00:00:00Z&to=2030-06-01T00:00:00Z", "to"),
        ("limit=0", "limit"),
        ("template=welcome&sender_id=3", "template"),
        ("by=tag&by=domain", "tag"),
        ("campaign=7", "campaign"),
    ],
)
async def test_invalid_parameters_are_named(browser: Browser, query: str, field: str) -> None:
    """The problem names the invalid parameter."""
    answer = await browser.get(f"/v1/stats?{query}")
    assert (answer.status, answer.fields[0].split("[")[0]) == (400, field)
