"""The state that the scenes of a run share."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import aiohttp

from postroom.cli.demo import store
from postroom.cli.demo.errors import StoryStuck
from postroom.cli.demo.people import Invented, invent
from postroom.db.pool import Pool
from postroom.db.queries import Connection
from postroom.db.room import Room
from postroom.delivery.send import send
from postroom.runtime.terminal import actor

PATIENCE_S = 120.0  # a loaded machine sends the campaign of 2,000 in a minute
LOOK_S = 0.2  # a person sees each step, and the database does not notice the query
SHOP = "Lamp and Ladder <orders@shop.example.com>"

Value = TypeVar("Value")
Ends = dict[tuple[str, str], tuple[int, int]]
"""Deliveries and those with an ambiguous attempt, by lane and state."""


@dataclass(frozen=True, slots=True)
class Size:
    """The numbers of people in each scene."""

    recipients: int
    sign_ups: int
    birthdays: int
    orders: int


FULL = Size(recipients=2000, sign_ups=12, birthdays=30, orders=8)
QUICK = Size(recipients=60, sign_ups=3, birthdays=6, orders=3)


@dataclass(frozen=True, slots=True)
class Story:
    """One run of the demo."""

    room: Room
    run: str
    size: Size
    http: aiohttp.ClientSession
    links: list[tuple[str, str]] = field(default_factory=list)  # a name and a path of the dashboard

    @property
    def pool(self) -> Pool:
        return self.room.pool

    @property
    def url(self) -> str:
        return self.room.settings.base_url

    @property
    def actor(self) -> str:
        return actor()

    @property
    def tags(self) -> dict[str, str]:
        """The tag that every mail of this run has, except those that Postroom writes itself."""
        return {"demo": self.run}

    def people(self, count: int, *, skip: int = 0) -> list[Invented]:
        return invent(skip + count)[skip:]

    async def send(self, connection: Connection, *, tags: Mapping[str, str] | None = None, **mail: Any) -> int:
        """Accept a mail of the shop, with the tag of this run, in the caller's transaction; returns its id."""
        known = {**self.tags, **(tags or {})}
        return await send(connection, **mail, sender=SHOP, tags=known, source="shop", room=self.room.name)

    async def ends_of(self, delivery_ids: Sequence[int]) -> Ends:
        rows = await store.list_outcomes(self.pool, delivery_ids=delivery_ids)
        return {(row["lane"], row["state"]): (row["deliveries"], row["ambiguous"]) for row in rows}

    async def until(self, look: Callable[[], Awaitable[Value | None]], what: str) -> Value:
        """The first value that is not None, looked for several times a second."""
        loop = asyncio.get_running_loop()
        end = loop.time() + PATIENCE_S
        while (found := await look()) is None:
            if loop.time() > end:
                raise StoryStuck(f"{what} did not happen within {PATIENCE_S:.0f} s. Is `postroom up` still running?")
            await asyncio.sleep(LOOK_S)
        return found
