"""The example for Node.js runs with the package `pg` from the npm registry, where both can be had."""

import asyncio
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from tests.support.npm import install

from postroom.db.room import Room

EXAMPLE = Path(__file__).parents[2] / "docs" / "examples" / "send_with_pg.mjs"
DRIVER = "pg@8.23.1"


async def test_the_example_sends_in_its_transaction(
    room: Room, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The mail of the order is accepted."""
    await asyncio.to_thread(install, tmp_path, [DRIVER], tested=EXAMPLE.name, capsys=capsys)
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
