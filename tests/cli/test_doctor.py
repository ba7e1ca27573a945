"""`postroom doctor` reports each problem with advice and exits with 1 only on failures."""

import asyncio
import os
import socket
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import asyncpg
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from tests.support.builders import QUEUE_WAITING
from tests.support.command_line import PATIENT, answer, postroom, running
from tests.support.smtp_server import Script, smtp_server

from postroom.cli import database_checks, host_checks
from postroom.db.failures import record_loop_failure
from postroom.db.pool import connect
from postroom.db.processes import _Registration
from postroom.db.room import Room
from postroom.events import Event, EventStore
from postroom.post.keyed_hash import SecretKey
from postroom.runtime.finding import Finding, Severity, rough
from postroom.runtime.peers import UNLISTED_PROXIES, TrustedProxies
from postroom.runtime.secrets import SecretBox
from postroom.settings import Settings


async def _examine(database_url: str, schema: str = "postroom") -> dict[str, Finding]:
    session = await connect(database_url, schema)
    try:
        found = await database_checks.examine(session, Settings(database_url=database_url, schema=schema))
    finally:
        await session.close()
    return {finding.check: finding for finding in found}


def test_a_healthy_room_has_no_failure(database_url: str, tmp_path: Path) -> None:
    """Everything is checked, each check says what it found, and the exit is 0."""
    settings = {"POSTROOM_DATABASE_URL": database_url, "POSTROOM_DATA_DIR": str(tmp_path)}
    report = answer(postroom("doctor", "--json", settings=settings, command=PATIENT))
    verdicts = {check["check"]: check["verdict"] for check in report["checks"]}
    assert report["healthy"] is True
    for check in ("room", "migrations", "transactions", "claims", "templates", "transport"):
        assert verdicts[check] == "ok", check
    assert verdicts["clock"] in {"ok", "warn"}  # a pause of this process during the query looks like a clock difference
    assert verdicts["workers"] == "warn"
    assert all(check["advice"] for check in report["checks"] if check["verdict"] != "ok")


def test_an_unreachable_database_fails_with_advice() -> None:
    """The rest is still checked, the row says what to do, and the exit is 1."""
    done = postroom("doctor", settings={"POSTROOM_DATABASE_URL": "postgresql://nobody@127.0.0.1:1/x"})
    assert done.returncode == 1
    assert "fail  database" in done.stdout
    assert "check POSTROOM_DATABASE_URL" in done.stdout
    assert "templates" in done.stdout
    assert done.stderr == ""


def test_without_a_running_embedded_server_nothing_is_started(tmp_path: Path) -> None:
    """The doctor looks; it does not start a database to have something to look at."""
    done = postroom("doctor", settings={"POSTROOM_DATA_DIR": str(tmp_path / "data")})
    assert done.returncode == 1
    assert "`postroom up`" in done.stdout
    assert not (tmp_path / "data").exists()


async def test_a_missing_room_is_one_failure_that_names_the_others(database_url: str) -> None:
    """A typo in POSTROOM_SCHEMA is a typo, not a list of missing files; checks of its tables are left out."""
    found = await _examine(database_url, "elsewhere")
    assert found["room"].found == "There is no room 'elsewhere' in this database; it has 'postroom'."
    assert found["room"].advice == "Create it with `postroom migrate`, or correct POSTROOM_SCHEMA."
    assert (found["room"].verdict, set(found)) == (Severity.FAIL, {"database", "room"})


async def test_loops_that_failed_lately_are_shown(database_url: str, room: Room) -> None:
    """A side loop that raised is a warning for an hour, with its host, its error and how often."""
    assert (await _examine(database_url))["loops"].verdict is Severity.OK
    for _ in range(2):
        await record_loop_failure(room.pool, "Folder", asyncpg.InternalClientError("state 11"))
    found = (await _examine(database_url))["loops"]
    assert found.verdict is Severity.WARN
    assert found.found.startswith(
        f"Folder on {socket.gethostname()} (pid {os.getpid()}): InternalClientError 0 s ago, 2 "
    )
    await room.pool.execute("UPDATE loop_failures SET failed_at = now() - interval '2 hours'")
    assert (await _examine(database_url))["loops"].verdict is Severity.OK


async def test_sender_accounts_are_reported(database_url: str, room: Room) -> None:
    """None, one that is not used because the inbox captures, and one that waits for a person."""
    assert (await _examine(database_url))["senders"].verdict is Severity.OK
    await room.pool.execute(
        "INSERT INTO sender_accounts (email, auth_type, smtp_host, smtp_port) VALUES ('a@example.org', 'smtp', 'h', 25)"
    )
    sending = (await _examine(database_url))["senders"]
    assert (sending.verdict, sending.found) == (Severity.WARN, "1 accounts, not used by POSTROOM_TRANSPORT=capture")
    await room.pool.execute("UPDATE sender_accounts SET status = 'suspended', status_reason = 'login refused'")
    assert "a@example.org is suspended (login refused)" in (await _examine(database_url))["senders"].found


@pytest.mark.parametrize("behind, verdict", [(0, Severity.OK), (1, Severity.OK), (2, Severity.WARN)])
async def test_a_server_that_is_two_minor_releases_behind_is_reported(
    room: Room, monkeypatch: pytest.MonkeyPatch, behind: int, verdict: Severity
) -> None:
    """The advice is to install the newest one; a single release may still be on its way through the distribution."""
    async with room.pool.acquire() as session:
        present = await session.fetchval("SELECT current_setting('server_version_num')::integer % 10000")
        monkeypatch.setattr(database_checks, "newest_minor", lambda _major, _today: present + behind)
        [found] = [each for each in await database_checks.examine(session, room.settings) if each.check == "database"]
    assert (found.verdict, f".{present + behind} is out" in found.found) == (verdict, verdict is Severity.WARN)


async def test_secrets_of_another_key_are_reported(room: Room) -> None:
    """After a restore without the secret key a new one is there, and opens nothing of what the old one sealed."""
    await room.pool.execute(
        "INSERT INTO webhook_endpoints (url, topics, secret_key_id, secret) VALUES ('https://x', '{t}', $1, 'x')",
        next(iter(SecretBox([b"old" * 8]).key_ids)),
    )
    async with room.pool.acquire() as session:
        new = replace(room.settings, secret_key=b"new" * 8)
        checks = {each.check: each for each in await database_checks.examine(session, new)}
        assert (checks["sealed secrets"].verdict, "webhooks" in checks["sealed secrets"].found) == (Severity.FAIL, True)
        both = replace(new, old_secret_keys=(SecretKey(b"old" * 8, {"postroom": 7}),))
        checks = {each.check: each for each in await database_checks.examine(session, both)}
        assert checks["sealed secrets"].verdict is Severity.OK
        endless = replace(new, old_secret_keys=(SecretKey(b"old" * 8),))
        checks = {each.check: each for each in await database_checks.examine(session, endless)}
        assert (checks["sealed secrets"].verdict, "without an end" in checks["sealed secrets"].found) == (
            Severity.WARN,
            True,
        )


async def test_stalled_publishers_are_reported(database_url: str, room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    """A publisher without a leader, failing, failed, or blocked by an open transaction is reported."""
    assert (await _examine(database_url))["outbox"].verdict is Severity.OK
    await room.pool.execute("INSERT INTO outbox_topics (name) VALUES ('money')")
    await room.pool.execute("INSERT INTO outbox_topic_progress (topic, publisher) VALUES ('money', 'redis')")
    alone = (await _examine(database_url))["outbox"]
    assert (alone.verdict, alone.found) == (Severity.WARN, "money/redis: no process publishes it")
    await room.pool.execute(
        "UPDATE outbox_topic_progress SET leader_instance = 'i', leader_since = now(), leader_heartbeat = now()"
    )
    assert (await _examine(database_url))["outbox"].verdict is Severity.OK
    await room.pool.execute("UPDATE outbox_topic_progress SET error_count = 1, last_error = 'Redis is away'")
    failing = (await _examine(database_url))["outbox"]
    assert (failing.verdict, failing.found) == (Severity.WARN, "money/redis: Redis is away")
    await room.pool.execute("UPDATE outbox_topic_progress SET status = 'FAILED'")
    failed = (await _examine(database_url))["outbox"]
    assert (failed.verdict, failed.found) == (Severity.FAIL, "given up: money/redis: Redis is away")
    await room.pool.execute("UPDATE outbox_topic_progress SET status = 'PAUSED', error_count = 0")
    assert (await _examine(database_url))["outbox"].verdict is Severity.OK
    monkeypatch.setattr(database_checks, "TRANSACTION_WARNS", timedelta())
    async with room.pool.acquire() as holder, holder.transaction():
        await holder.execute("SELECT pg_current_xact_id()")
        await EventStore(room.pool).append(Event.of("Deposited"))
        assert "events wait for the open transaction of" in (await _examine(database_url))["outbox"].found


async def test_waiting_malformed_commands_are_reported(database_url: str, room: Room) -> None:
    """Malformed commands are a warning until they are resubmitted or dismissed."""
    assert (await _examine(database_url))["malformed commands"].verdict is Severity.OK
    await room.pool.execute("INSERT INTO malformed_commands (source, reason, raw) VALUES ('shop', 'bad_field', 'x')")
    found = (await _examine(database_url))["malformed commands"]
    assert (found.verdict, found.found) == (Severity.WARN, "1 waiting")
    assert "postroom malformed list" in found.advice


async def test_long_transaction_is_reported_with_its_session(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its process, age and application are named: it keeps dead rows of the queue alive."""
    monkeypatch.setattr(database_checks, "TRANSACTION_WARNS", timedelta())
    holder = await asyncpg.connect(database_url, server_settings={"application_name": "nightly report"})
    try:
        async with holder.transaction():
            pid = await holder.fetchval("SELECT pg_backend_pid()")
            found = (await _examine(database_url))["transactions"]
            monkeypatch.setattr(database_checks, "TRANSACTION_FAILS", timedelta())
            failed = (await _examine(database_url))["transactions"]
    finally:
        await holder.close()
    assert f"pid {pid} (nightly report, " in found.found
    assert f"pg_terminate_backend({pid})" in found.advice
    assert (found.verdict, failed.verdict) == (Severity.WARN, Severity.FAIL)


async def test_stalled_claims_workers_and_late_mail_are_seen(room: Room) -> None:
    """Expired claims, running workers and overdue lanes are reported."""
    async with room.pool.acquire() as connection:
        await connection.execute(
            "INSERT INTO claims (lane, delivery_ids, worker_id, claimed_at, expires_at)"
            " VALUES ('bulk', '{1,2,3}', 1, now() - interval '1 hour', now() - interval '29 minutes 35 seconds')"
        )
        await connection.execute("INSERT INTO workers (pid, host) VALUES (1, 'here'), (2, 'there')")
        await connection.execute(
            "INSERT INTO deliveries (lane, next_attempt_at, ladder, source, recipient_email)"
            " VALUES ('auth', now() - interval '9 minutes 35 seconds', 'auth', 'test', 'ada@example.org')"
        )
        await connection.execute(QUEUE_WAITING)
    found = await _examine(room.direct_url)
    assert (found["claims"].verdict, found["workers"].verdict) == (Severity.WARN, Severity.OK)
    assert "(bulk, 3) for 30 min" in found["claims"].found
    assert found["workers"].found == "2 on here, there"
    assert found["queue"].found == "auth 10 min late, waits for turn"


@pytest.mark.parametrize(
    "seconds, verdict", [(0.1, Severity.OK), (-5, Severity.WARN), (5, Severity.WARN), (-60, Severity.FAIL)]
)
def test_clocks_may_differ_a_little(seconds: float, verdict: Severity) -> None:
    """Two seconds are worth a word, thirty are a failure, in both directions."""
    assert database_checks._clock(timedelta(seconds=seconds)).verdict is verdict


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    monkeypatch.setattr(host_checks, "CONNECT_TIMEOUT_S", 3600.0)
    return Settings(database_url="postgresql://unused@127.0.0.1:1/x", data_dir=tmp_path)


async def test_the_relay_is_asked_for_a_connection(settings: Settings) -> None:
    """A relay that takes the login is fine, one that does not listen is a failure; no password is repeated."""
    async with smtp_server(Script(users={"u": "hush"})) as relay:
        smtp = replace(settings, transport="smtp", smtp_relay=f"smtp://u:hush@127.0.0.1:{relay.port}?tls=none")
        assert (await host_checks.transport(smtp)).verdict is Severity.OK
    refused = await host_checks.transport(smtp)
    assert refused.verdict is Severity.FAIL
    assert "hush" not in refused.found + refused.advice
    wrong = await host_checks.transport(replace(smtp, smtp_relay="gopher://x"))
    assert wrong.verdict is Severity.FAIL


async def test_port_of_another_program_is_reported(settings: Settings, database_url: str) -> None:
    """An address that answers like Postroom is fine; anything else in its place is worth a word."""
    with socket.create_server(("127.0.0.1", 0)) as stranger:
        port = stranger.getsockname()[1]
        checking = asyncio.create_task(host_checks.port(replace(settings, http_addr=("127.0.0.1", port))))
        connection, _ = await asyncio.to_thread(stranger.accept)
        connection.close()
        assert (await checking).verdict is Severity.WARN
    assert (await host_checks.port(replace(settings, http_addr=("127.0.0.1", port)))).verdict is Severity.OK
    ours = {"POSTROOM_DATABASE_URL": database_url, "POSTROOM_HTTP_ADDR": "127.0.0.1:0"}
    with running("serve", settings=ours) as serve:
        url = serve.line(lambda line: "answers at" in line)
        address = ("127.0.0.1", int(url.rpartition(":")[2]))
        found = await host_checks.port(replace(settings, http_addr=address))
    assert found.found == f"127.0.0.1:{address[1]} is answered by Postroom"


def test_a_signing_key_that_others_can_read_is_a_warning(settings: Settings, tmp_path: Path) -> None:
    """The mode of a key file is checked, and the command that corrects it is named."""
    path = tmp_path / "key.pem"
    private = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    path.write_bytes(Ed25519PrivateKey.generate().private_bytes(serialization.Encoding.PEM, *private))
    signing = replace(settings, dkim_keys=f"a.example:s:{path}")
    path.chmod(0o644)
    found = host_checks.signatures(signing)
    assert (found.verdict, found.advice) == (Severity.WARN, f"chmod 600 {path}")
    path.chmod(0o600)
    assert host_checks.signatures(signing).verdict is Severity.OK


def test_files_that_cannot_be_used_fail(settings: Settings, tmp_path: Path) -> None:
    """A template that does not parse and a signing key that cannot be read are failures, not surprises."""
    assert host_checks.templates(replace(settings, template_dir=tmp_path / "none")).verdict is Severity.FAIL
    missing = host_checks.signatures(replace(settings, dkim_keys="a.example:s:/nowhere.pem"))
    assert missing.verdict is Severity.FAIL
    assert "/nowhere.pem cannot be read: No such file or directory" in missing.found
    assert missing.advice == "correct the path in POSTROOM_DKIM_KEYS, or let this user read the file"
    assert host_checks.secret(settings).verdict is Severity.WARN
    (tmp_path / "secret-key").write_text("x")
    assert host_checks.secret(settings).verdict is Severity.OK


def test_little_room_on_the_disk_matters_to_the_embedded_server(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thresholds decide; a database elsewhere has a disk of its own."""
    embedded = replace(settings, database_url=None)
    assert host_checks.disk(settings).verdict is Severity.OK
    monkeypatch.setattr(host_checks, "DISK_WARNS", 2**80)
    assert host_checks.disk(embedded).verdict is Severity.WARN
    monkeypatch.setattr(host_checks, "DISK_FAILS", 2**80)
    assert host_checks.disk(embedded).verdict is Severity.FAIL
    assert host_checks.disk(settings).verdict is Severity.OK


@pytest.mark.parametrize(
    "age, shown",
    [
        (timedelta(seconds=40), "40 s"),
        (timedelta(minutes=12), "12 min"),
        (timedelta(hours=3), "3 h"),
        (timedelta(days=9), "9 d"),
    ],
)
def test_ages_have_one_number_and_one_unit(age: timedelta, shown: str) -> None:
    """One number and one unit."""
    assert rough(age) == shown


MOVED = """
BEGIN;
LOCK TABLE attempts;
CREATE TEMPORARY TABLE outside AS SELECT * FROM attempts_default WHERE finished_at >= '{month}-01Z';
DELETE FROM attempts_default WHERE finished_at >= '{month}-01Z';
CREATE TABLE attempts_own PARTITION OF attempts
    FOR VALUES FROM ('{month}-01Z') TO ('{month}-01Z'::timestamptz + interval '1 month');
INSERT INTO attempts_own SELECT * FROM outside;
COMMIT;
"""


async def test_row_that_blocks_a_partition_is_reported(database_url: str, room: Room) -> None:
    """One of next month in the default partition is enough; one of the past is on its way into the archive."""
    assert (await _examine(database_url))["partitions"].verdict is Severity.OK
    add = (
        "INSERT INTO attempts (delivery_id, attempt_no, outcome, lane, started_at, finished_at)"
        " SELECT 1, 1, 'sent', 'bulk', at, at"
        " FROM (SELECT date_trunc('month', now()) + make_interval(months => $1) AS at) AS chosen"
        " RETURNING to_char(finished_at, 'YYYY-MM')"
    )
    await room.pool.fetchval(add, -3)
    assert (await _examine(database_url))["partitions"].verdict is Severity.OK
    month = await room.pool.fetchval(add, 2)
    kept = (await _examine(database_url))["partitions"]
    assert (kept.verdict, f"block {month} of attempts" in kept.found) == (Severity.WARN, True)
    assert "archive.md" in kept.advice
    await room.pool.execute(MOVED.format(month=month))
    assert (await _examine(database_url))["partitions"].verdict is Severity.OK


async def test_a_proxy_that_is_not_listed_is_reported(
    database_url: str, room: Room, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that ignores X-Forwarded-For from its own network reports the address, with the setting."""
    monkeypatch.setattr(UNLISTED_PROXIES, "newest", None)
    registration = _Registration(room.pool, room.name, "serve")
    await registration.renew()
    assert (await _examine(database_url))["proxies"].verdict is Severity.OK
    TrustedProxies().check_sender({"client": ("10.0.0.7", 1)})
    await registration.renew()
    found = (await _examine(database_url))["proxies"]
    assert (found.verdict, found.advice) == (Severity.WARN, "list the proxy in POSTROOM_TRUSTED_PROXIES")
    assert "10.0.0.7" in found.found
