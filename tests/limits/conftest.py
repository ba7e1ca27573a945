"""A browser with every scope, on a room of its own."""

import pytest
from tests.support.http import Browser, open_browser

from postroom.db.room import Room


@pytest.fixture
async def browser_with_all(room: Room) -> Browser:
    return await open_browser(room)
