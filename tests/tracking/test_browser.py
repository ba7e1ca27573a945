"""The pages in a real browser without JavaScript."""

import shutil
import sys
from collections.abc import AsyncIterator
from urllib.parse import urlsplit

import pytest
from playwright.async_api import Browser, async_playwright, expect
from tests.support.tracking import ADA, Desk

from postroom.tracking.model import LinkSubject

ARGUMENTS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--disable-background-networking"]
TIMEOUT_MS = 60_000
LONG = LinkSubject(7, 44, f"{'unbroken' * 20}@example.org")

# Lists accessibility and layout problems of a page and the resources it loaded; an empty list is good.
COMPLAINTS = """() => [
    ...(document.querySelectorAll("h1").length === 1 ? [] : ["not one h1"]),
    ...(document.querySelector("main") && document.documentElement.lang ? [] : ["no main or language"]),
    ...(document.documentElement.scrollWidth > innerWidth ? ["wider than the window"] : []),
    ...performance.getEntriesByType("resource").map((entry) => "loaded " + entry.name),
]"""


@pytest.fixture(scope="module")
async def chromium() -> AsyncIterator[Browser]:
    path = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if path is None:
        reason = "NO CHROMIUM: the tracking pages were NOT looked at in a browser; install chromium"
        sys.stderr.write(f"\n{reason}\n")
        pytest.skip(reason)
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=path, args=ARGUMENTS, timeout=TIMEOUT_MS)
        yield browser
        await browser.close()


async def test_unsubscribe_and_resubscribe_without_javascript(chromium: Browser, desk: Desk) -> None:
    """The link, both buttons and the preferences work without JavaScript and set no cookie."""
    context = await chromium.new_context(java_script_enabled=False, locale="en-GB")
    context.set_default_timeout(TIMEOUT_MS)
    page = await context.new_page()
    await page.goto(desk.url + urlsplit(desk.signer.unsubscribe_url(ADA)).path)
    await expect(page.get_by_role("heading")).to_have_text("Unsubscribe", timeout=TIMEOUT_MS)
    assert await desk.value("SELECT count(*) FROM suppressions") == 0
    await page.get_by_role("button", name="Unsubscribe").click()
    await expect(page.get_by_role("heading")).to_have_text("You are unsubscribed", timeout=TIMEOUT_MS)
    assert await desk.value("SELECT origin FROM unsubscriptions") == "page"
    await page.get_by_role("link", name="Your mail preferences").click()
    await page.get_by_role("button", name="Subscribe again").click()
    await expect(page.get_by_text("gets our mailings")).to_be_visible(timeout=TIMEOUT_MS)
    assert await desk.value("SELECT count(*) FROM suppressions") == 0
    assert await context.cookies() == []
    await context.close()


@pytest.mark.parametrize("lang, button", [("en", "Unsubscribe"), ("de", "Abmelden")])
async def test_pages_fit_a_phone_and_load_nothing(chromium: Browser, desk: Desk, lang: str, button: str) -> None:
    """Pages have one heading, a language, no horizontal scrolling for long addresses, and load no other resource."""
    context = await chromium.new_context(viewport={"width": 360, "height": 640}, locale=lang)
    context.set_default_timeout(TIMEOUT_MS)
    page = await context.new_page()
    for url in (desk.signer.unsubscribe_url(LONG), desk.signer.preferences_url(LONG)):
        await page.goto(desk.url + urlsplit(url).path)
        await expect(page.get_by_role("button", name=button)).to_be_visible(timeout=TIMEOUT_MS)
        assert await page.evaluate(COMPLAINTS) == []
    await page.goto(desk.url + "/track/click/nothing")
    assert await page.evaluate(COMPLAINTS) == []
    await context.close()
