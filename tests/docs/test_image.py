"""The image runs as deploy/ says: not root, read-only, against a PostgreSQL of this machine.

    deploy/image.sh

builds it and sets TEST_IMAGE. TEST_ENGINE is the container engine with its options, `podman` if absent.
"""

import asyncio
import json
import os
import shlex
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

import asyncpg
import pytest
from tests.support.outbox import until
from tests.support.ports import free_port

IMAGE = os.environ.get("TEST_IMAGE")
ENGINE = shlex.split(os.environ.get("TEST_ENGINE", "podman"))
OPTIONS = ("--network=host", "--read-only", "--cap-drop=all", "--security-opt=no-new-privileges")
GRACE_S = "40"  # stop_grace_period of compose.yaml

pytestmark = pytest.mark.skipif(IMAGE is None, reason="TEST_IMAGE names no image; building one takes minutes")


async def engine(*arguments: str) -> tuple[int | None, str]:
    process = await asyncio.create_subprocess_exec(
        *ENGINE, *arguments, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    output, _ = await process.communicate()
    return process.returncode, output.decode()


def run_command(environment: dict[str, str], *arguments: str) -> list[str]:
    variables = [f"--env={name}={value}" for name, value in environment.items()]
    return ["run", *OPTIONS, *variables, *arguments]


@asynccontextmanager
async def container(environment: dict[str, str], command: str) -> AsyncIterator[str]:
    """A container in the background, healthy by its own check; at the end it is stopped and must end by itself."""
    code, output = await engine(*run_command(environment, "--detach", str(IMAGE), command))
    assert code == 0, output
    name = output.split()[-1]
    try:
        await until(partial(_is_healthy, name))
        yield name
        await engine("stop", "--time", GRACE_S, name)
        state = json.loads((await engine("inspect", "--format={{json .State}}", name))[1])
        assert state["ExitCode"] == 0, (await engine("logs", name))[1]
    finally:
        await engine("rm", "--force", name)


async def _is_healthy(name: str) -> bool:
    return (await engine("healthcheck", "run", name))[0] == 0


async def test_the_image_migrates_serves_and_works(database_url: str) -> None:
    """A mail that is accepted in SQL leaves; both processes are healthy, not root, and end after SIGTERM."""
    api, metrics = free_port(), free_port()
    shared = {
        "POSTROOM_DATABASE_URL": database_url,
        "POSTROOM_SCHEMA": "image",
        "POSTROOM_SECRET_KEY": "5e" * 32,
        "POSTROOM_TRANSPORT": "capture",
        "POSTROOM_SMTP_ADDR": "off",
    }
    serve = {
        **shared,
        "POSTROOM_HTTP_ADDR": f"127.0.0.1:{api}",
        "HEALTH_URL": f"http://127.0.0.1:{api}/healthz",
    }
    work = {
        **shared,
        "POSTROOM_METRICS_ADDR": f"127.0.0.1:{metrics}",
        "HEALTH_URL": f"http://127.0.0.1:{metrics}/metrics",
    }
    code, output = await engine(*run_command(shared, "--rm", str(IMAGE), "migrate"))
    assert code == 0, output
    async with container(serve, "serve") as serving, container(work, "work") as working:
        connection = await asyncpg.connect(database_url)
        try:
            await connection.fetchval("SELECT image.send('{ada@example.org}', p_subject => 'Hello', p_text => 'Hi.')")
            await until(partial(connection.fetchval, "SELECT count(*) = 1 FROM image.inbox_messages"))
        finally:
            await connection.close()
        await _is_backed_up(shared)
        for name in (serving, working):
            assert (await engine("exec", name, "id", "-u"))[1].strip() == "65532"
            code, _ = await engine("exec", name, "python", "-c", "open('/written', 'w')")
            assert code, "the root file system can be written"


async def _is_backed_up(settings: dict[str, str]) -> None:
    """The image has the programs for a backup, and a folder to write it to, which `migrate` uses."""
    code, output = await engine(
        *run_command(settings, "--rm", str(IMAGE), "backup", "--no-verify", "/var/lib/postroom/room.dump")
    )
    assert code == 0, output
    code, output = await engine(*run_command({}, "--rm", "--entrypoint=pg_dump", str(IMAGE), "--version"))
    assert code == 0, output  # of the distribution, with TLS
