"""Reports of clicks by link and by person, over HTTP, on the command line and as CSV."""

import pytest
from tests.support import command_line
from tests.support.http import Browser, open_browser
from tests.support.tracking import ADA, Desk

from postroom.db.room import Room
from postroom.http.asgi import HttpApplication
from postroom.http.auth import Authenticator
from postroom.tracking import api
from postroom.tracking.model import LinkSubject

BOB = LinkSubject(7, 42, "bob@example.org")
EVE = LinkSubject(8, 43, "eve@example.org")
SHOP, FORMULA = "https://shop.example/", "https://shop.example/?a=1&b=2"
SCANNER = {"User-Agent": "Barracuda Sentinel (EE)"}


@pytest.fixture
async def browser(room: Room) -> Browser:
    return await open_browser(room, app=HttpApplication(room, api.ENDPOINTS, auth=Authenticator(room.pool)))


@pytest.fixture
async def clicked(desk: Desk) -> Desk:
    """Ada clicks the shop twice, Bob both links, a scanner the shop for Bob, Eve in another campaign."""
    for mark, url in ((ADA, SHOP), (ADA, SHOP), (BOB, SHOP), (BOB, FORMULA), (EVE, SHOP)):
        await desk.click(mark, url)
    await desk.click(BOB, FORMULA, headers=SCANNER)
    await desk.written()
    return desk


async def test_links_of_a_campaign(clicked: Desk, browser: Browser) -> None:
    """Links are ordered by clicks, with people and machines separate, in pages."""
    first = (await browser.get("/v1/campaigns/7/links?limit=1")).json
    second = (await browser.get(f"/v1/campaigns/7/links?limit=1&cursor={first['next_cursor']}")).json
    found = [(item["url"], item["people"], item["clicks"]) for page in (first, second) for item in page["items"]]
    assert found == [(SHOP, 2, 3), (FORMULA, 1, 1)]
    assert second["items"][0]["machine_clicks"] == 1
    assert second["next_cursor"] is None


async def test_clicks_by_person(clicked: Desk, browser: Browser) -> None:
    """Clicks are filtered by campaign, person in any case, and link, in pages."""
    of_campaign = (await browser.get("/v1/clicks?campaign_id=7")).json["items"]
    assert [(item["email"], item["url"], item["clicks"]) for item in of_campaign] == [
        ("ada@example.org", SHOP, 2),
        ("bob@example.org", SHOP, 1),
        ("bob@example.org", FORMULA, 2),
    ]
    of_person = (await browser.get("/v1/clicks?email=Bob@Example.org&limit=1")).json
    rest = (await browser.get(f"/v1/clicks?email=bob@example.org&cursor={of_person['next_cursor']}")).json
    assert [item["url"] for item in (*of_person["items"], *rest["items"])] == [SHOP, FORMULA]
    of_link = (await browser.get(f"/v1/clicks?url={SHOP}")).json["items"]
    assert [item["email"] for item in of_link] == ["ada@example.org", "bob@example.org", "eve@example.org"]


async def test_clicks_need_a_filter(browser: Browser) -> None:
    """A request without a filter is rejected."""
    answer = await browser.get("/v1/clicks")
    assert (answer.status, answer.json["errors"][0]["field"]) == (400, "campaign_id")


async def test_both_reports_as_csv(clicked: Desk, browser: Browser) -> None:
    """The first page has a header line, and a response header has the cursor of the next."""
    answer = await browser.get("/v1/clicks/export?campaign_id=7&limit=1")
    assert answer.headers["content-type"].startswith("text/csv")
    head, line = answer.body.decode().splitlines()
    assert head == "email,url,clicks,is_machine,first_at,last_at"
    assert line.startswith(f"ada@example.org,{SHOP},2,")
    more = await browser.get(f"/v1/clicks/export?campaign_id=7&cursor={answer.headers['x-next-cursor']}")
    assert len(more.body.decode().splitlines()) == 2
    links = await browser.get("/v1/campaigns/7/links/export")
    assert [line.split(",")[:3] for line in links.body.decode().splitlines()[1:]] == [
        [SHOP, "2", "3"],
        [FORMULA, "1", "1"],
    ]


async def test_both_reports_on_the_command_line(clicked: Desk, database_url: str) -> None:
    """Reports are printed as a table, as JSON and, with all pages, as CSV."""
    settings = {"POSTROOM_DATABASE_URL": database_url}
    links = command_line.postroom("clicks", "links", "7", settings=settings)
    assert (links.returncode, SHOP in links.stdout) == (0, True), links.stderr
    clicks = command_line.postroom("clicks", "list", "--email", "bob@example.org", "--csv", settings=settings)
    assert len(clicks.stdout.splitlines()) == 3
    refused = command_line.postroom("clicks", "list", settings=settings)
    assert (refused.returncode, "campaign_id" in refused.stderr) == (1, True)
