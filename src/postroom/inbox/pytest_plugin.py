"""A pytest plugin: fixtures that start a Postroom for a test run and read the mail that it captured.

    def test_welcome(postroom_inbox):
        sign_up("ada@example.org")                       # your application, with postroom_inbox.url, .key or .smtp_port
        mail = postroom_inbox.wait_for("ada@example.org")
        assert mail["subject"] == "Welcome, Ada"

The first test that asks for `postroom_inbox` starts `postroom up` with an embedded PostgreSQL, free ports and the
capture transport; the end of the run stops it. Each test begins with an empty inbox. Override `postroom_settings` to
add settings, such as `POSTROOM_TEMPLATE_DIR`. The shell's own settings and those of databases are never used, so that a
test cannot write into a database that you work with. Nothing of Postroom is imported before the first use.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlencode
from urllib.request import Request, urlopen

import pytest

START_S = 120.0  # the first start creates a database, on a slow machine of a CI
STOP_S = 30.0  # a server under load still ends within it
_LONGEST_WAIT_S = 60  # of one request
_DATABASES = ("POSTROOM_DATABASE_URL", "POSTROOM_DATABASE_DIRECT_URL", "POSTROOM_REPLICA_URL", "POSTROOM_SERVERS")
_BANNER = re.compile(r"^  (API|SMTP) +(?:http://)?([\d.]+:\d+)", re.MULTILINE)


@dataclass(frozen=True)
class PytestInbox:
    """A running room and its inbox. Messages are dictionaries as `GET /v1/inbox/{id}` answers them."""

    url: str
    smtp_port: int  # any user name and password; the host is 127.0.0.1
    directory: Path
    key: str = field(repr=False)  # an API key with every scope
    environment: Mapping[str, str] = field(repr=False)  # of the room's processes

    def send(self, **delivery: Any) -> int:
        """Accept a delivery with the fields of `POST /v1/deliveries`; returns its id."""
        accepted = self._call("POST", "/v1/deliveries", body=delivery)
        return int(accepted["id"])

    def wait_for(self, to: str | None = None, *, query: str | None = None, timeout: float = 10) -> dict[str, Any]:
        """The newest message to an address, as soon as there is one; `query` is a search of the inbox.

        Raises TimeoutError, which lists the captured messages.
        """
        end = time.monotonic() + timeout
        while True:
            left = max(0, min(_LONGEST_WAIT_S, round(end - time.monotonic())))
            try:
                found: dict[str, Any] = self._call("GET", "/v1/inbox/wait", to=to, query=query, timeout=left)
            except LookupError:
                if time.monotonic() >= end:
                    raise TimeoutError(self._missing(to, query, timeout)) from None
            else:
                return found

    def messages(self, to: str | None = None, *, query: str | None = None) -> list[dict[str, Any]]:
        """The captured messages, newest first, without their content."""
        items: list[dict[str, Any]] = self._call("GET", "/v1/inbox", to=to, query=query, limit=200)["items"]
        return items

    def clear(self) -> None:
        """Delete every captured message."""
        self._call("DELETE", "/v1/inbox")

    @cached_property
    def database_url(self) -> str:
        """The URL of the room's database, for `postroom.send` in a transaction of yours."""
        command = [sys.executable, "-m", "postroom.cli", "db-url"]
        asked = subprocess.run(command, env=self.environment, check=True, capture_output=True, text=True)  # noqa: S603 - our own program
        return asked.stdout.strip()

    def _missing(self, to: str | None, query: str | None, timeout: float) -> str:
        wanted = " ".join(part for part in (f"to {to}" if to else "", f"matching {query!r}" if query else "") if part)
        captured = [f"{', '.join(item['to'])}: {item['subject']}" for item in self.messages()]
        listed = "; ".join(captured) or "none"
        return f"No message {wanted} was captured within {timeout:g} s. Captured: {listed}"

    def _call(self, method: str, path: str, *, body: Any = None, **query: Any) -> Any:
        given = urlencode({name: value for name, value in query.items() if value is not None})
        data = None if body is None else json.dumps(body).encode()
        headers = {"Authorization": f"Bearer {self.key}", "Content-Type": "application/json"}
        request = Request(f"{self.url}{path}?{given}", data=data, headers=headers, method=method)  # noqa: S310 - http on loopback
        try:
            with urlopen(request, timeout=_LONGEST_WAIT_S + STOP_S) as response:  # noqa: S310 - as above
                content = response.read()
        except HTTPError as error:
            problem = error.read().decode("utf-8", "replace")
            kind = LookupError if '"inbox_wait_timeout"' in problem else ValueError
            raise kind(f"Postroom answered {error.code}: {problem}") from None
        return json.loads(content) if content else None


@pytest.fixture(scope="session")
def postroom_settings() -> Mapping[str, str]:
    """Settings of the room besides those that the plugin chooses; override it in your conftest.py."""
    return {}


@pytest.fixture(scope="session")
def postroom_room(postroom_settings: Mapping[str, str]) -> Iterator[PytestInbox]:
    """A Postroom that runs until the end of the test run."""
    directory = Path(tempfile.mkdtemp(prefix="postroom-"))
    environment, log = _environment(directory, postroom_settings), directory / "postroom.log"
    with log.open("w") as out:
        command = [sys.executable, "-m", "postroom.cli", "up"]
        process = subprocess.Popen(command, env=environment, stdout=out, stderr=out)  # noqa: S603 - our own program
    try:
        yield _opened(process, directory, environment, log)
    finally:
        process.terminate()
        try:
            process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture
def postroom_inbox(postroom_room: PytestInbox) -> PytestInbox:
    """An empty inbox of the running room."""
    postroom_room.clear()
    return postroom_room


def _environment(directory: Path, settings: Mapping[str, str]) -> dict[str, str]:
    """The settings of the room; variables of the shell are not inherited, so that a run is the same everywhere."""
    for name in _DATABASES:
        if name in settings:
            raise pytest.UsageError(f"postroom_settings sets {name}: the room of the tests has a database of its own")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("POSTROOM_", "PG"))}
    chosen = {
        "POSTROOM_DATA_DIR": str(directory),
        "POSTROOM_HTTP_ADDR": "127.0.0.1:0",
        "POSTROOM_SMTP_ADDR": "127.0.0.1:0",
        "POSTROOM_SMTP_ANY_LOGIN": "1",
        "POSTROOM_TRANSPORT": "capture",
    }
    return {**kept, **settings, **chosen, "PYTHONUNBUFFERED": "1"}


def _opened(
    process: "subprocess.Popen[bytes]", directory: Path, environment: Mapping[str, str], log: Path
) -> PytestInbox:
    """The room, once its banner names the addresses."""
    end = time.monotonic() + START_S
    while "Ctrl-C stops." not in (said := log.read_text("utf-8", "replace")):
        if process.poll() is not None or time.monotonic() > end:
            raise RuntimeError(f"Postroom did not start:\n{said}")
        time.sleep(0.1)
    addresses = dict(_BANNER.findall(said))
    key = (directory / "api-key").read_text().strip()
    smtp_port = int(addresses["SMTP"].rpartition(":")[2])
    return PytestInbox(f"http://{addresses['API']}", smtp_port, directory, key=key, environment=environment)
