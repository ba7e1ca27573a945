"""The example for Node.js runs with the package `pg` from the npm registry, where both can be had."""

import asyncio
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from postroom.db.room import Room

EXAMPLE = Path(__file__).parents[2] / "docs" / "examples" / "send_with_pg.mjs"
DRIVER = "pg@8.23.1"
OFFLINE = ("ENOTFOUND", "EAI_AGAIN", "ECONNREFUSED", "ECONNRESET", "ETIMEDOUT", "ENETUNREACH", "ERR_SOCKET_TIMEOUT")


def skip(reason: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Skip, and print it in the middle of the run: a skipped test is easily overlooked."""
    with capsys.disabled():
        sys.stdout.write(f"\n!!! NO NODE: {reason}; {EXAMPLE.name} is NOT tested !!!\n")
    pytest.skip(reason)


def install(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    npm = shutil.which("npm")
    if npm is None or shutil.which("node") is None:
        skip("npm or node is not installed", capsys)
    options = ["--ignore-scripts", "--no-audit", "--no-fund", "--prefer-offline", "--fetch-retries=1"]
    command = [str(npm), "install", *options, "--fetch-timeout=20000", DRIVER]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if any(reason in done.stderr for reason in OFFLINE):
        skip("the npm registry cannot be reached", capsys)
    assert done.returncode == 0, done.stderr


async def test_the_example_sends_in_its_transaction(
    room: Room, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The mail of the order is accepted."""
    await asyncio.to_thread(install, tmp_path, capsys)
    shutil.copy(EXAMPLE, tmp_path)  # Node looks for packages beside the file
    environment = {**os.environ, "DATABASE_URL": room.url}
    command = ["node", EXAMPLE.name]
    process = await asyncio.create_subprocess_exec(
        *command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    output, _ = await process.communicate()
    assert process.returncode == 0, output.decode()
    found = await room.pool.fetch("SELECT idempotency_key, tags::text FROM deliveries")
    assert [tuple(row) for row in found] == [("order-42", '{"order": "42"}')]
