"""Every block of README, quickstart and the how-to pages can be pasted, in order, into an empty room."""

import asyncio
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import asyncpg
import pytest
from tests.inbox.test_plugin import plugin_environment
from tests.support.command_line import running
from tests.support.forked import write_command
from tests.support.pasting import ILLUSTRATIONS, PASTED, Block, blocks_of, reading, shown_by
from tests.support.patience import PATIENCE_S
from tests.support.ports import free_port
from tests.support.stand_ins import StandIns, standing_in

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "docs" / "quickstart.md", *sorted((ROOT / "docs" / "how-to").glob("*.md"))]
AT_REST = """
    SELECT NOT EXISTS (SELECT FROM postroom.deliveries WHERE state = 'sending' OR next_attempt_at <= now())
        AND NOT EXISTS (
            SELECT FROM postroom.campaigns WHERE status = 'active' AND coalesce(start_at, '-infinity') < now())
"""
NOT_HERE = ("needs a container engine; ", "needs a cluster; ", "needs an init system ")
"""How a valid reason begins: stand-ins cannot replace these. The rest names the test that checks the block."""
STARTS_ITSELF = {"README.md", "quickstart.md", "test-your-application.md"}  # no `postroom up` runs before the page


@pytest.fixture(scope="session")
def first_start(server_directory: Path) -> Path:
    """The data directory that the first `postroom up` makes: an empty room, copied for every page."""
    directory = server_directory / "first"
    settings = {"POSTROOM_HTTP_ADDR": "127.0.0.1:0", "POSTROOM_DATA_DIR": str(directory)}
    with running("up", settings=settings) as up:
        up.line(lambda line: "Ctrl-C stops." in line)
        assert up.stop() == 0
    return directory


@pytest.fixture
def environment() -> dict[str, str]:
    """A reader's: nothing of Postroom but ports of its own, and `postroom` on the path."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("POSTROOM_", "PG", "AWS_"))}
    return {
        **kept,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{kept.get('PATH', '')}",
        **plugin_environment(),
        "PYTHONUNBUFFERED": "1",
        "COLUMNS": "200",
        "POSTROOM_HTTP_ADDR": f"127.0.0.1:{free_port()}",
        "POSTROOM_SMTP_ADDR": f"127.0.0.1:{free_port()}",
    }


@pytest.fixture
def quick_command(environment: dict[str, str], tmp_path: Path) -> None:
    """A `postroom` before the installed one that needs a tenth of its time to start."""
    write_command(tmp_path / "postroom")
    environment["PATH"] = f"{tmp_path}{os.pathsep}{environment['PATH']}"


@pytest.fixture
def desk(server_directory: Path, tmp_path: Path) -> Iterator[Path]:
    """The folder in which the reader works: a checkout's `./dev` and examples, and nothing else."""
    directory = server_directory / f"desk-{tmp_path.name}"
    directory.mkdir()
    (directory / "dev").write_text('#!/bin/sh\nexec postroom "$@"\n')
    (directory / "dev").chmod(0o755)
    (directory / "docs").symlink_to(ROOT / "docs")
    yield directory
    shutil.rmtree(directory)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_block_of_a_page_can_be_pasted(
    page: Path, desk: Path, environment: dict[str, str], request: pytest.FixtureRequest
) -> None:
    """In order, in one terminal: each command succeeds, and prints what the page shows."""
    if page.name not in STARTS_ITSELF:  # the others use the installed program
        request.getfixturevalue("quick_command")
    blocks = blocks_of(page)
    pasted = "".join(block.note + block.code for block in blocks if block.is_pasted)
    with (
        standing_in(pasted, desk.parent) as hosts,
        reading(desk, with_hosts(environment, hosts), hosts) as reader,
    ):
        if page.name not in STARTS_ITSELF:
            copy = ["cp", "-a", request.getfixturevalue("first_start"), desk / ".postroom"]  # with its owner
            subprocess.run(copy, check=True)
            reader.start(["postroom", "up"])
        printed, url = "", ""
        for block in blocks:
            where = f"{page.name}, line {block.line}:\n{block.code}"
            if block.language == "output":
                assert shown_by(block.code, printed), f"{where}\nwas not printed, but:\n{printed}"
            elif block.is_pasted:
                url = url or database_url(desk, environment)
                asyncio.run(worker_at_rest(url))
                code, printed = reader.paste(block)
                assert code == expected_code(block), f"{where}\nended with {code}:\n{printed}"


def with_hosts(environment: dict[str, str], hosts: StandIns) -> dict[str, str]:
    """The reader's variables, with those of the hosts; programs of PostgreSQL are those of its server."""
    found = dict(hosts.environment)
    path = [environment["PATH"], *filter(None, [found.pop("PATH", "")])]
    return {**environment, **found, "PATH": os.pathsep.join(reversed(path))}


def database_url(directory: Path, environment: dict[str, str]) -> str:
    """The embedded server's, once it runs."""
    if not (directory / ".postroom").exists():
        return ""
    command = [sys.executable, "-m", "postroom.cli", "db-url"]
    return subprocess.run(
        command, cwd=directory, env=environment, capture_output=True, text=True, check=True
    ).stdout.strip()


async def worker_at_rest(url: str) -> None:
    """A reader is slower than a worker: what is due has been attempted before the next block is pasted."""
    if not url:
        return
    connection = await asyncpg.connect(url)
    try:
        async with asyncio.timeout(PATIENCE_S):
            while not await connection.fetchval(AT_REST):
                pass
    finally:
        await connection.close()


def expected_code(block: Block) -> int:
    return int(block.note.removeprefix("exits ")) if block.note.startswith("exits ") else 0


def test_blocks_that_are_not_pasted_have_a_reason(capsys: pytest.CaptureFixture[str]) -> None:
    """A fence has a language that says what it is, and no page marks all of its blocks."""
    skipped = []
    for page in PAGES:
        blocks = blocks_of(page)
        odd = [(block.line, block.language) for block in blocks if block.language not in known()]
        assert not odd, f"{page.name}: fences need one of the languages {known()}: {odd}"
        assert any(block.is_pasted for block in blocks), f"{page.name} has no block that can be pasted"
        skipped += [f"{page.name}:{block.line}: {block.not_run}" for block in blocks if block.not_run]
        assert all(block.not_run.startswith(NOT_HERE) for block in blocks if block.not_run), page.name
    assert page.read_text("utf-8").count("```") % 2 == 0
    with capsys.disabled():
        sys.stdout.write("\n  ".join([f"\n{len(skipped)} blocks are not pasted:", *skipped]) + "\n")


def known() -> tuple[str, ...]:
    return (*PASTED, "output", *ILLUSTRATIONS)
