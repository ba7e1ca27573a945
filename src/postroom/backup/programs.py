"""Run pg_dump and pg_restore, without a password among their arguments."""

import asyncio
import os
from pathlib import Path

from postroom.backup.errors import BackupFailed
from postroom.db.connection import Url, current
from postroom.db.iam import with_token
from postroom.db.url import for_programs
from postroom.embedded.binaries import PASSED_ON, find_client


async def dump(url: Url, room: str, target: Path, *, snapshot: str | None = None) -> None:
    """Write one room into a file, from a snapshot."""
    arguments = ["--format=custom", "--no-owner", "--no-privileges", f"--schema={room}", f"--file={target}"]
    if snapshot is not None:
        arguments.append(f"--snapshot={snapshot}")
    await _run("pg_dump", url, arguments)


async def restore(url: Url, room: str, source: Path) -> None:
    """Restore a file into an empty schema, in one transaction."""
    arguments = ["--no-owner", "--no-privileges", "--exit-on-error", "--single-transaction", f"--schema={room}"]
    await _run("pg_restore", url, [*arguments, str(source)])


async def _run(name: str, url: Url, arguments: list[str]) -> None:
    signed = await with_token(current(url))
    program = await asyncio.to_thread(find_client, name, signed)
    address, password = for_programs(signed)
    environment = {variable: os.environ[variable] for variable in PASSED_ON if variable in os.environ}
    environment |= {"LC_ALL": "C", "TZ": "UTC", "PGPASSWORD": password or ""}
    process = await asyncio.create_subprocess_exec(
        str(program),
        f"--dbname={address}",
        *arguments,
        env=environment,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        _, errors = await process.communicate()
    except BaseException:  # a stop does not wait for a dump
        process.kill()
        await process.wait()
        raise
    if process.returncode != 0:
        raise BackupFailed(f"{name}: {errors.decode(errors='replace').strip() or 'failed without a message'}")
