"""Every page of the dashboard in Chromium: accessible, as wide as its window, at most 100 KB, without a console error.

The walk starts at every page without a parameter in its path and follows links to one page of every other kind: a new
page is checked without a change here.
"""

import re
from collections.abc import Iterable

from playwright.async_api import Browser, expect
from tests.support.dashboard import ACCESSIBILITY_RULES, Office, open_page, signed_in
from tests.support.dashboard_actions import open_walker
from tests.support.dashboard_stories_system import open_sessions, set_up
from tests.support.dashboard_walk import fill, walk

LARGEST = 100_000
LOOKS = ((1280, "light"), (1280, "dark"), (390, "dark"), (390, "light"))
"""Widths and colour schemes; neighbours differ in one of them, which costs one layout."""


async def test_every_page_is_accessible_and_fits(chromium: Browser, office: Office) -> None:
    """In light and dark, wide and at the width of a phone, whatever the page holds."""
    await fill(office.pool)
    found: list[str] = []

    async def look(path: str) -> Iterable[str]:
        answer = await page.goto(office.url + path)
        assert answer is not None
        assert (path, answer.status) == (path, 200)
        if (size := len(await answer.body())) > LARGEST:
            found.append(f"{path} has {size} bytes")
        for width, scheme in LOOKS:
            await page.set_viewport_size({"width": width, "height": 800})
            await page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]  # a literal of playwright
            await page.keyboard.press("Tab")
            found.extend(f"{path} {width} {scheme} {problem}" for problem in await page.evaluate(ACCESSIBILITY_RULES))
        links: list[str] = await page.evaluate("() => [...document.links].map((a) => a.getAttribute('href'))")
        return links

    async with signed_in(chromium, office) as page:
        page.on("console", lambda message: found.append(f"{page.url} {message.text}"))
        page.on("pageerror", lambda error: found.append(f"{page.url} {error}"))
        unreached = await walk(look)
        paper = "getComputedStyle(document.body).backgroundColor"
        await page.emulate_media(color_scheme="dark")
        dark = await page.evaluate(paper)
        await page.emulate_media(color_scheme="light")
        assert (dark, await page.evaluate(paper)) == ("rgb(16, 19, 26)", "rgb(245, 246, 249)")
    assert ("\n".join(found), unreached) == ("", set())


async def test_sign_in_pages_are_accessible_and_fit(chromium: Browser, office: Office) -> None:
    """All methods on one page, and the page for the code."""
    found: list[str] = []
    async with open_page(chromium) as page:
        for path in ("/sign-in?next=/deliveries", "/sign-in/code", "/sign-in/link"):
            await page.goto(office.url + path)
            for width, scheme in LOOKS:
                await page.set_viewport_size({"width": width, "height": 800})
                await page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]  # a literal of playwright
                found.extend(
                    f"{path} {width} {scheme} {problem}" for problem in await page.evaluate(ACCESSIBILITY_RULES)
                )
    assert found == []


async def test_pages_of_an_operator_about_oneself_are_accessible_and_fit(chromium: Browser, office: Office) -> None:
    """Own sessions, and the second factor: to be set up, with its recovery codes, set up, and asked for."""
    found: list[str] = []

    async def look() -> None:
        for width, scheme in LOOKS:
            await page.set_viewport_size({"width": width, "height": 800})
            await page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]  # a literal of playwright
            problems = await page.evaluate(ACCESSIBILITY_RULES)
            found.extend(f"{page.url} {width} {scheme} {problem}" for problem in problems)

    async with open_walker(chromium, office) as walker:
        page = walker.page
        await open_sessions(walker)
        for path in ("/sessions", "/second-factor", "/preferences", "/sign-in/second-factor", "/sign-in?again=1"):
            await page.goto(office.url + path)
            await look()
        await page.goto(f"{office.url}/second-factor")
        await set_up(walker)
        await expect(page.get_by_text("Copy it now")).to_be_visible()
        await look()
        for path in ("/second-factor", "/operators", "/keys/new"):
            await page.goto(office.url + path)
            await look()
    assert found == []


FAULTY = """<html><style>:focus-visible { outline: none } .pale { color: #999 }</style><body style="background: #fff">
    <nav><a href="/"></a></nav><h2>Second</h2><h4>Fourth</h4><p class="pale" id="a">Pale</p><p id="a">Twice</p>
    <input name="q"><label for="b">Label</label><button></button>
    <img src="data:,"><svg role="img"></svg><iframe></iframe>
    <ul><p>No item</p></ul><table><tr><td>1</td></tr></table><table><tr><th>1</th></tr></table>
    <button tabindex="2">Go</button><div style="width: 3000px">wide</div>
    <table><tr><th scope="col">A</th></tr><tr><td data-label="A" style="display: grid">1 <b>2</b></td></tr></table>
    </body></html>"""
FAULTS = {
    *("html-has-lang", "document-title", "landmark-one-main", "page-has-heading-one", "tabindex", "landmark-unique"),
    *("duplicate-id", "valid-reference", "heading-order", "label", "button-name", "link-name", "image-alt"),
    *("svg-img-alt", "frame-title", "list", "table-header", "scope-attr-valid", "wider", "color-contrast"),
    *("focus-visible", "cell-parts"),
}


async def test_the_rules_find_faults(chromium: Browser) -> None:
    """Each rule reports a page that breaks it: a rule that reports nothing would prove nothing."""
    async with open_page(chromium) as page:
        await page.set_content(FAULTY)
        await page.keyboard.press("Tab")
        problems = await page.evaluate(ACCESSIBILITY_RULES)
    assert {re.split("[: ]", problem)[0] for problem in problems} == FAULTS
