"""The archive at the command line."""

from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from postroom.archive.model import ArchiveOptions, Month, Segment
from postroom.archive.settings import parse_archive_url
from postroom.errors import SettingInvalid
from postroom.runtime.terminal import AsJson, actor, in_room, print_json, print_table, say, say_or_json

if TYPE_CHECKING:
    from postroom.archive.model import RunReport
    from postroom.archive.query import QueryAnswer
    from postroom.db.room import Room

archive = typer.Typer()


def _checked_store(url: str | None) -> str | None:
    """Check the URL here: a run with nothing to archive would not open the store."""
    try:
        return url and parse_archive_url(url)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error


Store = Annotated[
    str | None,
    typer.Option("--store", callback=_checked_store, help="Store for new files: a folder, or s3://bucket/prefix."),
]
Copy = Annotated[
    str | None,
    typer.Option(
        "--store", callback=_checked_store, help="Read a copy of the archive: a folder, or s3://bucket/prefix."
    ),
]
Endpoint = Annotated[
    str | None,
    typer.Option(help="URL of an S3-compatible store other than Amazon's."),
]
Table = Annotated[
    str | None, typer.Option(help="Restrict to one table: attempts, delivery_steps, open_events, click_events.")
]

TableArgument = Annotated[str, typer.Argument(help="attempts, delivery_steps, open_events or click_events.")]
MonthArgument = Annotated[str, typer.Argument(help="Month, such as 2026-01.")]

_LISTED = ("id", "table_name", "month", "part", "state", "rows", "bytes", "archived_at", "restored_name", "path")


def options_from(
    room: "Room", *, store: str | None = None, copy: str | None = None, endpoint: str | None = None
) -> ArchiveOptions:
    """The options of the settings, overridden by the command line."""
    chosen = ArchiveOptions.of(room.settings)
    return replace(chosen, url=store or chosen.url, copy_url=copy, endpoint=endpoint or chosen.endpoint)


def place_for_new(options: ArchiveOptions) -> ArchiveOptions:
    """Return the options if they name a store for new files; raise `SettingInvalid` if not."""
    if options.url is None:
        raise SettingInvalid("POSTROOM_ARCHIVE_URL", "is not set; set it, or give --store")
    return options


@archive.command()
def run(*, store: Store = None, endpoint: Endpoint = None, as_json: AsJson = False) -> None:
    """Archive old months and delete expired ones. Exit 1 if a piece failed."""
    from postroom.archive.service import run_archive

    def show(segment: Segment) -> None:
        if not as_json:
            say(f"archived {segment.label}: {segment.rows} rows, {segment.bytes} bytes, {segment.path}")

    report = in_room(
        lambda room: run_archive(
            room,
            place_for_new(options_from(room, store=store, endpoint=endpoint)),
            actor=actor(),
            progress=show,
        )
    )
    _tell_run(report, as_json=as_json)
    if report.failed:
        raise typer.Exit(1)


@archive.command("list")
def list_(*, table: Table = None, as_json: AsJson = False) -> None:
    """List the pieces of the archive, finished and in progress."""
    from postroom.archive.service import check_table, list_segments

    check_table(ArchiveOptions(), table)
    segments = in_room(lambda room: list_segments(room.pool, table=table, limit=100_000))
    if as_json:
        print_json({"items": [shown(segment) for segment in segments], "next_cursor": None})
    else:
        print_table(_LISTED, ([getattr(segment, column) for column in _LISTED] for segment in segments))


@archive.command()
def verify(*, table: Table = None, copy: Copy = None, endpoint: Endpoint = None, as_json: AsJson = False) -> None:
    """Read every file back and compare it with its record. Exit 1 if a file is damaged, missing or has no record."""
    findings = in_room(lambda room: _verify(room, options_from(room, copy=copy, endpoint=endpoint), table))
    if as_json:
        print_json([{"id": f.segment and f.segment.id, "path": f.path, "problem": f.problem} for f in findings])
    else:
        for finding in findings:
            say(f"{finding.path}: {finding.problem or f'valid, {finding.segment.rows} rows'}")
    if not all(finding.is_good for finding in findings):
        raise typer.Exit(1)


@archive.command()
def restore(
    table: TableArgument,
    month: MonthArgument,
    *,
    attach: Annotated[bool, typer.Option("--attach", help="Attach the month to its table.")] = False,
    copy: Copy = None,
    endpoint: Endpoint = None,
    as_json: AsJson = False,
) -> None:
    """Restore a month into a table of its own, or into its original table."""
    from postroom.archive.restore import restore_month

    wanted = _month(table, month)
    back = in_room(
        lambda room: restore_month(
            room, options_from(room, copy=copy, endpoint=endpoint), wanted, attach=attach, actor=actor()
        )
    )
    text = f"restored {back.rows} rows into {back.restored_name}{', part of ' + table if attach else ''}"
    say_or_json(text, back, as_json=as_json)


@archive.command()
def release(table: TableArgument, month: MonthArgument) -> None:
    """Drop a restored month; the archive keeps it."""
    from postroom.archive.restore import release_month

    wanted = _month(table, month)
    pieces = in_room(lambda room: release_month(room, wanted, actor=actor()))
    say(f"released {wanted.restored_name}, {pieces} pieces of the archive")


@archive.command()
def adopt(
    *, yes: Annotated[bool, typer.Option("--yes", help="Confirm that the original room no longer exists.")] = False
) -> None:
    """Take over the archive of the room that this one is a copy of, when the original no longer exists."""
    from postroom.archive.service import adopt_archive

    if not yes:
        raise typer.BadParameter("add --yes to confirm: this room will own the files, and rewrite and delete them")
    say(f"adopted {in_room(lambda room: adopt_archive(room, actor=actor()))} pieces")


@archive.command()
def query(
    sql: Annotated[str, typer.Argument(help="One SELECT; each archived table is a view of the same name.")],
    *,
    limit: Annotated[int, typer.Option(min=1, help="Maximum number of rows to print.")] = 1000,
    copy: Copy = None,
    endpoint: Endpoint = None,
    as_json: AsJson = False,
) -> None:
    """Query the files of the archive with SQL; the database is not queried."""
    from postroom.archive.query import query_archive

    answer = in_room(
        lambda room: query_archive(room.pool, options_from(room, copy=copy, endpoint=endpoint), sql, limit=limit)
    )
    _tell_answer(answer, as_json=as_json)


def shown(segment: Segment) -> dict[str, Any]:
    """The JSON form of a piece."""
    shown = asdict(segment)
    del shown["is_attached"], shown["source_name"], shown["columns"]
    return {**shown, "month": segment.month}


async def _verify(room: "Room", options: ArchiveOptions, table: str | None) -> list[Any]:
    from postroom.archive.service import verify_archive

    return [finding async for finding in verify_archive(room.pool, options, table=table)]


def _month(table: str, month: str) -> Month:
    try:
        return Month.parse(table, month)
    except ValueError as error:
        raise typer.BadParameter("must be a month such as 2026-01") from error


def _tell_run(report: "RunReport", *, as_json: bool) -> None:
    if as_json:
        print_json(
            {
                "partitions_made": report.partitions_made,
                "rows": report.rows,
                "archived": [shown(segment) for segment in report.archived],
                "expired": [shown(segment) for segment in report.expired],
                "postponed": report.postponed,
                "failed": report.failed,
            }
        )
        return
    for segment in report.expired:
        say(f"deleted {segment.label}")
    for label in report.postponed:
        say(f"postponed {label}: another transaction holds a lock on the table; run the command again")
    for label, reason in report.failed.items():
        say(f"failed {label}: {reason}")
    if not (report.archived or report.expired or report.postponed or report.failed):
        say("nothing is old enough")


def _tell_answer(answer: "QueryAnswer", *, as_json: bool) -> None:
    if as_json:
        print_json([dict(zip(answer.columns, row, strict=True)) for row in answer.rows])
    else:
        print_table(answer.columns, answer.rows, as_named=True)
