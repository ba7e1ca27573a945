"""Commands of suppressions and reports."""

import sys
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, TypeVar

import typer

from postroom.db.room import Room
from postroom.errors import PostroomError, SecretKeyMissing
from postroom.feedback import service
from postroom.feedback.attribution import Incoming, ReturnPaths
from postroom.feedback.errors import SuppressionNotFound
from postroom.feedback.files import read_messages
from postroom.feedback.imap import ImapOptions, ImapPoller
from postroom.feedback.ingest import Ingested
from postroom.feedback.ingest import ingest as take
from postroom.feedback.listener import ListenerOptions, bounce_server
from postroom.feedback.lists import Imported, ListReader, batches, write_lines
from postroom.feedback.model import FeedbackKind, NewSuppression, Scope, SuppressionReason
from postroom.feedback.report_rooms import ReportRoom
from postroom.post.message_id import room_keys
from postroom.runtime.setting import parse_address
from postroom.runtime.terminal import (
    LARGEST_ID,
    AsJson,
    Cursor,
    Limit,
    actor,
    existing,
    in_room,
    print_json,
    print_page,
    print_record,
    progressing,
    say,
    say_or_json,
    stop_signal,
)

suppressions = typer.Typer()
feedback = typer.Typer()

Item = TypeVar("Item")

Email = Annotated[str, typer.Argument(help="Email address; case does not matter.")]
Domain = Annotated[
    str | None, typer.Option(help="Domain of our return paths; without it only Message-IDs are verified.")
]

_LISTED = ("id", "email", "reason", "scope", "origin", "until", "bounce_count", "code", "created_at")
_CHANGES = ("at", "change", "reason", "scope", "until", "origin", "actor", "note")
_REPORTS = ("id", "reported_at", "kind", "classification", "email", "delivery_id", "enhanced", "origin", "verified")
_AT_ONCE = 50  # reports per transaction


@suppressions.command("list")
def list_(
    *,
    email: Annotated[str | None, typer.Option(help="Email address; case does not matter.")] = None,
    reason: Annotated[
        SuppressionReason | None,
        typer.Option(help="`hard_bounce`, `soft_bounce`, `complaint`, `unsubscribe` or `manual`."),
    ] = None,
    origin: Annotated[str | None, typer.Option(help="Origin: api, import, smtp, imap, ses…")] = None,
    limit: Limit = 50,
    cursor: Cursor = None,
    as_json: AsJson = False,
) -> None:
    """List suppressions, newest first."""
    chosen = service.SuppressionFilter(email=email, reason=reason, origin=origin)
    found = in_room(lambda room: service.list_suppressions(room.pool, chosen, cursor=cursor, limit=limit))
    print_page(*found, columns=_LISTED, as_json=as_json)


@suppressions.command()
def show(email: Email, *, as_json: AsJson = False) -> None:
    """Show why an address is suppressed; exit 1 if it is not suppressed."""
    found = in_room(lambda room: service.find_suppressions(room.pool, email))
    if not found:
        raise SuppressionNotFound
    if as_json:
        print_json({"items": found})
        return
    for each in found:
        print_record(each)


@suppressions.command()
def add(
    email: Email,
    *,
    reason: Annotated[
        SuppressionReason,
        typer.Option(help="`hard_bounce`, `soft_bounce`, `complaint`, `unsubscribe` or `manual` (default)."),
    ] = SuppressionReason.MANUAL,
    scope: Annotated[Scope | None, typer.Option(help="bulk or all; default: the scope of the reason.")] = None,
    detail: Annotated[str | None, typer.Option(help="Explanation for operators.")] = None,
    as_json: AsJson = False,
) -> None:
    """Suppress an address."""
    wanted = NewSuppression(email=email, reason=reason, scope=scope, origin="cli", detail=detail)
    made = in_room(lambda room: service.suppress(room.pool, wanted, actor=actor()))
    print_record(made, as_json=as_json)


@suppressions.command()
def remove(
    email: Email,
    *,
    reason: Annotated[SuppressionReason | None, typer.Option(help="Lift only suppressions for this reason.")] = None,
    note: Annotated[str, typer.Option(help="Reason for lifting; kept in the history.")] = "",
) -> None:
    """Lift the suppressions of an address; its history stays."""
    lifted = in_room(lambda room: service.lift(room.pool, email, actor=actor(), reason=reason, note=note))
    say(f"lifted {', '.join(f'{each.reason.value} ({each.scope.value})' for each in lifted)}")


@suppressions.command()
def history(email: Email, *, as_json: AsJson = False) -> None:
    """Show the history of an address, newest first."""
    found = in_room(lambda room: service.list_history(room.pool, email))
    print_page(found, None, columns=_CHANGES, as_json=as_json)


@suppressions.command("import")
def import_(
    file: Annotated[str, typer.Argument(help="CSV file with a column email; `-` reads standard input.")],
    *,
    reason: Annotated[
        SuppressionReason, typer.Option(help="Reason for lines without a reason column.")
    ] = SuppressionReason.MANUAL,
    origin: Annotated[str, typer.Option(help="Scope for lines without a scope column.")] = "import",
    as_json: AsJson = False,
) -> None:
    """Suppress every address of a file. Rejected lines are listed and set the exit code to 1."""
    reader = ListReader(reason=reason, origin=origin)
    if file == "-":
        result = in_room(lambda room: _import(room, reader, sys.stdin, size=0))
    else:
        path = existing(Path(file))
        with path.open(encoding="utf-8-sig", errors="replace", newline="") as lines:
            result = in_room(lambda room: _import(room, reader, lines, size=path.stat().st_size))
    if as_json:
        print_json(asdict(result))
    else:
        for number, problem in result.problems:
            sys.stderr.write(f"line {number}: {problem}\n")
        say(f"{result.written} suppressed, {result.refused} rejected")
    raise typer.Exit(1 if result.refused else 0)


@suppressions.command()
def export(
    file: Annotated[str, typer.Argument(help="Output file; `-` is standard output.")] = "-",
) -> None:
    """Write all suppressions as CSV, oldest first."""
    from contextlib import nullcontext

    async def written(room: Room) -> int:
        target = nullcontext(sys.stdout) if file == "-" else Path(file).open("w", encoding="utf-8")  # noqa: ASYNC230, SIM115 - a blocking write delays only this command
        count, is_first = 0, True
        with target as out:
            async for page in service.export(room.pool):
                out.write(write_lines(page, header=is_first))
                count, is_first = count + len(page), False
        return count

    count = in_room(written)
    if file != "-":
        say(f"{count} suppressions")


@feedback.command("list")
def reports(  # noqa: PLR0913 - one parameter per filter
    *,
    email: Annotated[str | None, typer.Option(help="Email address; case does not matter.")] = None,
    delivery: Annotated[int | None, typer.Option(min=0, max=LARGEST_ID, help="Delivery id.")] = None,
    kind: Annotated[FeedbackKind | None, typer.Option(help="`bounce`, `complaint` or `unsubscribe`.")] = None,
    verified: Annotated[
        bool | None,
        typer.Option("--verified/--unverified", help="Only verified reports; `--unverified`: only unverified ones."),
    ] = None,
    limit: Limit = 50,
    cursor: Cursor = None,
    as_json: AsJson = False,
) -> None:
    """List reported bounces, complaints and unsubscribes, newest first."""
    chosen = service.ReportFilter(email=email, delivery_id=delivery, kind=kind, is_verified=verified)
    found = in_room(lambda room: service.list_reports(room.pool, chosen, cursor=cursor, limit=limit))
    print_page(*found, columns=_REPORTS, as_json=as_json)


@feedback.command()
def ingest(
    source: Annotated[str, typer.Argument(help="Message, mbox, Maildir or folder; `-` reads standard input.")],
    *,
    domain: Domain = None,
    as_json: AsJson = False,
) -> None:
    """Read reports from files and record them. A repeated report changes nothing."""
    existing(Path(source), is_folder_fine=True)

    async def done(room: Room) -> Ingested:
        with progressing(read_messages(source), "reading") as messages:
            return await _ingest(room, messages, _paths(room, domain))

    _print_ingested(in_room(done), as_json=as_json)


@feedback.command()
def poll(
    url: Annotated[
        str, typer.Argument(help="imaps://user:password@host/INBOX?move=Done; `-` reads the URL from standard input.")
    ],
    *,
    domain: Domain = None,
    as_json: AsJson = False,
) -> None:
    """Read all unseen messages of a mailbox once."""
    import imaplib

    try:
        options = ImapOptions.parse(sys.stdin.readline().strip() if url == "-" else url)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error

    async def done(room: Room) -> Ingested:
        try:
            reported = ReportRoom(room.pool, _paths(room, domain).keys)
            return await ImapPoller(lambda: [reported], options, domain=domain).run_once()
        except (OSError, imaplib.IMAP4.error) as error:
            raise PostroomError(f"The mailbox at {options.host}:{options.port} could not be read: {error}") from error

    _print_ingested(in_room(done), as_json=as_json)


@feedback.command()
def listen(
    *,
    domain: Annotated[str, typer.Option(help="Domain of our return paths.")],
    address: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1:2526",
) -> None:
    """Accept reports over SMTP until interrupted."""
    in_room(lambda room: _listen(room, domain, address))


async def _listen(room: Room, domain: str, address: str) -> None:
    keys = room_keys(room.settings.secret_keys, room.settings.schema)
    if not keys:
        raise SecretKeyMissing
    host, port = parse_address(address)
    stop = stop_signal()
    async with bounce_server(
        lambda: [ReportRoom(room.pool, keys)], ListenerOptions(domain=domain, host=host, port=port)
    ) as server:
        say(f"listening on {host}:{server.port}")
        await stop.wait()


def _paths(room: Room, domain: str | None) -> ReturnPaths:
    return ReturnPaths(domain, room_keys(room.settings.secret_keys, room.settings.schema))


async def _ingest(room: Room, messages: Iterable[bytes], paths: ReturnPaths) -> Ingested:
    total = Ingested()
    for batch in batches(messages, _AT_ONCE):
        total += await take(room.pool, [Incoming(raw, "ingest") for raw in batch], paths=paths)
    return total


async def _import(room: Room, reader: object, lines: Iterable[str], *, size: int) -> Imported:
    assert isinstance(reader, ListReader)
    result = reader.result
    with progressing(lines, "reading", size=size) as followed:
        for batch in batches(followed):
            if found := reader.read(batch):
                result.written += await service.import_batch(room.pool, found, actor=actor())
    await service.record_import(room.pool, actor=actor(), imported=result.written, refused=result.refused)
    return result


def _print_ingested(done: Ingested, *, as_json: bool) -> None:
    kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(done.kinds.items())) or "nothing"
    text = f"read {done.messages}: {kinds}; {done.recorded} new, {done.unverified} not verified"
    say_or_json(text, done, as_json=as_json)
