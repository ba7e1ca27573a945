"""Opens and clicks over HTTP: responses, events and counts."""

import struct

import pytest
from tests.support.tracking import ADA, APPLE, FIREFOX, Desk

from postroom.tracking.model import LinkSubject

BOB = LinkSubject(7, 42, "bob@example.net")
NOBODY = LinkSubject(None, 43, "cy@example.org")
GMAIL = "Mozilla/5.0 (Windows NT 5.1; rv:11.0) Gecko Firefox/11.0 (via ggpht.com GoogleImageProxy)"


def broken(url: str) -> str:
    """The link with one character of its token changed."""
    base, _, token = url.rpartition("/")
    first = "A" if token[0] != "A" else "B"
    return f"{base}/{first}{token[1:]}"


async def test_open_returns_the_pixel_and_is_recorded(desk: Desk) -> None:
    """The response is an uncacheable GIF of 43 bytes, and a row has person, time, origin and agent."""
    answer = await desk.open()
    await desk.written()
    assert (answer.status, len(answer.body), answer.headers["content-type"]) == (200, 43, "image/gif")
    assert answer.headers["cache-control"] == "no-store"
    assert "set-cookie" not in answer.headers
    [row] = await desk.rows("SELECT *, host(ip_address) AS ip, now() - opened_at < '1 hour' AS fresh FROM open_events")
    found = [row[name] for name in ("email_queue_id", "campaign_id", "recipient_email", "ip", "user_agent", "fresh")]
    assert found == [41, 7, "ada@example.org", "127.0.0.1", FIREFOX, True]
    assert (row["is_machine"], row["agent_kind"], row["country"]) == (False, "person", None)


async def test_pixel_is_a_transparent_gif(desk: Desk) -> None:
    """The GIF is 1 × 1, transparent, and properly terminated."""
    body = (await desk.open()).body
    assert body[:6] == b"GIF89a"
    assert struct.unpack("<HH", body[6:10]) == (1, 1)
    assert body[19:23] == b"\x21\xf9\x04\x01"
    assert body[-1:] == b";"


async def test_click_redirects_and_is_recorded(desk: Desk) -> None:
    """The response is an uncacheable 302 without a referrer, and a row has the link."""
    answer = await desk.click(url="https://shop.example/?a=1&b=2#top")
    await desk.written()
    assert (answer.status, answer.headers["location"]) == (302, "https://shop.example/?a=1&b=2#top")
    assert (answer.headers["cache-control"], answer.headers["referrer-policy"]) == ("no-store", "no-referrer")
    [row] = await desk.rows("SELECT email_queue_id, campaign_id, recipient_email, link_url FROM click_events")
    assert tuple(row) == (41, 7, "ada@example.org", "https://shop.example/?a=1&b=2#top")
    assert await desk.value("SELECT count(*) FROM open_events") == 0


@pytest.mark.parametrize(
    "url, location",
    [
        ("https://shop.example/caf\u00e9?q=a b", "https://shop.example/caf%C3%A9?q=a%20b"),
        ("https://b\u00fccher.example/\u00fc", "https://xn--bcher-kva.example/%C3%BC"),
        ("https://shop.example/a\r\nSet-Cookie: x=1", "https://shop.example/aSet-Cookie:%20x=1"),
        ("HTTPS://Shop.Example/%20%zz", "HTTPS://Shop.Example/%20%zz"),
    ],
)
async def test_target_is_a_safe_header(desk: Desk, url: str, location: str) -> None:
    """Non-ASCII characters are encoded, and line breaks cannot enter the response."""
    answer = await desk.click(url=url)
    assert (answer.status, answer.headers["location"]) == (302, location)
    assert "set-cookie" not in answer.headers


@pytest.mark.parametrize("target", ["open", "click", "other purpose", "empty", "long", "not base64", "truncated"])
async def test_forged_link_records_nothing(desk: Desk, target: str) -> None:
    """The pixel is served, a forged click does not redirect, and no row is written."""
    click = desk.signer.click_url(ADA, "https://shop.example/")
    opening = desk.signer.open_url(ADA)
    token = click.rpartition("/")[2]
    links = {
        "open": broken(opening),
        "click": broken(click),
        "other purpose": opening.replace("/track/open/", "/track/click/").removesuffix(".gif"),
        "empty": "/track/click/",
        "long": "/track/click/" + "A" * 9000,
        "not base64": "/track/click/" + token[:-1] + "!",
        "truncated": click[:-4],
    }
    answer = await desk.get(links[target])
    if target == "open":
        assert (answer.status, len(answer.body)) == (200, 43)
    else:
        assert answer.status == 404
        assert b"<h1>This link does not work</h1>" in answer.body
        assert "location" not in answer.headers
    assert len(desk.buffer) == 0
    assert await desk.value("SELECT count(*) FROM engagements") == 0


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE"])
async def test_links_allow_get_and_head_only(desk: Desk, method: str) -> None:
    """Other methods get 405 with the allowed ones."""
    for url in (desk.signer.open_url(ADA), desk.signer.click_url(ADA, "https://shop.example/")):
        answer = await desk.ask(method, url)
        assert (answer.status, answer.headers["allow"]) == (405, "GET, HEAD")
    assert len(desk.buffer) == 0


async def test_head_counts_as_a_machine(desk: Desk) -> None:
    """HEAD gets the headers without a body, and counts as a scanner."""
    answer = await desk.ask("HEAD", desk.signer.open_url(ADA))
    assert (answer.status, answer.headers["content-length"], answer.body) == (200, "43", b"")
    assert (await desk.ask("HEAD", desk.signer.click_url(ADA, "https://shop.example/"))).status == 302
    await desk.written()
    assert await desk.value("SELECT is_machine AND agent_kind = 'scanner' FROM open_events") is True
    assert await desk.value("SELECT is_machine AND agent_kind = 'scanner' FROM click_events") is True


async def test_people_and_machines_are_counted_separately(desk: Desk) -> None:
    """Every open counts, machines also separately, and unique opens count each delivery that a person opened once."""
    for mark, agent in ((ADA, APPLE), (ADA, FIREFOX), (ADA, FIREFOX), (BOB, APPLE), (NOBODY, GMAIL)):
        await desk.open(mark, headers={"User-Agent": agent})
        await desk.written()
    for mark, agent in ((ADA, "Barracuda Sentinel (EE)"), (ADA, FIREFOX), (NOBODY, FIREFOX)):
        await desk.click(mark, headers={"User-Agent": agent})
    await desk.written()
    assert await desk.figures() == {
        "opened": 5, "opened_machine": 2, "opened_unique": 2, "clicked": 3, "clicked_machine": 1, "clicked_unique": 2,
    }  # fmt: skip
    rows = await desk.rows(
        "SELECT delivery_id, first_open_at < first_human_open_at AS machine_first, first_click_at IS NOT NULL"
        " FROM engagements ORDER BY delivery_id"
    )
    assert [tuple(row) for row in rows] == [(41, True, True), (42, None, False), (43, False, True)]


async def test_figures_have_campaign_sender_domain_template_and_tags(desk: Desk) -> None:
    """Statistics are kept per campaign, sender account, recipient domain, template and tag."""
    await desk.pool.execute(
        "INSERT INTO deliveries (id, state, finished_at, ladder, source, recipient_email, sender_account_id,"
        " template_id, tags)"
        """ VALUES (41, 'sent', now(), 'generic', 'test', 'ada@example.org', 5, 'news', '{"kind": "weekly"}')"""
    )
    await desk.open(ADA)
    await desk.open(NOBODY)
    await desk.written()
    rows = await desk.rows(
        "SELECT campaign_id, sender_account_id, domain, template_id, tags FROM stat_deltas"
        " WHERE metric = 'opened' AND hour IN (SELECT date_trunc('hour', opened_at, 'UTC') FROM open_events)"
        " ORDER BY campaign_id"
    )
    assert [tuple(row) for row in rows] == [
        (7, 5, "example.org", "news", ["kind=weekly"]),
        (None, None, "example.org", None, None),
    ]


async def test_hits_of_one_batch_are_counted_separately(desk: Desk) -> None:
    """Hits that are written together count as if written separately."""
    for _ in range(3):
        for mark in (ADA, BOB):
            await desk.open(mark)
            await desk.click(mark)
    await desk.written()
    assert await desk.figures() == {"opened": 6, "opened_unique": 2, "clicked": 6, "clicked_unique": 2}
    assert await desk.value("SELECT count(*) FROM open_events") == 6


async def test_user_agent_is_stored_truncated(desk: Desk) -> None:
    """A User-Agent of any length is stored with a bounded length."""
    await desk.open(headers={"User-Agent": "x" * 5000})
    await desk.open(headers={"User-Agent": "caf\u00e9"})
    await desk.written()
    rows = await desk.rows("SELECT length(user_agent) AS length FROM open_events ORDER BY 1")
    assert [row["length"] for row in rows] == [5, 512]
