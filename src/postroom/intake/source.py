"""The seam to streams: where commands come from, and how one says that they are safe.

A source hands out entries and keeps them until they are acknowledged; what is not acknowledged it hands out again, to
this consumer or another. That is all the safety a stream has to give: the rest is done by idempotency keys.
"""

from collections.abc import Sequence
from typing import Protocol

from postroom.intake.model import Entry


class StreamSource(Protocol):
    """Entries of one stream, for one consumer of a group."""

    async def fetch(self) -> Sequence[Entry]:
        """The next entries; waits a moment for some, and returns none if there are none."""

    async def acknowledge(self, entries: Sequence[Entry]) -> None:
        """Say that these are committed."""

    async def give_back(self, entries: Sequence[Entry]) -> None:
        """Say that these are not committed and are to be handed out again."""

    async def close(self) -> None:
        """Leave; what is not acknowledged goes to others."""
