"""The command `postroom demo`."""

import secrets
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from postroom.runtime.terminal import in_room, own_command, say

if TYPE_CHECKING:
    import aiohttp

    from postroom.cli.demo.story import Story
    from postroom.db.room import Room

POOL_SIZE = 8  # the scenes, the view and its figures read at the same time
DEVELOPMENT = frozenset({"capture", "webhook"})
"""Transports of attempts in a room for development."""


def demo(
    *,
    quick: Annotated[bool, typer.Option("--quick", help="A campaign to 60 people instead of 2,000.")] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Play in a room whose workers have sent real mail within a day.")
    ] = False,
) -> None:
    """Play a story on the running system: sign-ups, birthdays, a campaign, failures, a killed worker.

    Needs `postroom up` in another terminal. All people are invented, at reserved domains, and their mail is captured in
    the inbox. The rows stay, for the dashboard; each run adds its own.
    """
    in_room(partial(_play, is_quick=quick, is_forced=force), pool_size=POOL_SIZE)


async def _play(room: "Room", *, is_quick: bool, is_forced: bool) -> None:
    import aiohttp

    from postroom.cli.demo.story import FULL, QUICK, Story

    await refuse_production(room, is_forced=is_forced)
    async with aiohttp.ClientSession() as http:
        await _check_running(room, http)
        run = secrets.token_hex(2)
        story = Story(room, run, QUICK if is_quick else FULL, http)
        await _play_scenes(story)
        _print_links(story)


async def refuse_production(room: "Room", *, is_forced: bool) -> None:
    """Raise unless the room captures mail and, without `--force`, has sent none by another transport within a day."""
    from postroom.cli.demo import store
    from postroom.cli.demo.errors import NotCaptured, NotForDevelopment

    if room.settings.transport != "capture":
        raise NotCaptured(room.settings.transport)
    others = set(await store.list_recent_transports(room.pool)) - DEVELOPMENT
    if others and not is_forced:
        raise NotForDevelopment(f"its workers sent mail by {', '.join(sorted(others))} within the last day")


async def _check_running(room: "Room", http: "aiohttp.ClientSession") -> None:
    import aiohttp

    from postroom.cli.demo.errors import StoryStuck

    url = room.settings.base_url
    try:
        async with http.get(f"{url}/healthz") as response:
            await response.read()
    except aiohttp.ClientError as error:
        raise StoryStuck(f"Nothing answers at {url}. Start `{own_command()} up` in another terminal first.") from error


async def _play_scenes(story: "Story") -> None:
    from postroom.cli.demo.campaign import play_campaign
    from postroom.cli.demo.scenes import play_birthdays, play_failures, play_orders, play_shop, play_sign_ups
    from postroom.cli.demo.subscriber import play_subscriber
    from postroom.cli.demo.takeover import play_takeover
    from postroom.cli.demo.view import StoryView
    from postroom.dashboard.service import FigureReader

    scenes = {
        "Campaign": play_campaign,
        "Subscriber": play_subscriber,
        "Failures": play_failures,
        "Killed worker": play_takeover,
        "Birthdays": play_birthdays,
        "Sign-ups": play_sign_ups,
        "Everyday mail": play_shop,
        "Orders": play_orders,
    }
    view = StoryView(list(scenes), FigureReader(story.pool))
    async with view.playing():
        for number, play in enumerate(scenes.values()):
            async with view.scene(number) as line:
                line.facts = await play(story)


def _print_links(story: "Story") -> None:
    say(f"\n  To look at it in the dashboard (`{own_command()} sign-in-link` prints a link that signs in):\n")
    for name, path in [("Overview", "/"), *story.links, ("Statistics", "/statistics"), ("Inbox", "/inbox")]:
        say(f"  {name:<24} {story.url}{path}")
