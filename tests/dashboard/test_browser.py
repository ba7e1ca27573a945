"""The dashboard in a real browser: it works with and without a script, on a phone and on a desk."""

import re
from typing import Any

import pytest
from playwright.async_api import Browser, expect
from tests.support.builders import a_mail, accepted, state_of
from tests.support.dashboard import RAW, Office, ambiguous, captured, given_up, signed_in

from postroom.delivery.listing import pages
from postroom.delivery.model import DeliveryState, Lane
from postroom.http.service import list_keys, revoke_key


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
        await expect(page.get_by_text("1 delivery would be made due now.")).to_be_visible()
        assert await state_of(office.pool, dead) is DeliveryState.DEAD_LETTER
        await page.get_by_role("button", name="Retry it").click()
        await expect(page.get_by_text("The mass action is started.")).to_be_visible()
        await page.goto(f"{office.url}/dead-letters")
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


async def test_a_page_is_not_called_dead_before_its_stream_begins(chromium: Browser, office: Office) -> None:
    """While the first event is on its way, the page says neither Live nor Not live."""
    async with signed_in(chromium, office) as page:
        await page.route("**/campaigns/live", lambda _route: None)  # no answer
        await page.goto(f"{office.url}/campaigns")
        await expect(page.locator("[data-live-status]")).to_be_visible()
        assert await page.locator("[data-live-status]").inner_text() == ""


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


async def test_a_search_goes_on_until_it_finds_a_delivery(
    chromium: Browser, office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pages that examined their share of deliveries and found none are passed over; the address is that of the last."""
    monkeypatch.setattr(pages, "EXAMINED", 2)
    await accepted(office.pool, a_mail("ada@example.org"), *(a_mail("bob@example.org") for _ in range(8)))
    async with signed_in(chromium, office) as page:
        await page.goto(f"{office.url}/deliveries?recipient=ada")
        await expect(page.locator("tbody tr")).to_have_count(1)
        await expect(page).to_have_url(re.compile("cursor="))


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
        await page.wait_for_load_state()
        for key in ("j", "j", "Enter"):
            await page.keyboard.press(key)
        await expect(page.get_by_role("heading", name=f"Delivery {first}")).to_be_visible()


async def test_keys_right_after_closing_the_shortcuts_reach_the_page(chromium: Browser, office: Office) -> None:
    """The closed dialog has the focus until the browser draws the next frame."""
    async with signed_in(chromium, office) as page:
        await page.evaluate(
            """() => {
                const dialog = document.getElementById("shortcuts");
                dialog.showModal();
                dialog.close();
                for (const key of ["g", "d"])
                    document.activeElement.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true }));
            }"""
        )
        await expect(page.get_by_role("heading", name="Deliveries")).to_be_visible()


async def test_a_click_anywhere_in_a_row_opens_it(chromium: Browser, office: Office) -> None:
    """The id is a small target. Selected text and buttons of the row open nothing."""
    await given_up(office.pool, a_mail("ada@example.org"))
    async with signed_in(chromium, office) as page:
        await page.goto(f"{office.url}/dead-letters")
        cell = page.get_by_role("cell", name="ada@example.org")
        box = await cell.bounding_box()
        assert box is not None
        await page.mouse.move(box["x"] + 15, box["y"] + 15)
        await page.mouse.down()
        await page.mouse.move(box["x"] + 90, box["y"] + 15)
        await page.mouse.up()
        assert "@" in str(await page.evaluate("String(getSelection())"))
        await page.get_by_text("Try again…").click()
        await expect(page.get_by_role("heading", name="Dead letters", exact=True)).to_be_visible()
        await cell.click()
        await expect(page.get_by_role("heading", name="Delivery 1")).to_be_visible()


async def test_a_phone_has_a_menu_without_a_script(chromium: Browser, office: Office) -> None:
    """The navigation is folded away on a narrow screen and opens by a tap."""
    size: Any = {"width": 390, "height": 844}
    async with signed_in(chromium, office, viewport=size, java_script_enabled=False) as page:
        await expect(page.get_by_role("link", name="Dead letters", exact=True)).to_be_hidden()
        await page.locator("label[for=menu]").click()
        await page.get_by_role("link", name="Dead letters", exact=True).click()
        await expect(page.get_by_role("heading", name="Dead letters")).to_be_visible()


async def test_on_a_phone_the_whole_card_opens_a_record(chromium: Browser, office: Office) -> None:
    """A tap beside the id is enough, without a script too."""
    await accepted(office.pool, a_mail("ada@example.org"))
    size: Any = {"width": 390, "height": 844}
    async with signed_in(chromium, office, viewport=size, java_script_enabled=False) as page:
        await page.goto(f"{office.url}/deliveries")
        card = await page.locator("tbody tr").first.bounding_box()
        assert card is not None
        await page.locator("tbody tr").first.click(position={"x": card["width"] / 2, "y": card["height"] - 4})
        await expect(page.get_by_role("heading", level=1)).to_contain_text("Delivery")


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
