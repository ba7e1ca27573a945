"""`postroom up`, `serve` and `work`: started, used and stopped for real."""

import asyncio
import json
import os
import pty
import re
import select
import signal
import socket
import stat
import subprocess
from collections.abc import Iterator
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import asyncpg
import pytest
from tests.support.command_line import COMMAND, PATIENT, Running, answer, environment, postroom, running
from tests.support.embedded import postmaster
from tests.support.forked import Streams, start
from tests.support.patience import PATIENCE_S
from tests.support.smtp_server import Hold, Script, smtp_server

from postroom.cli.up import curl_line, with_loopback_webhooks, worker_environment
from postroom.runtime.uvicorn_server import bind, url_of
from postroom.settings import read_settings

READY = "Ctrl-C stops"


@pytest.fixture
def settings(database_url: str, tmp_path: Path) -> dict[str, str]:
    return {
        "POSTROOM_DATABASE_URL": database_url,
        "POSTROOM_DATA_DIR": str(tmp_path / "data"),
        "POSTROOM_HTTP_ADDR": "127.0.0.1:0",
        "POSTROOM_POLL_INTERVAL": "50ms",
        "POSTROOM_LEASE": "1h",
        "POSTROOM_SHUTDOWN_GRACE": "1h",
        "POSTROOM_LOG_FORMAT": "json",
    }


def _until_ready(up: Running) -> str:
    said: list[str] = []

    def wanted(line: str) -> bool:
        said.append(line)
        return READY in line

    up.line(wanted)
    return "".join(said)


def _paste(line: str) -> tuple[str, dict[str, str], bytes]:
    """The address, headers and body of a pasted curl line as the shell parses them."""
    shown = line.strip().replace("curl -sS ", "printf '%s\\0' ", 1)
    words = subprocess.run(["sh", "-c", shown], check=True, capture_output=True, text=True).stdout.split("\0")
    headers = dict(words[i + 1].split(": ", 1) for i, word in enumerate(words) if word == "-H")
    return words[0], headers, words[words.index("-d") + 1].encode()


def _fetch(url: str, headers: dict[str, str], body: bytes | None = None) -> Any:
    with urlopen(Request(url, body, headers), timeout=PATIENCE_S) as response:
        return json.load(response)


def _fetch_later(url: str, headers: dict[str, str], body: bytes | None = None) -> Any:
    """Ask until the database answers: who held a connection of the crashed one may not have noticed yet."""
    while True:
        try:
            return _fetch(url, headers, body)
        except HTTPError as problem:
            problem.close()
            if problem.code != HTTPStatus.SERVICE_UNAVAILABLE:
                raise


def _status(url: str) -> int:
    try:
        with urlopen(url, timeout=PATIENCE_S) as response:
            return int(response.status)
    except HTTPError as problem:
        problem.close()
        return problem.code


def _curl_of(banner: str) -> str:
    return next(line for line in banner.splitlines() if "curl -sS" in line)


async def _sent(database_url: str, number: int) -> None:
    """Wait, by asking, until so many deliveries are sent."""
    connection = await asyncpg.connect(database_url, server_settings={"search_path": "postroom"})
    try:
        while await connection.fetchval("SELECT count(*) FROM deliveries WHERE state = 'sent'") < number:
            await connection.execute("SELECT pg_sleep(0.02)")
    finally:
        await connection.close()


async def test_up_delivers_what_the_printed_line_sends(settings: dict[str, str], database_url: str) -> None:
    """From nothing to a captured mail by pasting one line; SIGTERM ends it with 0."""
    with running("up", settings=settings) as up:
        banner = _until_ready(up)
        assert "API key    kept in " in banner  # this is no terminal, and a journal would keep the key itself
        assert "pr_" not in banner
        assert "token=" not in banner  # it signs in with that key
        url, headers, body = _paste(_curl_of(banner))
        accepted = _fetch(url, headers, body)
        await _sent(database_url, 1)
        inbox = url.replace("/deliveries", "/inbox")
        [item] = _fetch(inbox, {"Authorization": headers["Authorization"]})["items"]
        assert (item["delivery_id"], item["to"]) == (accepted["id"], ["you@example.org"])
        assert up.stop(signal.SIGTERM) == 0


def test_the_banner_has_a_sign_in_link_on_a_terminal(settings: dict[str, str]) -> None:
    """A person reads a terminal; nothing keeps the link, which works once."""
    ours, theirs = pty.openpty()
    streams = Streams(theirs, theirs, theirs)
    process = start(COMMAND, "up", environment=environment(**settings), streams=streams)
    os.close(theirs)
    try:
        with os.fdopen(ours) as terminal:
            banner = "".join(iter(terminal.readline, "  Ctrl-C stops.\n"))
            link = re.findall(r"Sign in    (http\S+)", banner)[0]
            assert [_status(link), _status(link)] == [HTTPStatus.OK, HTTPStatus.UNAUTHORIZED]
            process.send_signal(signal.SIGTERM)
            assert process.wait(PATIENCE_S) == 0
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)


def test_commands_of_other_terminals_find_the_address(settings: dict[str, str]) -> None:
    """`up` on another port is remembered beside the key, for as long as it answers there; a setting still wins."""
    elsewhere = {name: value for name, value in settings.items() if name != "POSTROOM_HTTP_ADDR"}
    with running("up", settings=settings) as up:
        url = re.findall(r"Dashboard  (http://[\d.:]+)/", _until_ready(up))[0]
        assert postroom("sign-in-link", settings=elsewhere).stdout.startswith(f"{url}/")
        assert f"{url.removeprefix('http://')} is answered by Postroom" in postroom("doctor", settings=elsewhere).stdout
        chosen = {**elsewhere, "POSTROOM_HTTP_ADDR": "127.0.0.1:1"}
        assert postroom("sign-in-link", settings=chosen).stdout.startswith("http://127.0.0.1:1/")
        assert up.stop() == 0
    assert postroom("sign-in-link", settings=elsewhere).stdout.startswith("http://127.0.0.1:8025/")


def test_serve_keeps_its_address_where_there_is_a_data_directory(settings: dict[str, str]) -> None:
    """It creates none: a service may run in a folder that it must not fill."""
    data = Path(settings["POSTROOM_DATA_DIR"])
    for is_there in (False, True):
        if is_there:
            data.mkdir()
        with running("serve", settings=settings) as serving:
            line = serving.line(lambda line: "Postroom answers at" in line)
            kept = data / "http-address"
            assert kept.exists() == is_there
            assert not is_there or line.endswith(kept.read_text().strip())


def test_the_banner_names_the_command_and_the_database(settings: dict[str, str], tmp_path: Path) -> None:
    """A checkout is used by `./dev`; the version of PostgreSQL and the folder of an embedded one are no secret."""
    with running("up", settings={**settings, "STARTED_BY": "./dev"}) as up:
        banner = _until_ready(up)
    assert "`./dev sign-in-link` prints a link" in banner
    assert re.search(r"Database   `\./dev psql`: your PostgreSQL \d+\.\d+, room 'postroom'", banner)
    with running("up", settings={**settings, "POSTROOM_DATABASE_URL": ""}) as up:
        banner = _until_ready(up)
    assert re.search(r"Database   `.* psql`: the embedded PostgreSQL \d+\.\d+ \(/.*/bin\), room", banner)


def test_a_missing_folder_of_templates_is_named_with_its_setting(settings: dict[str, str], tmp_path: Path) -> None:
    """The sentence has the variable and the whole path, whatever the folder in which the command was started."""
    done = postroom("up", settings={**settings, "POSTROOM_TEMPLATE_DIR": "templates"})
    expected = f"postroom: POSTROOM_TEMPLATE_DIR: there is no folder {Path('templates').absolute()}; create it first"
    assert (done.returncode, done.stderr.splitlines()[-1]) == (1, expected)


def test_an_embedded_server_that_crashes_is_started_again(settings: dict[str, str]) -> None:
    """PostgreSQL is killed under `up`: within moments mail is accepted and delivered again, by the same processes."""
    data = Path(settings["POSTROOM_DATA_DIR"])
    own = {**settings, "POSTROOM_DATABASE_URL": "", "POSTROOM_LEASE": "3s"}  # a claim may be lost in the crash
    with running("up", settings=own, command=PATIENT) as up:
        url, headers, body = _paste(_curl_of(_until_ready(up)))
        before = _fetch(url, headers, body)["id"]
        os.kill(postmaster(data), signal.SIGKILL)
        up.line(lambda line: "embedded_server_runs_again" in line)
        after = _fetch_later(url, headers, body)["id"]
        bearer = {"Authorization": headers["Authorization"]}
        while any(_fetch_later(f"{url}/{mail}", bearer)["status"] != "sent" for mail in (before, after)):
            assert up.process.poll() is None
        assert up.stop(signal.SIGTERM) == 0


def test_up_makes_keys_once_and_keeps_them_private(settings: dict[str, str]) -> None:
    """Where no terminal reads, the file is named instead of the key; its owner alone can read it; it is made once."""
    data = Path(settings["POSTROOM_DATA_DIR"])
    with running("up", settings=settings) as up:
        first = _until_ready(up)
        assert up.stop(signal.SIGINT) == 0
    kept = {name: (data / name).read_text() for name in ("api-key", "secret-key")}
    assert {stat.S_IMODE((data / name).stat().st_mode) for name in kept} == {0o600}
    assert (str(data / "api-key") in first, kept["api-key"].strip() in first) == (True, False)
    assert re.fullmatch(r"[0-9a-f]{64}\n", kept["secret-key"])
    with running("up", settings=settings) as up:
        second = _until_ready(up)
        url, headers, body = _paste(_curl_of(second))
        assert _fetch(url, headers, body)["status"] == "queued"
    assert kept["api-key"].strip() not in second
    assert {name: (data / name).read_text() for name in kept} == kept


def test_up_does_not_offer_the_key_of_another_room(settings: dict[str, str]) -> None:
    """A key file of some other database is not shown as if it worked here."""
    with running("up", settings=settings) as up:
        _until_ready(up)
    data = Path(settings["POSTROOM_DATA_DIR"])
    (data / "api-key").write_text("pr_" + "x" * 43 + "\n")
    with running("up", settings=settings) as up:
        assert "$KEY" in _curl_of(_until_ready(up))


@pytest.fixture
def taken() -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield f"127.0.0.1:{listener.getsockname()[1]}"


@pytest.mark.parametrize("command", ["up", "serve"])
def test_a_taken_port_is_one_sentence_before_anything_starts(command: str, taken: str, tmp_path: Path) -> None:
    """The variable is named, the exit is 1, and neither database nor data directory came into being."""
    data = tmp_path / "data"
    settings = {"POSTROOM_HTTP_ADDR": taken, "POSTROOM_DATA_DIR": str(data)}
    done = postroom(command, settings=settings)
    assert done.returncode == 1
    assert done.stderr.startswith(f"postroom: POSTROOM_HTTP_ADDR: {taken} is in use")
    assert len(done.stderr.splitlines()) == 1
    assert not data.exists()


@pytest.mark.parametrize("command", ["up", "serve", "work"])
def test_a_template_that_does_not_parse_stops_the_start(command: str, settings: dict[str, str], tmp_path: Path) -> None:
    """Any failure before listening is one sentence and exit 1."""
    folder = tmp_path / "templates" / "broken" / "en"
    folder.mkdir(parents=True)
    (folder / "subject").write_text("{{ oops")
    (folder / "text").write_text("x")
    done = postroom(command, settings={**settings, "POSTROOM_TEMPLATE_DIR": str(tmp_path / "templates")})
    assert done.returncode == 1
    assert re.fullmatch(r"postroom: .*broken/en/subject, line 1: .*\n", done.stderr)
    assert READY not in done.stdout


def test_up_starts_an_embedded_server_and_stops_it_last(tmp_path: Path) -> None:
    """Without a database of one's own there is one: other commands share it while it runs, and it ends with `up`."""
    settings = {
        "POSTROOM_DATA_DIR": str(tmp_path / "data"),
        "POSTROOM_HTTP_ADDR": "127.0.0.1:0",
        "POSTROOM_SHUTDOWN_GRACE": "1h",
    }
    with running("up", settings=settings, command=PATIENT) as up:
        _until_ready(up)
        url = postroom("db-url", settings=settings, command=PATIENT)
        assert url.stdout.startswith("postgresql://postroom:")
        query = ("psql", "-Atc", "SELECT count(*) FROM api_keys")
        assert postroom(*query, settings=settings, command=PATIENT).stdout == "1\n"
        assert up.stop() == 0
    gone = postroom("db-url", settings=settings, command=PATIENT)
    assert (gone.returncode, gone.stdout) == (1, "")


async def test_up_with_worker_processes_delivers(settings: dict[str, str], database_url: str) -> None:
    """`--workers 2` works in two supervised processes, which end with their parent."""
    with running("up", "--workers", "2", settings=settings) as up:
        pids: list[int] = []
        said: list[str] = []

        def collect(line: str) -> bool:
            said.append(line)
            if '"event": "process_started"' in line:
                pids.append(json.loads(line)["pid"])
            return len(pids) == 2 and any(READY in earlier for earlier in said)

        up.line(collect)
        url, headers, body = _paste(_curl_of("".join(said)))
        _fetch(url, headers, body)
        await _sent(database_url, 1)
        assert up.stop() == 0
    assert not [pid for pid in pids if _is_alive(pid)]


def test_serve_answers_and_stops(settings: dict[str, str]) -> None:
    """`serve` is the API alone; without any key it says how to create one. SIGTERM ends it with 0."""
    with running("serve", settings=settings) as serve:
        serve.line(lambda line: line.startswith("There is no API key yet. Create one with: postroom keys create"))
        url = serve.line(lambda line: "Postroom answers at" in line).rpartition(" ")[2]
        assert _fetch(f"{url}/healthz", {}) == {"status": "ok"}
        assert serve.stop() == 0


async def test_a_killed_worker_is_replaced_and_sigterm_drains(settings: dict[str, str], database_url: str) -> None:
    """SIGKILL of a child costs nothing but a restart; SIGTERM of the parent ends all of them with 0."""
    with running("work", "--processes", "2", settings=settings) as work:
        first, second = (work.event("process_started")["pid"] for _ in range(2))
        os.kill(first, signal.SIGKILL)
        ended = work.event("process_ended")
        assert (ended["pid"], ended["code"]) == (first, -signal.SIGKILL)
        third = work.event("process_started")["pid"]
        answer(postroom("send", "--to", "a@b.example", "--subject", "x", "--text", "y", "--json", settings=settings))
        await _sent(database_url, 1)
        assert work.stop() == 0
    assert not [pid for pid in (first, second, third) if _is_alive(pid)]


def test_workers_end_when_their_parent_is_killed(settings: dict[str, str]) -> None:
    """After SIGKILL of the parent, the children notice and stop."""
    with running("work", "--processes", "2", settings=settings) as work:
        pids = [work.event("process_started")["pid"] for _ in range(2)]
        ends = [os.pidfd_open(pid) for pid in pids]
        work.stop(signal.SIGKILL)
        for end in ends:
            assert select.select([end], [], [], PATIENCE_S)[0] == [end]
            os.close(end)


def test_processes_until_empty_end_by_themselves(settings: dict[str, str]) -> None:
    """With nothing due, supervised workers finish and are not replaced."""
    assert postroom("work", "--processes", "2", "--until-empty", settings=settings).returncode == 0


def test_a_signal_while_starting_ends_at_once(settings: dict[str, str]) -> None:
    """A database that never answers cannot keep `up` from being stopped, and nothing was printed as ready."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"postgresql://nobody@127.0.0.1:{silent.getsockname()[1]}/x"
        with running("up", settings={**settings, "POSTROOM_DATABASE_URL": url}) as up:
            connection, _ = silent.accept()
            with connection:
                assert up.stop(signal.SIGTERM) == 0
                assert READY not in up.rest()


def _is_alive(pid: int) -> bool:
    """True if the process runs; a zombie that waits for its parent does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2]
    except OSError:
        return False
    return not state.startswith("Z")


@pytest.mark.parametrize(
    "given, expected",
    [
        ({}, "1"),
        ({"POSTROOM_HTTP_ADDR": "[::1]:0"}, "1"),
        ({"POSTROOM_HTTP_ADDR": "0.0.0.0:8025"}, "0"),
        ({"POSTROOM_TRANSPORT": "senders"}, "0"),
        ({"POSTROOM_WEBHOOK_ALLOW_LOOPBACK": "0"}, "0"),
        ({"POSTROOM_TRANSPORT": "senders", "POSTROOM_WEBHOOK_ALLOW_LOOPBACK": "1"}, "1"),
    ],
)
def test_up_posts_webhooks_to_loopback_in_development_only(given: dict[str, str], expected: str) -> None:
    """Captured mail and an API on loopback mean a developer's machine; the setting decides otherwise."""
    settings = with_loopback_webhooks(read_settings(given))
    assert worker_environment(settings)["POSTROOM_WEBHOOK_ALLOW_LOOPBACK"] == expected


def test_printed_address_can_be_used() -> None:
    """A wildcard address is shown as loopback, and IPv6 addresses get brackets."""
    with bind(("0.0.0.0", 0)) as everywhere:
        assert url_of(everywhere).startswith("http://127.0.0.1:")
    assert curl_line("http://127.0.0.1:1", Path("/a b/api-key")).count("'/a b/api-key'") == 1


async def test_sigterm_waits_for_the_attempt_in_flight(settings: dict[str, str], database_url: str) -> None:
    """SIGTERM in the middle of an attempt: the attempt ends, its result is committed, and the exit is 0."""
    postroom("send", "--to", "slow@example.org", "--subject", "x", "--text", "y", settings=settings)
    hold = Hold("250 2.0.0 queued")
    async with smtp_server(Script(says={".": hold})) as server:
        relay = {"POSTROOM_TRANSPORT": "smtp", "POSTROOM_SMTP_RELAY": f"smtp://127.0.0.1:{server.port}?tls=none"}
        with running("work", settings={**settings, **relay}) as work:
            await asyncio.wait_for(hold.reached.wait(), PATIENCE_S)
            work.process.send_signal(signal.SIGTERM)
            hold.go.set()
            assert await asyncio.to_thread(work.wait) == 0
    connection = await asyncpg.connect(database_url, server_settings={"search_path": "postroom"})
    try:
        row = await connection.fetchrow("SELECT state::text, attempt_count FROM deliveries")
    finally:
        await connection.close()
    assert tuple(row) == ("sent", 1)


@pytest.mark.parametrize(
    "variable, value",
    [
        ("POSTROOM_FROM", "nobody"),
        ("POSTROOM_ADMIN_EMAIL", "nobody"),
        ("POSTROOM_DKIM_KEYS", "example.org:s1:/nowhere.pem"),
        ("POSTROOM_SMTP_RELAY", "gopher://127.0.0.1"),
    ],
)
@pytest.mark.parametrize("command", [("up",), ("work", "--processes", "2")])
def test_invalid_worker_setting_stops_the_start(
    command: tuple[str, ...], variable: str, value: str, settings: dict[str, str]
) -> None:
    """No port is opened and no child is started again and again for a setting that cannot work."""
    chosen = {"POSTROOM_TRANSPORT": "smtp", "POSTROOM_SMTP_RELAY": "smtp://127.0.0.1:1", variable: value}
    done = postroom(*command, settings={**settings, **chosen})
    assert done.returncode == 1
    assert re.fullmatch(rf"postroom: {variable}: .*\n", done.stderr)
