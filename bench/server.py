"""A PostgreSQL of the benchmark's own: a fresh data directory, default settings, fsync on, gone afterwards."""

import contextlib
import tempfile
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import asyncpg

from bench.cost import Meter
from postroom.embedded.data_directory import DataDirectory
from postroom.embedded.server import EmbeddedServer, ServerOptions

OPTIONS = ServerOptions(extra=(("max_connections", "200"),))
"""All subjects keep 75 connections open, and the workers of one take 30 more: too many for the 100 of the default."""


@dataclass(frozen=True)
class Arena:
    """Where subjects meet: one server, a database for each, a scratch directory."""

    admin_url: str
    scratch: Path
    meter: Meter

    async def create_database(self, name: str) -> str:
        """A new, empty database; its URL."""
        connection = await asyncpg.connect(self.admin_url)
        try:
            await connection.execute(f'CREATE DATABASE "{name}"')
        finally:
            await connection.close()
        return urlunsplit(urlsplit(self.admin_url)._replace(path=f"/{name}"))

    async def version(self) -> str:
        connection = await asyncpg.connect(self.admin_url)
        try:
            return str(await connection.fetchval("SHOW server_version"))
        finally:
            await connection.close()


@contextlib.asynccontextmanager
async def running_server() -> AsyncIterator[Arena]:
    """An arena for the length of the block."""
    with tempfile.TemporaryDirectory(prefix="postroom-bench-") as directory:
        home = Path(directory)
        files = DataDirectory(home / "data")
        async with EmbeddedServer(files.data_dir, OPTIONS) as server:
            connection = await asyncpg.connect(server.admin_url)
            try:
                yield Arena(server.admin_url, home, await Meter.of(connection, files.log))
            finally:
                await connection.close()
