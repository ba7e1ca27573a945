"""Sessions in a real browser and several processes of `postroom serve`: one sign-out ends them, and time does."""

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from playwright.async_api import Browser, Page, expect
from tests.support.command_line import running
from tests.support.dashboard import open_page
from tests.support.http import a_key

from postroom.dashboard.session import IDLE_S, LIFETIME_S, DashboardSession, Sessions
from postroom.dashboard.site import SESSION_COOKIE
from postroom.db.room import Room

SECRET = bytes(range(32))
ADDRESS = "127.0.0.1:0"


@contextmanager
def two_processes(room: Room) -> Iterator[list[str]]:
    """The URLs of two API processes of one room; a browser sends the cookies of a host to both ports."""
    settings = {
        "POSTROOM_DATABASE_URL": room.url,
        "POSTROOM_SECRET_KEY": SECRET.hex(),
        "POSTROOM_HTTP_ADDR": ADDRESS,
        "POSTROOM_SMTP_ADDR": ADDRESS,
    }
    with ExitStack() as stack:
        processes = [stack.enter_context(running("serve", settings=settings)) for _ in range(2)]
        yield [each.line(lambda line: "Postroom answers at" in line).split()[-1] for each in processes]


async def is_signed_in(page: Page, url: str) -> bool:
    await page.goto(f"{url}/deliveries")
    heading = page.get_by_role("heading", level=1)
    await expect(heading).to_be_visible()
    return await heading.text_content() == "Deliveries"


async def test_a_sign_out_ends_the_session_in_every_process(chromium: Browser, room: Room) -> None:
    """A person who signs out at one process is a stranger to the other one, with their next page."""
    key, _row = await a_key(room, "operator", "*")
    with two_processes(room) as (one, other):
        async with open_page(chromium) as page:
            await page.goto(one)
            await page.get_by_label("API key").fill(key)
            await page.get_by_role("button", name="Sign in").click()
            await expect(page.get_by_role("heading", name="Overview")).to_be_visible()
            cookies = await page.context.cookies()
            assert await is_signed_in(page, other)
            await page.get_by_role("button", name="Sign out").click()
            await expect(page.get_by_role("heading", level=1)).to_have_text("Sign in")
            await page.context.add_cookies(cookies)  # type: ignore[arg-type]  # a copy that was kept elsewhere
            assert [await is_signed_in(page, url) for url in (one, other)] == [False, False]


async def test_a_session_expires_in_every_process(chromium: Browser, room: Room) -> None:
    """Twelve hours after the sign-in, or an hour after the last page, both processes ask to sign in again."""
    _key, row = await a_key(room, "operator", "*")

    def began(seconds_ago: float, *, seen_ago: float) -> DashboardSession:
        session = Sessions(SECRET, room.name, now=lambda: time.time() - seconds_ago).begin(row)
        return DashboardSession(
            session.kind, session.owner_id, session.since, session.expires, session.nonce, int(time.time() - seen_ago)
        )

    with two_processes(room) as urls:
        async with open_page(chromium) as page:
            for session, is_open in (
                (began(LIFETIME_S - 600, seen_ago=IDLE_S - 600), True),
                (began(LIFETIME_S + 1, seen_ago=1), False),
                (began(IDLE_S + 1, seen_ago=IDLE_S + 1), False),
            ):
                value = Sessions(SECRET, room.name).seal(session)
                await page.context.clear_cookies()
                await page.context.add_cookies([{"name": SESSION_COOKIE, "value": value, "url": urls[0]}])
                assert [await is_signed_in(page, url) for url in urls] == [is_open, is_open]
