"""A real Chromium for the run, and an office for each test."""

import shutil
import sys
from collections.abc import AsyncIterator

import pytest
from playwright.async_api import Browser, async_playwright, expect
from tests.support.dashboard import PATIENCE_MS, Office, open_office

from postroom.db.room import Room

ARGUMENTS = [
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
]


@pytest.fixture(scope="session")
async def chromium() -> AsyncIterator[Browser]:
    path = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if path is None:
        reason = "NO CHROMIUM: the dashboard's pages were NOT looked at in a browser; install chromium"
        sys.stderr.write(f"\n{reason}\n")
        pytest.skip(reason)
    expect.set_options(timeout=PATIENCE_MS)
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=path, args=ARGUMENTS, timeout=PATIENCE_MS)
        yield browser
        await browser.close()


@pytest.fixture
async def office(room: Room) -> AsyncIterator[Office]:
    async with open_office(room) as opened:
        yield opened
