"""`postroom doctor`: check the installation and advise on problems. `--live` sends a mail.

Nothing is changed or started.
"""

import asyncio
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from postroom.runtime.terminal import AsJson, print_json, run
from postroom.settings import Settings, read_settings

if TYPE_CHECKING:
    from postroom.post.address import Address
    from postroom.runtime.finding import Finding

_PATIENCE_S = 10.0  # for each check; a database that needs longer is a finding itself
LIVE_DATABASE_CHECKS = ("database", "room", "migrations", "workers")  # without these, no mail leaves
STYLES = {"ok": "green", "warn": "yellow", "fail": "bold red"}


def doctor(
    *,
    rooms: Annotated[
        str | None,
        typer.Option(
            "--rooms", metavar="PATTERN", help="Check many rooms, such as 'tenant_*'; with POSTROOM_SERVERS all rooms."
        ),
    ] = None,
    live: Annotated[
        bool, typer.Option("--live", help="Check only what real mail needs, and send a probe mail through the relay.")
    ] = False,
    to: Annotated[
        str | None, typer.Option("--to", metavar="ADDRESS", help="With --live: recipient of the probe mail.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Check the database, the rooms, workers, ports, templates and the transport. Exit 1 if a check fails.

    With --live, check whether real mail may leave: database, workers, From, links, DKIM, relay, bounces, backups.
    """
    from postroom.runtime.finding import Severity
    from postroom.runtime.http_address import with_running_address

    settings = with_running_address(read_settings())
    if live:
        findings = run(examine_live(settings, to=_address(to or settings.admin_email)))
    else:
        findings = run(examine(settings, rooms=rooms or ("*" if settings.servers else None)))
    if as_json:
        print_json({"healthy": all(f.verdict is not Severity.FAIL for f in findings), "checks": findings})
    else:
        _print(findings)
    if any(finding.verdict is Severity.FAIL for finding in findings):
        raise typer.Exit(1)


def _address(given: str | None) -> "Address | None":
    from postroom.post.address import parse_address

    try:
        return None if given is None else parse_address(given)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--to") from None


async def examine(settings: Settings, *, rooms: str | None = None) -> "list[Finding]":
    """Every finding, those about the database first; with `rooms`, also those about all rooms that match."""
    from postroom.cli import fleet_checks, host_checks, live_checks

    many = [] if rooms is None else await fleet_checks.examine(settings, rooms)
    hosted = await host_checks.examine(settings)
    return [*await _examine_database(settings), *many, *hosted, *await live_checks.examine(settings)]


async def examine_live(settings: Settings, *, to: "Address | None") -> "list[Finding]":
    """The findings about real mail. One mail leaves, if there is a relay and a recipient."""
    from postroom.cli import live_checks
    from postroom.runtime.secret_key import with_secret_key

    keyed = with_secret_key(settings, making=False)
    return [
        *await _examine_live_database(keyed),
        *await live_checks.examine(keyed, is_live=True),
        await live_checks.send_probe(keyed, to),
    ]


async def _examine_live_database(settings: Settings) -> "list[Finding]":
    """The room and its workers, and every other failure of the database. A fleet's rooms are checked with --rooms."""
    from postroom.runtime.finding import Severity, fail

    if settings.servers:
        return []
    findings = await _examine_database(settings)
    if not findings:
        return [fail("database", "not set", "set POSTROOM_DATABASE_URL, and run `postroom migrate`")]
    return [each for each in findings if each.check in LIVE_DATABASE_CHECKS or each.verdict is Severity.FAIL]


async def _examine_database(settings: Settings) -> "list[Finding]":
    from postroom.cli import database_checks, pooler_checks, room_checks
    from postroom.db.errors import DatabaseUnreachable
    from postroom.db.pool import connect
    from postroom.embedded.server import running_url
    from postroom.runtime.finding import fail

    url = settings.database_direct_url or settings.database_url or await running_url(settings.data_dir.absolute())
    if url is None:
        return []  # the row about the embedded server says so
    try:
        async with asyncio.timeout(_PATIENCE_S):
            session = await connect(url, settings.schema)
    except (DatabaseUnreachable, TimeoutError) as error:
        found = error.message if isinstance(error, DatabaseUnreachable) else f"no answer in {_PATIENCE_S:g} s"
        return [fail("database", found, "check POSTROOM_DATABASE_URL and that PostgreSQL runs")]
    try:
        findings = await database_checks.examine(session, settings)
        if settings.replica_url is not None:
            findings.append(await room_checks.examine_replica(session, settings))
    finally:
        await session.close()
    return [*findings, await pooler_checks.examine(settings, url)]


def _print(findings: "list[Finding]") -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, show_header=False)
    for finding in findings:
        advice = Text(f"→ {finding.advice}" if finding.advice else "", style="dim")
        table.add_row(
            Text(finding.verdict, style=STYLES[finding.verdict]), Text(finding.check), Text(finding.found), advice
        )
    Console(width=None if sys.stdout.isatty() else 240).print(table)
