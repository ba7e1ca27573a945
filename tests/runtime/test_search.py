"""Pages of searches that read a bounded number of rows."""

from typing import Any

from postroom.db.pool import Pool
from postroom.feedback import store as feedback
from postroom.runtime.page import search_page
from postroom.tracking import store as tracking

SUPPRESSED = """
    INSERT INTO suppressions (address, scope, reason, origin)
    SELECT n || '@example.org', 'all',
        (CASE WHEN n % 7 = 0 THEN 'complaint' ELSE 'manual' END)::suppression_reason, 'import'
    FROM generate_series(1, 30) AS n
"""
CLICKED = """
    INSERT INTO click_events (email_queue_id, campaign_id, recipient_email, link_url)
    SELECT n, 1, CASE WHEN n <= 5 THEN 'busy' ELSE 'person' || n / 2 END || '@example.org',
        'https://example.org/' || n % 2
    FROM generate_series(1, 20) AS n
"""
LINKS = {"after_address": ("email", str), "after_link": ("url", str)}


async def pages_of(statement: Any, pool: Pool, **options: Any) -> list[list[Any]]:
    """All pages of a search, two items each, which reads three rows for a page."""
    pages, cursor = [], None
    while True:
        found, cursor = await search_page(statement, pool, cursor, 2, bound=3, **options)
        pages.append(found)
        if cursor is None:
            return pages


async def test_a_search_continues_where_its_bound_ended_it(pool: Pool) -> None:
    """Pages without a match have a cursor, and all matches are found once, newest first."""
    await pool.execute(SUPPRESSED)
    pages = await pages_of(feedback.list_suppressions, pool, address=None, reason="complaint", origin="import")
    assert [each.email for page in pages for each in page] == [f"{n}@example.org" for n in (28, 21, 14, 7)]
    assert [] in pages
    assert len(pages) == 11  # thirty rows, three for each page, and the page that finds the end


async def test_a_search_of_clicks_counts_each_person_once(pool: Pool) -> None:
    """The person at the bound is counted on the next page; one with more clicks than the bound is counted up to it."""
    await pool.execute(CLICKED)
    chosen = {"campaign_id": 1, "address": None, "link_url": None}
    pages = await pages_of(tracking.list_clicks, pool, order=LINKS, **chosen)
    found = [(each.email, each.url[-1], each.clicks) for page in pages for each in page]
    assert sum(clicks for email, _url, clicks in found if email == "busy@example.org") == 3
    others = {(email, url) for email, url, clicks in found if email != "busy@example.org" and clicks == 1}
    assert len(found) == len(set(found))
    assert others == {(f"person{n // 2}@example.org", str(n % 2)) for n in range(6, 21)}
