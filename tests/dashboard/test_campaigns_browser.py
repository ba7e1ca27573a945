"""Campaigns in a real browser: from an empty list to a sent campaign, on a phone, in the dark, and without errors."""

from pathlib import Path
from typing import Any

from playwright.async_api import Browser, Page, expect
from tests.support.builders import Recording
from tests.support.campaigns import SECRET, a_campaign_worker
from tests.support.dashboard import ACCESSIBILITY_RULES, Office, open_office, signed_in
from tests.support.played_campaign import HTML, a_sent_campaign, people_csv

from postroom.campaigns import report as reports
from postroom.campaigns import service
from postroom.campaigns.model import PersonResult
from postroom.campaigns.worker import Feeder
from postroom.db.room import open_room
from postroom.delivery.worker import WorkerOptions
from postroom.settings import Settings

LONG = "unbroken" * 24


async def test_a_campaign_is_written_sent_and_followed(chromium: Browser, database_url: str, tmp_path: Path) -> None:
    """The preview follows the typing, the upload reports, the results are live; every page fits and says no error."""
    settings = Settings(database_url=database_url, secret_key=SECRET)
    async with open_room(settings) as room, open_office(room) as office:
        async with signed_in(chromium, office) as page:
            said: list[str] = []
            page.on("console", lambda message: said.append(message.text))
            await write_draft(page, office)
            await upload_people(page, office, tmp_path)
            await start_and_follow(page, office)
            assert said == []
        await pages_fit(chromium, office)
        await edit_without_a_script(chromium, office)


async def test_the_export_follows_the_filter(chromium: Browser, database_url: str) -> None:
    """The script replaces the results after a choice; the link of the CSV is one of them."""
    settings = Settings(database_url=database_url, secret_key=SECRET)
    async with open_room(settings) as room, open_office(room) as office, signed_in(chromium, office) as page:
        campaign = await a_sent_campaign(room.pool, 20)
        await page.goto(f"{office.url}/campaigns/{campaign}/people")
        export = page.get_by_role("link", name="CSV")
        await expect(export).to_have_attribute("href", f"/campaigns/{campaign}/people.csv")
        await page.get_by_label("Result").select_option("failed")
        await expect(export).to_have_attribute("href", f"/campaigns/{campaign}/people.csv?result=failed")
        async with page.expect_download() as download:
            await export.click()
        file = (await (await download.value).path()).read_text()
        assert file.startswith("Address,Name,Result,")
        failed, _more = await reports.list_people(room.pool, campaign, result=PersonResult.FAILED)
        assert [line.split(",")[0] for line in file.splitlines()[1:]] == [person.email for person in failed] != []


async def write_draft(page: Page, office: Office) -> None:
    await page.goto(f"{office.url}/campaigns")
    await page.get_by_role("link", name="New campaign").click()
    await page.locator("[name=name]").fill("Spring")
    await page.locator("[name=subject]").fill("Hello {{ first_name }}")
    await page.locator("[name=html]").fill(HTML)
    frame = page.frame_locator("iframe[name^=preview]:not([hidden])")
    await expect(frame.locator(".subject")).to_have_text("Hello [first_name]")
    await expect(frame.frame_locator("iframe").locator("h1")).to_have_css("color", "rgb(31, 111, 84)")
    length = await page.evaluate("history.length")
    await page.locator("[name=subject]").fill("Good morning {{ first_name }}")
    await expect(frame.locator(".subject")).to_have_text("Good morning [first_name]")
    assert await page.evaluate("history.length") == length  # previews leave no trace behind the back button
    await page.get_by_role("button", name="Save the draft").click()
    await expect(page.get_by_role("status")).to_have_text("The draft is saved. Upload its recipients next.")


async def upload_people(page: Page, office: Office, folder: Path) -> None:
    """The page shows the progress of the upload while the database is busy, then its result."""
    file = folder / "people.csv"
    file.write_bytes(people_csv(40) + b"\nnobody,,,,\n")
    await page.get_by_role("link", name="Upload recipients").first.click()
    await page.get_by_label("File").set_input_files(file)
    async with office.pool.acquire() as connection, connection.transaction():
        await connection.execute("LOCK TABLE campaign_recipients IN SHARE ROW EXCLUSIVE MODE")
        await page.get_by_role("button", name="Upload").click()
        await expect(page.get_by_text("0 recipients stored so far…")).to_be_visible()
        await expect(page.locator("progress")).to_be_visible()
    await expect(page.get_by_text("An email address must have an @-sign.")).to_be_visible()
    await expect(page.locator(".card", has_text="People added")).to_contain_text("40")
    await expect(page.locator("progress")).to_be_hidden()
    await page.get_by_role("link", name="To the campaign").click()


async def start_and_follow(page: Page, office: Office) -> None:
    await page.get_by_role("link", name="Start").click()
    await page.get_by_role("button", name="Start the campaign").click()
    await expect(page.get_by_text("Live", exact=True)).to_be_visible()
    await expect(page.locator("#live-figures")).to_contain_text("0 of 40 recipients")
    await Feeder(office.pool).run_once()
    await a_campaign_worker(office.pool, Recording(), options=WorkerOptions(until_empty=True)).run()
    await expect(page.locator("#live-figures")).to_contain_text("40 of 40 recipients")
    await Feeder(office.pool).run_once()
    await expect(page.locator("#live-head")).to_contain_text("completed")
    await expect(page.get_by_role("button", name="Pause")).to_have_count(0)


async def pages_fit(chromium: Browser, office: Office) -> None:
    await a_sent_campaign(office.pool, 30, name=LONG, subject=LONG)
    draft = await service.create_campaign(office.pool, (await service.get_campaign(office.pool, 2)).plan, actor="tests")
    views = [f"/campaigns/2{view}" for view in ("", "/people", "/content", "/links")]
    steps = [f"/campaigns/{draft.id}{step}" for step in ("", "/edit", "/upload", "/start")]
    async with signed_in(chromium, office, color_scheme="dark") as page:
        said: list[str] = []
        page.on("console", lambda message: said.append(message.text))
        for path in ["/campaigns", "/campaigns/new", *views, *steps]:
            await page.goto(office.url + path)
            for width in (360, 1160, 1400):
                size: Any = {"width": width, "height": 800}
                await page.set_viewport_size(size)
                assert (path, width, await page.evaluate(ACCESSIBILITY_RULES)) == (path, width, [])
        assert said == []
        assert await page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(16, 19, 26)"


async def edit_without_a_script(chromium: Browser, office: Office) -> None:
    """The Preview button draws the form into the frame."""
    async with signed_in(chromium, office, java_script_enabled=False) as page:
        await page.goto(f"{office.url}/campaigns/new")
        await page.locator("[name=subject]").fill("Hello")
        await page.locator("[name=html]").fill("<p>Hi</p>")
        await page.get_by_role("button", name="Preview").click()
        await expect(page.frame_locator("iframe[name=preview]").locator(".subject")).to_have_text("Hello")
