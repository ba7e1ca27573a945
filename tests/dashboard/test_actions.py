"""Every action of the dashboard in Chromium: it works by mouse, is audited, and is offered to its roles only.

A story is a tuple of steps on one group of pages. A new POST route fails `test_every_action_is_walked` until a story
performs it.
"""

import sys
import traceback
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from playwright.async_api import Browser, expect
from playwright.async_api import Error as PlaywrightError
from tests.support.campaigns import a_running_campaign
from tests.support.dashboard import Office, open_office
from tests.support.dashboard_actions import POSTS, Step, Walker, open_walker, perform
from tests.support.dashboard_stories import AUDIENCE, MAIL
from tests.support.dashboard_stories_events import EVENTS, PEOPLE
from tests.support.dashboard_stories_system import SYSTEM
from tests.support.played_campaign import people_csv
from tests.support.smtp_server import smtp_server

from postroom.dashboard.endpoints import ENDPOINTS
from postroom.db.room import Room

STORIES = {"mail": MAIL, "audience": AUDIENCE, "people": PEOPLE, "events": EVENTS, "system": SYSTEM}


@pytest.fixture
async def office(room: Room) -> AsyncIterator[Office]:
    """A room that can seal secrets, release captured mail, and send by a server on loopback."""
    settings = replace(
        room.settings,
        webhook_allow_loopback=True,
        secret_key=bytes(range(32)),
        inbox_release_relay="smtp://127.0.0.1:1",
        senders_allow_private=True,
    )
    async with open_office(replace(room, settings=settings)) as opened:
        yield opened


@pytest.mark.parametrize("story", STORIES.values(), ids=STORIES)
async def test_actions_work_and_are_audited(
    chromium: Browser, office: Office, tmp_path: Path, story: Sequence[Step]
) -> None:
    """Each shows its effect, stores it, is recorded under the person, and causes no error in the browser."""
    file = tmp_path / "people.csv"
    file.write_bytes(people_csv(30))
    async with smtp_server() as relay, open_walker(chromium, office) as walker:
        walker.values |= {"people": str(file), "smtp": str(relay.port)}
        failures = [failure for step in story if (failure := await failure_of(walker, step))]
    if failures:
        pytest.fail("\n\n".join(failures))


async def failure_of(walker: Walker, step: Step) -> str | None:
    """The failure of a step; the others are performed too, so that one run reports all."""
    try:
        await perform(walker, step)
    except (AssertionError, PlaywrightError) as error:
        problems, walker.problems[:] = walker.problems[:], []
        place = traceback.extract_tb(error.__traceback__)[-1].line
        return f"POST {step.route} at {walker.page.url}: {place}\n{error}\n{problems}"
    return None


async def test_live_pages_are_live(chromium: Browser, office: Office) -> None:
    """Each stream of the endpoint table has a page that follows it, without an error in the console."""
    campaign = await a_running_campaign(office.pool, 3)
    streams = [endpoint.path for endpoint in ENDPOINTS if endpoint.path.endswith("/live")]
    async with open_walker(chromium, office) as walker:
        for stream in streams:
            path = stream.removesuffix("/live").replace("{campaign_id:int}", str(campaign))
            await walker.page.goto(f"{office.url}{path}")
            await expect(walker.page.get_by_text("Live", exact=True)).to_be_visible()
        assert walker.problems == []


def test_every_action_is_walked() -> None:
    """Each POST route of the endpoint table has a step; the ones without an audit entry say why."""
    steps = [step for story in STORIES.values() for step in story]
    assert POSTS.keys() - {step.route for step in steps} == set()
    for step in steps:
        if step.audit is None:
            sys.stdout.write(f"{step.route} is not audited: {step.reason}\n")
