"""`postroom demo`, played twice on a running `postroom up`."""

import io
import re
from pathlib import Path

import aiohttp
import asyncpg
import pytest
from rich.console import Console
from tests.support.command_line import postroom, running
from tests.support.ports import free_port

from postroom.cli.demo.people import SHARES, invent
from postroom.cli.demo.view import Line, draw_story
from postroom.dashboard.service import FigureReader
from postroom.db.room import Room

SCENES = (*("Campaign", "Subscriber", "Failures", "Killed worker", "Birthdays", "Sign-ups", "Everyday mail", "Orders"),)


@pytest.fixture
def settings(database_url: str, tmp_path: Path) -> dict[str, str]:
    return {
        "POSTROOM_DATABASE_URL": database_url,
        "POSTROOM_DATA_DIR": str(tmp_path / "data"),
        "POSTROOM_HTTP_ADDR": f"127.0.0.1:{free_port()}",
        "POSTROOM_BATCH_TIMEOUT": "0s",
        "POSTROOM_LEASE": "3s",  # recovery waits for one lease after the start of the database
    }


async def test_the_story_can_be_played_twice(settings: dict[str, str], database_url: str) -> None:
    """Every scene ends with facts that the database confirms, and a second run repeats them with people of its own."""
    with running("up", settings=settings) as up:
        up.line(lambda line: "Ctrl-C stops." in line)
        for _run in range(2):
            done = postroom("demo", "--quick", settings=settings)
            assert done.returncode == 0, done.stderr
            told = dict(line.split(": ", 1) for line in done.stdout.splitlines() if line.startswith(SCENES))
            assert tuple(told) == SCENES
            assert told["Campaign"].startswith(
                "60 recipients: 58 sent, 2 bounced; 20 opened by people, 7 opens by machines, "
            )
            assert told["Sign-ups"] == "3 accounts created, 2 activated with the code of the mail"
            assert told["Everyday mail"] == "3 mails sent: 1 auth, 2 transactional"
            assert told["Orders"].endswith("order 2 rolled back and left 0 mails and 0 events")
            assert told["Failures"] == "6 mails to troubled addresses: 1 dead letter, 2 failed, 3 queued"
            assert told["Subscriber"] == (
                "3 events: 3 answered with 503 and retried, 3 accepted, 0 without a valid signature"
            )
            assert re.search(r"killed while it sent \d+ of \d+ mails", told["Killed worker"])
            assert told["Killed worker"].endswith("0 lost")
        await _open_links(done.stdout, postroom("sign-in-link", settings=settings).stdout.strip())
        assert up.stop() == 0
    await _check_rows(database_url)


async def _open_links(told: str, sign_in: str) -> None:
    """Every printed link leads to a page of the dashboard."""
    links = re.findall(r"http://\S+", told)
    assert len(links) == 11
    jar = aiohttp.CookieJar(unsafe=True)  # the host is an address
    async with aiohttp.ClientSession(cookie_jar=jar) as browser:
        async with browser.get(sign_in) as response:
            assert response.ok, await response.text()
        for link in links:
            async with browser.get(link, allow_redirects=False) as response:
                assert response.status == 200, link


async def _check_rows(database_url: str) -> None:
    connection = await asyncpg.connect(database_url)
    try:
        assert await connection.fetchval("SELECT count(*) FROM postroom.campaigns WHERE status = 'completed'") == 2
        assert await connection.fetchval("SELECT count(*) FROM postroom.accounts WHERE status = 'active'") == 4
        assert (
            await connection.fetchval("SELECT count(*) FROM postroom.webhook_endpoints WHERE status = 'enabled'") == 0
        )
        transports = await connection.fetch("SELECT DISTINCT transport FROM postroom.attempts ORDER BY transport")
        assert {row["transport"] for row in transports} <= {"capture", "webhook", None}
        real = await connection.fetch(
            r"SELECT email FROM postroom.delivery_recipients"
            r" WHERE email !~ '(\.test|[@.]example\.(org|com))$' AND email NOT LIKE 'http://127.0.0.1%'"
        )
        assert real == []
    finally:
        await connection.close()


def test_the_demo_needs_a_running_system(settings: dict[str, str]) -> None:
    """Without `postroom up`, it says so and changes nothing."""
    done = postroom("demo", settings=settings)
    assert done.returncode == 1
    assert done.stderr == (
        f"postroom: Nothing answers at http://{settings['POSTROOM_HTTP_ADDR']}. "
        "Start `python -m postroom.cli up` in another terminal first.\n"
    )


async def test_a_room_that_sends_mail_is_left_alone(settings: dict[str, str], database_url: str) -> None:
    """Mail must be captured now; mail sent by another transport within the last day needs `--force`."""
    done = postroom("demo", "--force", settings={**settings, "POSTROOM_TRANSPORT": "senders"})
    assert done.returncode == 1
    assert done.stderr == (
        "postroom: The demo needs POSTROOM_TRANSPORT=capture, which keeps its mail; it is senders here.\n"
    )
    connection = await asyncpg.connect(database_url)
    await connection.execute(
        "INSERT INTO postroom.attempts (delivery_id, attempt_no, outcome, lane, started_at, finished_at, transport)"
        " VALUES (1, 1, 'sent', 'bulk', now(), now(), 'smtp')"
    )
    await connection.close()
    assert "its workers sent mail by smtp within the last day" in postroom("demo", settings=settings).stderr
    assert "Nothing answers at" in postroom("demo", "--force", settings=settings).stderr


async def test_a_terminal_shows_the_scenes_and_the_lanes(room: Room) -> None:
    """While a scene plays, the lanes of the room stand below the list; at the end only the scenes with their facts."""
    lines = [Line("Orders", facts="1 [committed]"), Line("Failures", is_playing=True), Line("Birthdays")]
    console = Console(width=120, record=True, file=io.StringIO())
    console.print(draw_story(lines, await FigureReader(room.pool).read()))
    shown = console.export_text()
    assert re.search(r"✓ +Orders +1 \[committed\]", shown)
    assert re.search(r"· +Birthdays", shown)
    assert "transactional" in shown
    console.print(draw_story(lines, None))
    assert "transactional" not in console.export_text()


def test_invented_people_have_different_names_at_reserved_domains() -> None:
    """2,000 people have 2,000 addresses, which no mail can reach."""
    people = invent(2000)
    assert len({person.name for person in people}) == 2000
    assert len({person.address("1a2b") for person in people}) == 2000
    assert all(domain.endswith((".test", "example.org", "example.com")) for domain in SHARES)
