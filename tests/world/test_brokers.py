"""The tests of commands and of publishers again, with the distribution's Redis and NATS instead of the wheels'."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.world.packages import program

ROOT = Path(__file__).parents[2]
LONGEST_S = 1_200


@pytest.mark.world
@pytest.mark.parametrize(
    "name, variable, intake",
    [
        ("redis-server", "TEST_REDIS_SERVER", "tests/intake/test_redis.py"),
        ("nats-server", "TEST_NATS_SERVER", "tests/intake/test_nats.py"),
    ],
)
async def test_commands_and_publishers_with_the_distributions_broker(name: str, variable: str, intake: str) -> None:
    """Every promise about a broker holds with an older version than that of the wheel."""
    server = program(name, name)
    version = await asyncio.to_thread(_run, [str(server), "--version"], {})
    tests = [intake, "tests/outbox/test_publishers.py"]
    command = [sys.executable, "-m", "pytest", "-q", "-n0", "-p", "no:cacheprovider", *tests]
    output = await asyncio.to_thread(_run, command, {variable: str(server)})
    assert " passed" in output.splitlines()[-1], version + output


def _run(command: list[str], variables: dict[str, str]) -> str:
    environment = {**os.environ, **variables}
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=LONGEST_S
    )
    assert done.returncode == 0, done.stdout[-4_000:] + done.stderr[-1_000:]
    return done.stdout
