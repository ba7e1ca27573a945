"""The dashboard in a real browser: it works with and without a script, on a phone and on a desk."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from msgspec.structs import replace
from playwright.async_api import Browser, Page, expect
from tests.support.builders import REFUSED, a_mail, accepted, state_of
from tests.support.dashboard import Office, a_full_day, ambiguous, captured, given_up, open_page, tried
from tests.support.senders import an_account

from postroom.delivery.model import DeliveryState, Lane
from postroom.feedback.model import NewSuppression
from postroom.feedback.service import suppress
from postroom.http.service import list_keys, revoke_key

LONG = "unbroken" * 40
RAW = f"Subject: {LONG}\r\nX-Long: {LONG}\r\nContent-Type: text/html\r\n\r\n<p style='color: red'>{LONG}</p>".encode()

# Accessibility problems of the page; empty is good.
COMPLAINTS = """() => [
    ...[document.querySelectorAll("h1").length === 1 ? [] : ["not one h1"]].flat(),
    ...(document.querySelector("main") && document.documentElement.lang ? [] : ["no main or language"]),
    ...[...document.querySelectorAll("input:not([type=hidden]):not([hidden]), select")]
        .filter((e) => !e.labels.length).map((e) => "unlabelled " + e.name),
    ...[...document.querySelectorAll("button, a, summary")]
        .filter((e) => !(e.textContent.trim() || e.ariaLabel)).map((e) => "nameless " + e.outerHTML),
    ...[...document.querySelectorAll("iframe")].filter((e) => !e.title).map(() => "untitled frame"),
    ...[...document.querySelectorAll("[id]")].map((e) => e.id)
        .filter((id, index, all) => all.indexOf(id) !== index).map((id) => "twice " + id),
    ...(document.documentElement.scrollWidth > innerWidth ? ["wider than the window"] : []),
]"""


@asynccontextmanager
async def signed_in(chromium: Browser, office: Office, **options: Any) -> AsyncIterator[Page]:
    """A page of a viewer who has just signed in."""
    async with open_page(chromium, **options) as page:
        await page.goto(office.url)
        await page.get_by_label("API key").fill(office.key)
        await page.get_by_role("button", name="Sign in").click()
        await expect(page.get_by_role("heading", name="Overview")).to_be_visible()
        yield page


async def test_a_person_finds_and_cancels_a_delivery(chromium: Browser, office: Office) -> None:
    """From the door over the filter to the button and out again, and a script is not needed for any of it."""
    [delivery_id, _other] = await accepted(office.pool, a_mail("ada@example.org"), a_mail("bob@example.org"))
    async with signed_in(chromium, office, java_script_enabled=False) as page:
        await expect(page.locator("[data-lane=transactional]")).to_have_text("2 waiting")
        await page.get_by_role("link", name="Deliveries", exact=True).click()
        await page.get_by_label("Recipient").fill("ADA@example.org")
        await page.get_by_role("button", name="Filter").click()
        await expect(page.locator("tbody tr")).to_have_count(1)
        await page.get_by_role("link", name=str(delivery_id)).click()
        await page.get_by_text("Cancel…").click()
        await page.get_by_role("button", name="Cancel the delivery").click()
        await expect(page.get_by_role("status")).to_have_text("The delivery is cancelled.")
        assert await state_of(office.pool, delivery_id) is DeliveryState.CANCELLED
        await page.get_by_role("button", name="Sign out").click()
        await page.goto(f"{office.url}/deliveries/{delivery_id}")
        await expect(page.get_by_role("heading")).to_have_text("Sign in")


async def test_dead_letters_come_back_by_two_clicks(chromium: Browser, office: Office) -> None:
    """The first click asks, the second acts; settling an ambiguous one takes it out of the list."""
    dead, unclear = await given_up(office.pool, a_mail(source="shop")), await ambiguous(office.pool)
    async with signed_in(chromium, office) as page:
        await page.goto(f"{office.url}/dead-letters")
        await page.get_by_label(f"Mark as sent: delivery {unclear}").click()
        assert await state_of(office.pool, unclear) is DeliveryState.DEAD_LETTER
        await page.get_by_role("button", name="Mark as sent").click()
        await expect(page.get_by_role("status")).to_have_text("The delivery counts as sent.")
        await page.goto(f"{office.url}/dead-letters")
        await page.get_by_label("Source").fill("shop")
        await page.get_by_role("button", name="Count them").click()
        await expect(page.locator("#count")).to_have_text("1")
        assert await state_of(office.pool, dead) is DeliveryState.DEAD_LETTER
        await page.get_by_role("button", name="Bring it back").click()
        await expect(page.get_by_text("None. Nothing was given up.")).to_be_visible()
    assert (await state_of(office.pool, dead), await state_of(office.pool, unclear)) == (
        DeliveryState.QUEUED,
        DeliveryState.SENT,
    )


async def test_the_overview_follows_along_until_the_key_is_revoked(chromium: Browser, office: Office) -> None:
    """New deliveries appear without a reload; once the key is revoked the stream ends and the page says so."""
    async with signed_in(chromium, office) as page:
        await expect(page.get_by_text("Live", exact=True)).to_be_visible()
        await accepted(office.pool, *[a_mail(lane=Lane.BULK)] * 3)
        await expect(page.locator("[data-lane=bulk]")).to_have_text("3 waiting")
        [key], _cursor = await list_keys(office.pool)
        await revoke_key(office.pool, key.id, actor="tests")
        await expect(page.get_by_text("Not live")).to_be_visible()
        await page.reload()
        await expect(page.get_by_role("heading")).to_have_text("Sign in")


async def test_every_page_fits_and_is_accessible(chromium: Browser, office: Office) -> None:
    """No page is wider than its window, whatever it holds; everything has a name; dark if asked for."""
    await a_full_day(office.pool)
    mail = a_mail(subject=LONG, text=LONG, html=f"<p>{LONG}</p>", source=LONG[:60], tags={LONG: LONG})
    [delivery_id] = await tried(office.pool, mail, reply=replace(REFUSED, text=LONG, remote_host=LONG, tls=LONG))
    dead = await ambiguous(office.pool)
    [waiting] = await accepted(office.pool, a_mail(lane=Lane.AUTH))
    message_id = await captured(office.pool, RAW, subject=LONG)
    paths = ["/", "/deliveries", f"/deliveries/{delivery_id}", f"/deliveries/{dead}", f"/deliveries/{waiting}"]
    sender = await an_account(office.pool, f"{LONG[:60]}@{LONG[:60]}.example", display_name=LONG, notes=LONG)
    await office.pool.execute("INSERT INTO destination_domains (domain, max_connections) VALUES ($1, 3)", LONG[:200])
    await suppress(office.pool, NewSuppression(email="x@example.org", detail=LONG), actor=LONG[:100])
    paths += ["/senders", f"/senders/{sender}", "/senders/new", "/destinations", "/destinations/new", "/suppressions"]
    paths += ["/suppressions/address?email=x@example.org", "/suppressions/new", "/suppressions/import"]
    paths += ["/statistics", "/statistics?by=domain&metric=bounced", "/statistics?by=hour&days=1"]
    paths += ["/health", "/workers", "/keys", "/keys/new", "/audit", "/settings", "/archive"]
    paths += ["/preferences", "/dead-letters", "/dead-letters/redrive", "/inbox", f"/inbox/{message_id}"]
    async with signed_in(chromium, office, color_scheme="dark") as page:
        said: list[str] = []
        page.on("console", lambda message: said.append(message.text))
        for path in paths:
            await page.goto(office.url + path)
            for width in (360, 1160, 1400):
                await page.set_viewport_size({"width": width, "height": 800})
                assert (path, width, await page.evaluate(COMPLAINTS)) == (path, width, [])
        assert said == []
        paper = "getComputedStyle(document.body).backgroundColor"
        dark = await page.evaluate(paper)
        await page.emulate_media(color_scheme="light")
        assert (dark, await page.evaluate(paper)) == ("rgb(16, 19, 26)", "rgb(245, 246, 249)")


async def test_the_preview_shows_a_mail_as_it_looks(chromium: Browser, office: Office) -> None:
    """Inline styles of the message apply inside the frame, and the frame is allowed nothing."""
    message_id = await captured(office.pool, RAW)
    async with signed_in(chromium, office) as page:
        await page.goto(f"{office.url}/inbox/{message_id}")
        paragraph = page.frame_locator("iframe").locator("p")
        await expect(paragraph).to_have_css("color", "rgb(255, 0, 0)")
        assert await page.locator("iframe").get_attribute("sandbox") == ""


async def test_filters_search_as_you_type(chromium: Browser, office: Office) -> None:
    """The list follows the filter without a click, and the address too, so that the page can be reloaded."""
    await accepted(office.pool, a_mail("ada@example.org"), a_mail("bob@example.org"))
    async with signed_in(chromium, office) as page:
        await page.goto(f"{office.url}/deliveries")
        await page.keyboard.press("/")
        await expect(page.get_by_label("Status")).to_be_focused()
        await page.get_by_label("Recipient").press_sequentially("ada@example.org")
        await expect(page.locator("tbody tr")).to_have_count(1)
        await expect(page).to_have_url(f"{office.url}/deliveries?recipient=ada%40example.org")


async def test_shortcuts_open_pages_and_are_listed(chromium: Browser, office: Office) -> None:
    """`?` lists them, `g d` opens the deliveries, `j` and Enter open a row."""
    [first, _second] = await accepted(office.pool, a_mail(), a_mail())
    async with signed_in(chromium, office) as page:
        await page.keyboard.press("?")
        await expect(page.get_by_role("dialog")).to_contain_text("Next, previous row")
        await page.keyboard.press("Escape")
        await expect(page.get_by_role("dialog")).to_be_hidden()  # keys go to the page only then
        await page.keyboard.press("g")
        await page.keyboard.press("d")
        await expect(page.get_by_role("heading", name="Deliveries")).to_be_visible()
        for key in ("j", "j", "Enter"):
            await page.keyboard.press(key)
        await expect(page.get_by_role("heading", name=f"Delivery {first}")).to_be_visible()


async def test_a_phone_has_a_menu_without_a_script(chromium: Browser, office: Office) -> None:
    """The navigation is folded away on a narrow screen and opens by a tap."""
    size: Any = {"width": 390, "height": 844}
    async with signed_in(chromium, office, viewport=size, java_script_enabled=False) as page:
        await expect(page.get_by_role("link", name="Dead letters", exact=True)).to_be_hidden()
        await page.locator("label[for=menu]").click()
        await page.get_by_role("link", name="Dead letters", exact=True).click()
        await expect(page.get_by_role("heading", name="Dead letters")).to_be_visible()


async def test_the_choice_of_colors_beats_the_system(chromium: Browser, office: Office) -> None:
    """A dark dashboard on a light system, and denser rows."""
    await accepted(office.pool, a_mail())
    async with signed_in(chromium, office, color_scheme="light") as page:
        await page.goto(f"{office.url}/preferences")
        await page.get_by_label("Colors").select_option("dark")
        await page.get_by_label("Rows of lists").select_option("dense")
        await page.get_by_role("button", name="Save").click()
        await expect(page.get_by_role("status")).to_have_text("The preferences are saved in this browser.")
        assert await page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(16, 19, 26)"
        await page.goto(f"{office.url}/deliveries")
        assert await page.evaluate("getComputedStyle(document.querySelector('td')).paddingTop") == "3px"
