"""An SMTP server whose answers are drawn at random: it takes mail slowly, refuses some, and drops connections.

async with smtp_server(kind=partial(MoodyServer, Moods(Random(7), deferred=0.05))) as server:
"""

import asyncio
from dataclasses import dataclass
from random import Random
from typing import Any

from tests.support.smtp_server import DROP, Dialogue, Said, Script, Server, Visit


@dataclass(frozen=True)
class Moods:
    """The probability of each answer; `slowest_s` is the longest time until the answer to content."""

    random: Random
    slowest_s: float = 0.3
    deferred_recipient: float = 0
    unknown_recipient: float = 0
    deferred: float = 0
    refused: float = 0
    dropped: float = 0  # the content is not taken
    taken_and_dropped: float = 0

    def recipient(self) -> Said | None:
        """The answer to RCPT; None: the usual one."""
        return self._draw(
            (self.deferred_recipient, "450 4.2.0 later"), (self.unknown_recipient, "550 5.1.1 no such user")
        )

    def content(self) -> Said | None:
        """The answer to content that is not taken; None: it is taken."""
        return self._draw((self.deferred, "451 4.3.0 later"), (self.refused, "554 5.6.0 content"), (self.dropped, DROP))

    def _draw(self, *answers: tuple[float, Said]) -> Said | None:
        drawn = self.random.random()
        for chance, said in answers:
            if drawn < chance:
                return said
            drawn -= chance
        return None


class _MoodyDialogue(Dialogue):
    def __init__(self, moods: Moods, *conversation: Any) -> None:
        super().__init__(*conversation)
        self._moods = moods

    async def _say(self, well: str, *keys: str) -> str:
        if keys[-1:] == ("RCPT",) and well.startswith("2"):
            return await self._act(self._moods.recipient() or well)
        if keys == (".",):
            return await self._take(well)
        return await super()._say(well, *keys)

    async def _take(self, well: str) -> str:
        await asyncio.sleep(self._moods.random.uniform(0, self._moods.slowest_s))
        said = self._moods.content()
        if said is not None:
            return await self._act(said)
        if self._moods.random.random() < self._moods.taken_and_dropped:
            self._writer.close()
            return "250 taken, and the answer is lost"
        return await self._act(well)


class MoodyServer(Server):
    """A server with these moods."""

    def __init__(self, moods: Moods, script: Script) -> None:
        super().__init__(script)
        self.moods = moods

    async def converse(self, visit: Visit, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await _MoodyDialogue(self.moods, self, visit, reader, writer).run()
