"""Every page of the dashboard in Chromium: accessible, as wide as its window, at most 100 KB, without a console error.

The walk starts at every page without a parameter in its path and follows links to one page of every other kind: a new
page is checked without a change here.
"""

import re
from collections.abc import Awaitable, Callable, Iterator

from msgspec.structs import replace
from playwright.async_api import Browser, Page
from tests.support.accounts import sign_up
from tests.support.builders import REFUSED, a_mail, accepted
from tests.support.campaigns import a_campaign
from tests.support.dashboard import (
    ACCESSIBILITY_RULES,
    LONG,
    RAW,
    Office,
    a_full_day,
    ambiguous,
    captured,
    given_up,
    open_page,
    signed_in,
    tried,
)
from tests.support.intake import entries, raw
from tests.support.schedule import POSTING, person
from tests.support.senders import an_account

from postroom.accounts.service import create_account
from postroom.dashboard.endpoints import ENDPOINTS
from postroom.delivery.mass.model import MassKind
from postroom.delivery.mass.service import start
from postroom.delivery.model import DeliveryFilter, Lane
from postroom.feedback.model import NewSuppression
from postroom.feedback.service import suppress
from postroom.http.model import Role
from postroom.http.operators import add_operator
from postroom.intake.service import accept_commands
from postroom.outbox.model import Topic
from postroom.outbox.topics import create_topic
from postroom.outbox.webhooks.service import register
from postroom.runtime.secrets import SecretBox
from postroom.schedule.service import create_user

BOX = SecretBox.from_key(bytes(32))
LARGEST = 100_000

NOT_PAGES = (
    "/static/",
    "/live",
    "/sign-in",
    "/statistics.csv",
    "/export",
    "/raw",
    "/preview",
    "/attachments/",
    "/frame",
)
"""Parts of paths that answer with files, streams or the content of frames."""

MORE = (
    "/deliveries/mass-actions/new?kind=cancel",
    "/suppressions/address?email=x@example.org",
    "/statistics",
    "/statistics?by=domain&metric=bounced",
    "/statistics?by=hour&days=1",
    "/senders/new",
    "/senders/new?type=gmail",
    "/outbox/topics/orders",
    "/outbox/orders/webhook",
)
"""Pages that need a query or differ by it, and pages whose path another one looks like."""


def patterns() -> Iterator[re.Pattern[str]]:
    """The path of every page, as a pattern."""
    for endpoint in ENDPOINTS:
        if endpoint.method == "GET" and not any(part in endpoint.path for part in NOT_PAGES):
            yield re.compile(re.sub(r"\{(\w+)(:\w+)?\}", _parameter, endpoint.path.replace(".", r"\.")))


def _parameter(found: re.Match[str]) -> str:
    return r"\d+" if found[2] == ":int" else "[^/?]+"


async def fill(office: Office) -> None:
    """Data of every kind, with values as long as they may be."""
    pool = office.pool
    await a_full_day(pool)
    mail = a_mail(subject=LONG, text=LONG, html=f"<p>{LONG}</p>", source=LONG[:60], tags={LONG: LONG})
    await tried(pool, mail, reply=replace(REFUSED, text=LONG, remote_host=LONG, tls=LONG))
    await given_up(pool, a_mail(subject="Your order 4711"))
    await ambiguous(pool)
    await accepted(pool, a_mail(lane=Lane.AUTH), a_mail("ada@example.org", subject="Welcome, Ada"))
    await captured(pool, RAW, subject=LONG)
    await an_account(pool, f"{LONG[:60]}@{LONG[:60]}.example", display_name=LONG, notes=LONG)
    await an_account(pool, "two@example.org", status="paused", paused_by="health", status_reason=LONG)
    await pool.execute("INSERT INTO destination_domains (domain, max_connections) VALUES ($1, 3)", LONG[:200])
    await suppress(pool, NewSuppression(email="x@example.org", detail=LONG), actor=LONG[:100])
    await add_operator(pool, f"{'ada' * 20}@{'sub.' * 40}example.org", Role.SUPPORT, actor="tests")
    await a_campaign(pool, 3, name=LONG[:80])
    await accept_commands(pool, entries(LONG.encode(), raw(payload_mode=LONG)))
    await create_account(pool, f"ada@{LONG[:60]}.example", LONG[:60], actor="tests")
    await create_user(pool, person(first_name=LONG[:60]), policy=POSTING)
    await create_topic(pool, Topic(name=LONG[:60]), publishers=["log"], actor="tests")
    await create_topic(pool, Topic(name="orders"), publishers=["log", "webhook"], actor="tests")
    await register(pool, BOX, url=f"https://shop.example/{LONG}", topics=["orders"], actor="tests")
    await sign_up(pool)
    await start(pool, MassKind.RETRY, DeliveryFilter(source=LONG[:60]), actor="tests")


Look = Callable[[Page, str], Awaitable[None]]


async def walk(page: Page, look: Look) -> set[str]:
    """Look at one page of every kind, along the links of the pages seen; returns the kinds that no link led to."""
    wanted = {pattern.pattern: pattern for pattern in patterns()}
    plain = {each for each in wanted if "+" not in each}
    queue = [*sorted(plain - {each.partition("?")[0] for each in MORE}), *MORE]
    left = wanted.keys() - plain
    while queue:
        path = queue.pop(0)
        await look(page, path)
        links = await page.evaluate("() => [...document.links].map((a) => a.getAttribute('href'))")
        for link in links:
            bare = link.partition("?")[0].partition("#")[0]
            kind = next((name for name, pattern in wanted.items() if pattern.fullmatch(bare)), None)
            if kind in left:
                queue.append(link)
                left.remove(kind)
    return left


async def test_every_page_is_accessible_and_fits(chromium: Browser, office: Office) -> None:
    """In light and dark, wide and at the width of a phone, whatever the page holds."""
    await fill(office)
    found: list[str] = []

    async def look(page: Page, path: str) -> None:
        answer = await page.goto(office.url + path)
        assert answer is not None
        assert (path, answer.status) == (path, 200)
        if (size := len(await answer.body())) > LARGEST:
            found.append(f"{path} has {size} bytes")
        for width, scheme in ((1280, "light"), (390, "dark")):
            await page.set_viewport_size({"width": width, "height": 800})
            await page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]  # a literal of playwright
            await page.keyboard.press("Tab")
            found.extend(f"{path} {width} {problem}" for problem in await page.evaluate(ACCESSIBILITY_RULES))

    async with signed_in(chromium, office) as page:
        page.on("console", lambda message: found.append(f"{page.url} {message.text}"))
        page.on("pageerror", lambda error: found.append(f"{page.url} {error}"))
        unreached = await walk(page, look)
        paper = "getComputedStyle(document.body).backgroundColor"
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
            for width, scheme in ((1280, "light"), (390, "dark")):
                await page.set_viewport_size({"width": width, "height": 800})
                await page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]  # a literal of playwright
                found.extend(f"{path} {width} {problem}" for problem in await page.evaluate(ACCESSIBILITY_RULES))
    assert found == []


FAULTY = """<html><style>:focus-visible { outline: none } .pale { color: #999 }</style><body style="background: #fff">
    <nav><a href="/"></a></nav><h2>Second</h2><h4>Fourth</h4><p class="pale" id="a">Pale</p><p id="a">Twice</p>
    <input name="q"><label for="b">Label</label><button></button>
    <img src="data:,"><svg role="img"></svg><iframe></iframe>
    <ul><p>No item</p></ul><table><tr><td>1</td></tr></table><table><tr><th>1</th></tr></table>
    <button tabindex="2">Go</button><div style="width: 3000px">wide</div></body></html>"""
FAULTS = {
    *("html-has-lang", "document-title", "landmark-one-main", "page-has-heading-one", "tabindex", "landmark-unique"),
    *("duplicate-id", "valid-reference", "heading-order", "label", "button-name", "link-name", "image-alt"),
    *("svg-img-alt", "frame-title", "list", "table-header", "scope-attr-valid", "wider", "color-contrast"),
    "focus-visible",
}


async def test_the_rules_find_faults(chromium: Browser) -> None:
    """Each rule reports a page that breaks it: a rule that reports nothing would prove nothing."""
    async with open_page(chromium) as page:
        await page.set_content(FAULTY)
        await page.keyboard.press("Tab")
        problems = await page.evaluate(ACCESSIBILITY_RULES)
    assert {re.split("[: ]", problem)[0] for problem in problems} == FAULTS
