"""The doctor's checks of the database, one function per check."""

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from functools import partial

import asyncpg

from postroom.accounts.store import measure_stall
from postroom.accounts.worker import uncollected_for
from postroom.archive.health import examine_archive
from postroom.archive.model import ArchiveOptions
from postroom.cli import mail_checks, room_checks
from postroom.cli.postgres_releases import MOST_BEHIND, newest_minor
from postroom.db.errors import DatabaseError, DatabaseNewer, MigrationChanged, RoomMissing
from postroom.db.failures import list_loop_failures
from postroom.db.migrate import PROCESS_SILENCE, check_exists, check_migrated, list_later
from postroom.db.pool import Session
from postroom.db.queries import load
from postroom.embedded.binaries import OLDEST_MAJOR
from postroom.intake.service import COUNT_LIMIT
from postroom.intake.store import count_malformed_commands
from postroom.outbox.store import find_stall
from postroom.runtime.finding import Finding, fail, ok, rough, warn
from postroom.runtime.secret_key import with_secret_key
from postroom.runtime.secrets import SecretBox
from postroom.schedule.store import measure_schedule
from postroom.settings import Settings

SKEW_WARNS = timedelta(seconds=2)  # more than NTP leaves between two hosts
SKEW_FAILS = timedelta(seconds=30)  # due times and leases become visibly wrong
TRANSACTION_WARNS = timedelta(minutes=1)  # cursors cannot pass an open transaction: account mail and events wait for it
TRANSACTION_FAILS = timedelta(minutes=15)  # one-time codes that wait this long have mostly expired
# Recovery runs every few seconds; a claim that expired earlier shows that it does not
CLAIM_STALLS = timedelta(minutes=1)
WORKER_SILENT = timedelta(minutes=2)  # a living one speaks every third of its lease
LEADER_SILENT = timedelta(minutes=1)  # a living one speaks every second
LOOP_FAILURE_SHOWN = timedelta(hours=1)  # loops retry within minutes; older failures are history
CONNECTIONS_WARN = 0.9  # of max_connections: leaves room for a deployment that starts a second set of workers
OUTSIDE_LOOKED_AT = 10_000  # bounds the scan of the default partition
SCHEDULE_LATE = timedelta(minutes=1)  # a living scheduler looks twice a second
TOKENS_COUNTED = 10_000  # bounds the count, so that doctor stays quick in a crisis
TOKENS_LATE = timedelta(minutes=1)  # a living collector looks every second

_QUERIES = load("postroom.cli", "doctor.sql")


async def examine(session: Session, settings: Settings) -> list[Finding]:
    """Every check, in the order in which a failure explains the next one; the room's only if there is a room."""
    try:
        await check_exists(session, settings.schema)
    except RoomMissing as error:
        return [_version(await _QUERIES["describe_server"].one(session)), fail("room", error.problem, error.advice)]
    findings = [*await _server(session, settings), await _migrations(session, settings)]
    findings.append(await _transactions(session))
    checks: tuple[Callable[[Session], Awaitable[Finding]], ...] = (
        _claims,
        _workers,
        _proxies,
        _loops,
        mail_checks.examine_ways_out,
        mail_checks.examine_queue,
        mail_checks.examine_waiting,
        mail_checks.examine_dead_letters,
        _malformed,
        partial(_tokens, settings=settings),
        _schedule,
        partial(mail_checks.examine_senders, settings=settings),
        partial(_seals, settings=settings),
        room_checks.examine_keys,
        room_checks.examine_room,
        partial(_archive, settings=settings),
        _partitions,
        room_checks.examine_indexes,
        _outbox,
    )
    for check in checks:
        try:
            findings.append(await check(session))
        except asyncpg.InsufficientPrivilegeError as error:
            findings.append(_lacks_right(error))
        except (asyncpg.UndefinedTableError, asyncpg.UndefinedColumnError, asyncpg.UndefinedObjectError):
            break  # the row about migrations has said why
    return findings


async def _server(session: Session, settings: Settings) -> list[Finding]:
    asked = datetime.now(UTC)
    row = await _QUERIES["describe_server"].one(session)
    answered = datetime.now(UTC)
    return [
        _version(row),
        _room(row, settings),
        _clock(row["at"] - (asked + (answered - asked) / 2)),
        _connections(row, settings),
    ]


def _version(row: asyncpg.Record) -> Finding:
    if row["major"] < OLDEST_MAJOR:
        return fail("database", f"PostgreSQL {row['version']}", f"use PostgreSQL {OLDEST_MAJOR} or newer")
    if row["is_replica"]:
        return fail("database", f"PostgreSQL {row['version']}, a read-only replica", "connect to the primary")
    newest = newest_minor(row["major"], row["at"].date())
    if newest - row["minor"] > MOST_BEHIND:
        advice = "install the newest minor release: it fixes defects and needs a restart only"
        return warn("database", f"PostgreSQL {row['version']}; by the calendar {row['major']}.{newest} is out", advice)
    return ok("database", f"PostgreSQL {row['version']}")


def _room(row: asyncpg.Record, settings: Settings) -> Finding:
    if row["schema"] == settings.schema:
        return ok("room", f"schema {row['schema']}, role {row['role']}")
    found = f"the search path of role {row['role']} is {row['schema'] or 'empty'}, not {settings.schema}"
    return fail("room", found, "grant the role USAGE on the schema, and see the row about the pooler")


def _clock(skew: timedelta) -> Finding:
    shown = f"{abs(skew).total_seconds():.3f} s {'behind' if skew > timedelta() else 'ahead of'} the database"
    if abs(skew) >= SKEW_FAILS:
        return fail("clock", f"this host is {shown}", "set this host's clock (NTP)")
    if abs(skew) >= SKEW_WARNS:
        return warn("clock", f"this host is {shown}", "set this host's clock (NTP)")
    return ok("clock", f"this host is {shown}")


def _connections(row: asyncpg.Record, settings: Settings) -> Finding:
    shown = f"{row['connections']} of {row['max_connections']} in use, up to {settings.pool_size} per process"
    if row["connections"] >= CONNECTIONS_WARN * row["max_connections"]:
        return warn("connections", shown, "raise max_connections, lower POSTROOM_POOL_SIZE, or use a pooler")
    return ok("connections", shown)


async def _migrations(session: Session, settings: Settings) -> Finding:
    try:
        await check_migrated(session, settings.schema)
        later = await list_later(session, settings.schema)
    except (DatabaseNewer, MigrationChanged) as error:
        return fail("migrations", error.message, "install the version that migrated this room")
    except DatabaseError as error:
        return fail("migrations", error.message, "run `postroom migrate`")
    except asyncpg.InsufficientPrivilegeError as error:
        return _lacks_right(error)
    except asyncpg.UndefinedTableError:
        return fail("migrations", "the room's tables are not on the search path", "see the row about the pooler")
    if later:
        return warn("migrations", f"{len(later)} wait for the end of the upgrade", "run `postroom migrate --after`")
    return ok("migrations", "up to date")


def _lacks_right(error: asyncpg.InsufficientPrivilegeError) -> Finding:
    return warn("rights", str(error), "run `postroom doctor` with the URL of `postroom serve`")


async def _transactions(session: Session) -> Finding:
    rows = await _QUERIES["list_long_transactions"].many(session, patience=TRANSACTION_WARNS)
    if not rows:
        return ok("transactions", f"none older than {rough(TRANSACTION_WARNS)}")
    shown = "; ".join(
        f"pid {row['pid']} ({row['application']}, {row['role']}, {row['state']}) for {rough(row['age'])}"
        for row in rows
    )
    advice = f"they hold back the queue; end one with SELECT pg_terminate_backend({rows[0]['pid']})"
    judge = fail if rows[0]["age"] >= TRANSACTION_FAILS else warn
    return judge("transactions", shown, advice)


async def _claims(session: Session) -> Finding:
    rows = await _QUERIES["list_stalled_claims"].many(session, patience=CLAIM_STALLS)
    if not rows:
        return ok("claims", "none stalled")
    shown = "; ".join(f"claim {row['id']} ({row['lane']}, {row['size']}) for {rough(row['late'])}" for row in rows)
    return warn("claims", f"left by dead workers: {shown}", "start a worker: it takes them over")


async def _workers(session: Session) -> Finding:
    rows = await _QUERIES["list_workers_seen"].many(session, patience=WORKER_SILENT)
    if not rows:
        return warn("workers", "none seen lately", "start one with `postroom work` or `postroom up`")
    hosts = sorted({row["host"] for row in rows})
    return ok("workers", f"{len(rows)} on {', '.join(hosts)}")


async def _proxies(session: Session) -> Finding:
    rows = await _QUERIES["list_unlisted_proxies"].many(session, patience=PROCESS_SILENCE)
    if not rows:
        return ok("proxies", "no unlisted proxy seen")
    shown = ", ".join(row["address"] for row in rows)
    found = f"X-Forwarded-For from {shown} is ignored: all clients behind it share the limits of one address"
    return warn("proxies", found, "list the proxy in POSTROOM_TRUSTED_PROXIES")


async def _loops(session: Session) -> Finding:
    rows = await list_loop_failures(session, since=LOOP_FAILURE_SHOWN)
    if not rows:
        return ok("loops", f"none failed in {rough(LOOP_FAILURE_SHOWN)}")
    shown = "; ".join(
        f"{row['loop']} on {row['host']} (pid {row['pid']}): {row['error']} {rough(row['ago'])} ago, "
        f"{row['failures']} in all"
        for row in rows
    )
    return warn("loops", shown, "they retry after a pause; the log names the error and the line, as `loop_failed`")


async def _malformed(session: Session) -> Finding:
    waiting = await count_malformed_commands(session, count_limit=COUNT_LIMIT)
    if not waiting:
        return ok("malformed commands", "none waiting")
    shown = f"{waiting}{' or more' if waiting == COUNT_LIMIT else ''} waiting"
    return warn("malformed commands", shown, "look at `postroom malformed list`, then resubmit or dismiss")


async def _tokens(session: Session, settings: Settings) -> Finding:
    stall = await measure_stall(session, now=None)
    if stall.is_alarming(TOKENS_LATE.total_seconds()):
        holder = f"pid {stall.holder_pid}" if stall.holder_pid else stall.holder_gid or "a transaction"
        shown = f"{holder} has held {stall.tokens} back for {rough(timedelta(seconds=stall.seconds))}"
        return warn("tokens", shown, "end that transaction: no mail of theirs leaves before")
    row = await _QUERIES["find_waiting_tokens"].one(session, bound=TOKENS_COUNTED)
    if row["late"] <= TOKENS_LATE + settings.batch_timeout:
        return ok("tokens", "collected")
    many = " or more" if row["waiting"] == TOKENS_COUNTED else ""
    shown = f"{row['waiting']}{many} wait, for {rough(row['late'])}, and no collector runs"
    if not settings.account_mail:
        return fail("tokens", shown, "POSTROOM_ACCOUNT_MAIL is off: run `postroom tokens collect`, or switch it on")
    unset = uncollected_for(settings)
    advice = f"set {' and '.join(unset)}, then start a worker" if unset else "start a worker with these settings"
    return fail("tokens", shown, advice)


async def _schedule(session: Session) -> Finding:
    backlog = await measure_schedule(session)
    notes = []
    if backlog.due_for > SCHEDULE_LATE:
        notes.append(f"{backlog.due} events are due, the first for {rough(backlog.due_for)}")
    if backlog.unplanned_for > SCHEDULE_LATE:
        notes.append(f"{backlog.unplanned} people wait to be planned for, the first for {rough(backlog.unplanned_for)}")
    if notes:
        return warn("schedule", "; ".join(notes), "start a worker: it hands over and plans")
    if backlog.unplannable:
        shown = f"{backlog.unplannable} people have an invalid zone or rule"
        advice = "find them with SELECT id FROM users WHERE is_unplannable, and correct the zone or the rule"
        return warn("schedule", shown, advice)
    return ok("schedule", "nothing overdue, every person is planned")


async def _seals(session: Session, settings: Settings) -> Finding:
    """Check that secrets can be decrypted: a restore without the key fails only at the first webhook."""
    keyed = with_secret_key(settings, making=False)
    ours = SecretBox(keyed.sealing_keys).key_ids
    rows = await _QUERIES["list_seals"].many(session)
    closed = [f"{row['owner']} with the key {row['key_id']}" for row in rows if row["key_id"] not in ours]
    if closed:
        advice = "restore POSTROOM_SECRET_KEY from the original installation, or enter the secrets again"
        return fail("sealed secrets", f"cannot be opened, sealed for {', '.join(closed)}", advice)
    endless = sum(each.ends is None for each in keyed.old_secret_keys)
    if endless:
        advice = "run `postroom secrets rotate`, which prints their end, and set it in POSTROOM_OLD_SECRET_KEYS"
        return warn("sealed secrets", f"{endless} old secret keys verify links without an end", advice)
    return ok("sealed secrets", "can be opened" if rows else "none")


async def _outbox(session: Session) -> Finding:
    rows = await _QUERIES["list_troubled_pairs"].many(session, silence=LEADER_SILENT)
    shown = "; ".join(f"{row['pair']}: {row['last_error'] or 'no process publishes it'}" for row in rows)
    if rows and rows[0]["has_failed"]:
        return fail(
            "outbox", f"given up: {shown}", "fix the cause, then run `postroom outbox resume` or `postroom outbox skip`"
        )
    stall = await find_stall(session)
    if stall is not None and stall.seconds >= TRANSACTION_WARNS.total_seconds():
        return warn("outbox", f"events wait for the open transaction of {stall}", "end it: nothing is published before")
    if rows:
        return warn("outbox", shown, "look at `postroom outbox list`; start a process that has the publisher")
    return ok("outbox", "every publisher is at work")


async def _partitions(session: Session) -> Finding:
    """Find rows in the default partition: dates in the future, or months whose partition was not created in time."""
    rows = await _QUERIES["list_months_without_partition"].many(session, bound=OUTSIDE_LOOKED_AT)
    if not rows:
        return ok("partitions", "no rows in the default partition block a monthly partition")
    shown = ", ".join(f"{row['month']} of {row['table_name']}" for row in rows)
    advice = "move them: see `Rows outside their month` in docs/how-to/archive.md"
    return warn("partitions", f"rows in the default partition block {shown}", advice)


async def _archive(session: Session, settings: Settings) -> Finding:
    """List all problems of the archive's files; the most severe decides severity and advice."""
    health = await examine_archive(session, ArchiveOptions.of(settings))
    notes = [f"{url} does not answer: {reason}" for url, reason in health.unreachable.items()]
    if health.missing:
        notes.append(f"{len(health.missing)} of {health.pieces} missing, the first {health.missing[0]}")
    is_broken = bool(notes)
    if health.erasures:
        notes.append(f"{health.erasures} erasures are not done")
    if health.foreign:
        notes.append(f"{health.foreign} belong to the room that this one is a copy of")
    if is_broken:
        return fail("archived files", "; ".join(notes), "bring them back from a copy, then `postroom archive verify`")
    if health.erasures:
        return warn("archived files", "; ".join(notes), "the log of `postroom work` says what they wait for")
    if health.foreign:
        return warn("archived files", "; ".join(notes), "if only this room goes on: `postroom archive adopt --yes`")
    return ok("archived files", f"{health.pieces} pieces, each where it should be")
