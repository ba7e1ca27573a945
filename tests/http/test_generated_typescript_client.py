"""A client for TypeScript that openapi-typescript generates from our document, against a running server."""

import asyncio
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from tests.support.http import open_browser
from tests.support.npm import install
from tests.support.served import served

from postroom.db.room import Room

EXAMPLE = Path(__file__).parents[2] / "docs" / "examples" / "send_with_openapi_fetch.mts"
PACKAGES = ["openapi-typescript@7.13.0", "openapi-fetch@0.17.0", "typescript@5.9.3", "@types/node@20.19.0"]
STRICT = ["--strict", "--module", "nodenext", "--target", "es2022", "--skipLibCheck"]


def run(folder: Path, command: list[str], environment: dict[str, str]) -> str:
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command}:\n{done.stdout}{done.stderr}"
    return done.stdout


async def test_a_generated_client_sends_a_mail(room: Room, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The types fit the example, which sends a mail, finds it, lists it, and reads an error."""
    await asyncio.to_thread(install, tmp_path, PACKAGES, tested=EXAMPLE.name, capsys=capsys)
    shutil.copy(EXAMPLE, tmp_path)  # Node looks for packages beside the file
    browser = await open_browser(room)
    async with served(browser.app) as url:
        environment = {**os.environ, "API_URL": url, "API_KEY": browser.key or ""}
        for command in (
            ["node_modules/.bin/openapi-typescript", f"{url}/openapi.json", "--output", "postroom.d.ts"],
            ["node_modules/.bin/tsc", *STRICT, EXAMPLE.name],
            ["node", EXAMPLE.with_suffix(".mjs").name],
        ):
            printed = await asyncio.to_thread(run, tmp_path, command, environment)
    address, listed, error = printed.splitlines()
    assert (address, error) == ("ada@example.org queued", "bad_input [ 'to[0]' ]")
    assert listed.startswith("true 20")
    assert await room.pool.fetchval("SELECT idempotency_key FROM deliveries") == "order-42"
