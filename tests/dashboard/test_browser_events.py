"""The pages of people and events in a real browser: they are live, work by mouse, and hostile content is text."""

from playwright.async_api import Browser, expect
from tests.dashboard.test_hostile import Canary, calm, canary, watched
from tests.support.dashboard import Office, signed_in
from tests.support.dashboard_events import fill_people_and_events

from postroom.events import Event, EventStore

__all__ = ["canary"]


async def test_events_are_live_and_hostile_content_is_text(chromium: Browser, office: Office, canary: Canary) -> None:
    """Nothing of any stored field runs or reaches the network; new events appear without a reload."""
    paths = await fill_people_and_events(office.pool, " ".join(canary.attacks()).replace("=", "= "))
    async with signed_in(chromium, office) as page, watched(page, canary):
        for path in paths:
            await calm(page, office.url + path)
        await page.goto(f"{office.url}/events?type=OrderPlaced")
        await page.wait_for_selector("[data-state=live]")
        await EventStore(office.pool).append(Event.of("OrderPlaced", {}, order=41))
        await expect(page.locator("#live-rows")).to_contain_text("order=41")
        await page.goto(f"{office.url}/outbox/orders/log")
        await page.get_by_text("Pause…").click()
        await page.get_by_role("button", name="Pause", exact=True).click()
        await expect(page.get_by_role("status")).to_have_text("The publisher is paused.")
