"""nginx and HAProxy before `postroom serve`, with the files of deploy/proxy: only addresses and paths are changed."""

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import trustme
from tests.support.patience import PATIENCE_S
from tests.support.ports import free_port
from tests.world.packages import program
from tests.world.process import running

PROXY = Path(__file__).parents[2] / "deploy" / "proxy"
HOST = "mail.example.org"
PUBLIC_URL = f"https://{HOST}/postroom"

_BREAK = "\x1e"  # between the body and what curl writes behind it


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer as curl got it."""

    status: int
    version: str  # of HTTP, between curl and the proxy
    headers: dict[str, list[str]]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass(frozen=True, slots=True)
class Front:
    """The address of a proxy, as people outside reach it."""

    port: int
    authority: Path

    async def ask(self, target: str, *options: str | Path, stdin: bytes = b"") -> Answer:
        """One request by curl, over HTTP/2 unless an option says otherwise."""
        process = await self._curl(target, "--write-out", f"{_BREAK}%{{json}}{_BREAK}%{{header_json}}", *options)
        async with asyncio.timeout(PATIENCE_S):
            output, errors = await process.communicate(stdin)
        assert process.returncode == 0, errors.decode()
        body, facts, headers = output.rsplit(_BREAK.encode(), 2)
        found = json.loads(facts)
        return Answer(found["response_code"], found["http_version"], json.loads(headers), body)

    @asynccontextmanager
    async def reading(self, target: str, *options: str) -> AsyncIterator[asyncio.StreamReader]:
        """An answer that does not end, read as it comes."""
        process = await self._curl(target, "--no-buffer", *options)
        assert process.stdout is not None
        try:
            yield process.stdout
        finally:
            process.kill()
            await process.communicate()

    async def _curl(self, target: str, *options: str | Path) -> asyncio.subprocess.Process:
        url, place = f"https://{HOST}:{self.port}{target}", f"{HOST}:{self.port}:127.0.0.1"
        command: list[str | Path] = [program("curl", "curl"), "--silent", "--show-error", "--http2", "--resolve", place]
        return await asyncio.create_subprocess_exec(
            *command, "--cacert", self.authority, *options, url, stdin=-1, stdout=-1, stderr=-1
        )


Start = Callable[[int], AbstractAsyncContextManager[Front]]
"""Starts a proxy before the port of `postroom serve`."""


@asynccontextmanager
async def nginx(backend: int) -> AsyncIterator[Front]:
    with TemporaryDirectory(prefix="postroom-nginx-") as name:
        folder, front = Path(name), _front(Path(name))
        site = (PROXY / "nginx.conf").read_text("utf-8")
        for shipped, ours in (
            ("listen 443", f"listen 127.0.0.1:{front.port}"),
            ("/etc/ssl/certs/mail.example.org.pem", str(folder / "both.pem")),
            ("/etc/ssl/private/mail.example.org.key", str(folder / "both.pem")),
            ("127.0.0.1:8025", f"127.0.0.1:{backend}"),
        ):
            assert shipped in site
            site = site.replace(shipped, ours)
        places = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
        temporary = "".join(f"{place}_temp_path {folder / place};\n" for place in places)
        (folder / "nginx.conf").write_text(
            f"daemon off;\nmaster_process off;\npid {folder / 'pid'};\nerror_log stderr warn;\n"
            f"events {{}}\nhttp {{\naccess_log off;\n{temporary}{site}}}\n"
        )
        command: list[str | Path] = [
            program("nginx", "nginx"),
            "-p",
            folder,
            "-e",
            "stderr",
            "-c",
            folder / "nginx.conf",
        ]
        async with running(command, [front.port]):
            yield front


@asynccontextmanager
async def haproxy(backend: int) -> AsyncIterator[Front]:
    with TemporaryDirectory(prefix="postroom-haproxy-") as name:
        folder, front = Path(name), _front(Path(name))
        text = (PROXY / "haproxy.cfg").read_text("utf-8")
        for shipped, ours in (
            ("bind :443", f"bind 127.0.0.1:{front.port}"),
            ("/etc/haproxy/mail.example.org.pem", str(folder / "both.pem")),
            ("127.0.0.1:8025", f"127.0.0.1:{backend}"),
        ):
            assert shipped in text
            text = text.replace(shipped, ours)
        (folder / "haproxy.cfg").write_text(text)
        async with running([program("haproxy", "haproxy"), "-db", "-f", folder / "haproxy.cfg"], [front.port]):
            yield front


def _front(folder: Path) -> Front:
    authority = trustme.CA()
    authority.issue_cert(HOST).private_key_and_cert_chain_pem.write_to_path(folder / "both.pem")
    authority.cert_pem.write_to_path(folder / "authority.pem")
    ssl.create_default_context(cafile=folder / "authority.pem")  # a broken certificate fails here
    return Front(free_port(), folder / "authority.pem")


PROXIES: dict[str, Start] = {"nginx": nginx, "haproxy": haproxy}
