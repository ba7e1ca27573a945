"""Fixtures of the tracking tests."""

from collections.abc import AsyncIterator

import pytest
from tests.support.tracking import Desk, open_desk

from postroom.db.pool import Pool


@pytest.fixture
async def desk(pool: Pool) -> AsyncIterator[Desk]:
    async with open_desk(pool) as opened:
        yield opened
