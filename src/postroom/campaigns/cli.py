"""Commands of campaigns."""

import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import astuple
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from postroom.campaigns import preview as rehearsal
from postroom.campaigns import service
from postroom.campaigns.model import Campaign, CampaignHour, LineFormat, RejectedLine, Uploaded
from postroom.campaigns.shapes import CampaignBody, campaign_shape, plan_of, started_shape, summary_shape
from postroom.campaigns.upload import Upload
from postroom.db.room import Room
from postroom.runtime.spreadsheet import write_rows
from postroom.runtime.terminal import (
    LARGEST_ID,
    AsJson,
    Cursor,
    Limit,
    actor,
    existing,
    in_room,
    parse_moment,
    parse_variables,
    print_json,
    print_page,
    print_record,
    print_table,
    printable,
    progressing,
    say,
    say_or_json,
)

CHUNK = 256 * 1024  # bounds memory; smaller reads cost more round trips
SHOWN_REFUSED = 20  # a screen; the counts cover all lines

campaigns = typer.Typer()

Id = Annotated[int, typer.Argument(min=1, max=LARGEST_ID, help="Campaign id.")]
Recipient = Annotated[str | None, typer.Option("--email", help="Recipient to render for; default: the first.")]
Variables = Annotated[
    list[str] | None, typer.Option("--var", help="Variable as name=value; overrides the recipient's field.")
]

_LISTED = ("id", "status", "name", "subject", "created_at", "started_at", "finished_at")
_COUNTS = ("total", "queued", "sent", "bounced", "failed", "cancelled", "suppressed")
_HOURLY = ("sent", "opened", "clicked")


@campaigns.command()
def create(  # noqa: PLR0913 - one parameter per option
    *,
    name: Annotated[str, typer.Option(help="Name of the campaign.")],
    subject: Annotated[str, typer.Option(help="Subject template: Hello {{ first_name }}.")],
    html: Annotated[Path | None, typer.Option(exists=True, dir_okay=False, help="File with the HTML part.")] = None,
    text: Annotated[Path | None, typer.Option(exists=True, dir_okay=False, help="File with the text part.")] = None,
    sender: Annotated[
        str | None, typer.Option("--from", help="Sender as `Name <address>`; default: POSTROOM_FROM.")
    ] = None,
    reply_to: Annotated[str | None, typer.Option(help="Reply-To address.")] = None,
    tracking: Annotated[bool, typer.Option(help="Track opens and clicks.")] = True,
    start_at: Annotated[
        str | None, typer.Option(help="Earliest send time: 2030-01-31T09:00:00Z, or +2h from now.")
    ] = None,
    local_time: Annotated[str | None, typer.Option(help="Local send time of each recipient, such as 09:00.")] = None,
    time_zone: Annotated[str, typer.Option(help="Time zone of recipients without one.")] = "UTC",
) -> None:
    """Create a campaign and print its id."""
    body = CampaignBody(
        name=name,
        subject=subject,
        html=html.read_text("utf-8") if html else None,
        text=text.read_text("utf-8") if text else None,
        sender=sender,
        reply_to=reply_to,
        tracking=tracking,
        start_at=parse_moment(start_at, "--start-at") if start_at else None,
        local_time=local_time,
        time_zone=time_zone,
    )
    campaign = in_room(lambda room: service.create_campaign(room.pool, plan_of(body), actor=actor()))
    say(str(campaign.id))


@campaigns.command("list")
def list_(*, limit: Limit = 50, cursor: Cursor = None, as_json: AsJson = False) -> None:
    """List campaigns, newest first."""

    async def command(room: Room) -> tuple[list[Any], str | None]:
        found, more = await service.list_campaigns(room.pool, cursor=cursor, limit=limit)
        figures = await service.measure(room.pool, found)
        return [summary_shape(campaign, figures[campaign.id]) for campaign in found], more

    shapes, more = in_room(command)
    print_page(shapes, more, columns=_LISTED, as_json=as_json)


@campaigns.command()
def show(campaign_id: Id, *, as_json: AsJson = False) -> None:
    """Show a campaign and all its counts."""
    shape = in_room(lambda room: _shape_of(room, campaign_id))
    if as_json:
        print_json(shape)
        return
    print_record(shape, columns=(*_LISTED, "start_at", "local_time", "time_zone", "tracking"))
    _say_figures(shape)


@campaigns.command()
def upload(
    campaign_id: Id,
    file: Annotated[Path, typer.Argument(help="CSV with a header, or JSON lines (.jsonl); `-` reads standard input.")],
    *,
    json_lines: Annotated[bool, typer.Option("--jsonl", help="Read JSON lines regardless of the file name.")] = False,
    report: Annotated[Path | None, typer.Option(help="Write every rejected line to this CSV file.")] = None,
    as_json: AsJson = False,
) -> None:
    """Add recipients. Rejected lines are listed and set the exit code to 1; the others are stored."""
    existing(file)
    is_json = json_lines or file.suffix.lower() in (".jsonl", ".ndjson")
    line_format = LineFormat.JSON_LINES if is_json else LineFormat.CSV
    with ExitStack() as stack:
        notes = _Notes(stack.enter_context(report.open("w", encoding="utf-8", newline="")) if report else None)
        done = in_room(lambda room: _upload(room, campaign_id, file, line_format=line_format, notes=notes))
    text = (
        f"read {done.total}: {done.added} added, {done.duplicate} duplicate, {done.suppressed} suppressed, "
        f"{done.invalid} rejected; merge fields: {', '.join(done.fields) or 'none'}"
    )
    say_or_json(text, done, as_json=as_json)
    if done.invalid:
        raise typer.Exit(1)


@campaigns.command()
def preview(
    campaign_id: Id,
    *,
    email: Recipient = None,
    var: Variables = None,
    html: Annotated[bool, typer.Option("--html", help="Print the HTML part.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show the letter for one recipient."""
    variables = parse_variables(var or [], None)
    rendered = in_room(lambda room: rehearsal.preview(room.pool, campaign_id, email=email, variables=variables))
    if as_json:
        print_json(rendered)
    elif html:
        say(printable(rendered.html or ""))
    else:
        say(printable(f"Subject: {rendered.subject}\n\n{rendered.text or ''}"))


@campaigns.command()
def lint(campaign_id: Id, *, as_json: AsJson = False) -> None:
    """Check the letter and list warnings."""
    found = in_room(lambda room: rehearsal.lint_campaign(room.pool, campaign_id))
    if as_json:
        print_json({"items": found})
    elif not found:
        say("no warnings")
    for warning in () if as_json else found:
        say(f"{warning.part}: {printable(warning.message)}  [{warning.code}]")


@campaigns.command("test")
def send_test(
    campaign_id: Id,
    to: Annotated[list[str], typer.Argument(help="Your own addresses.")],
    *,
    email: Recipient = None,
    var: Variables = None,
) -> None:
    """Send a test mail of the letter and print the ids of its deliveries. Tests are marked and not counted."""
    variables = parse_variables(var or [], None)
    ids = in_room(
        lambda room: rehearsal.send_test(room.pool, campaign_id, to, actor=actor(), email=email, variables=variables)
    )
    for delivery_id in ids:
        say(str(delivery_id))


@campaigns.command()
def start(
    campaign_id: Id,
    *,
    accepts_failures: Annotated[
        bool, typer.Option("--accept-failures", help="Start although more than 1 % of the mails would fail.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Start a campaign. Its letter can no longer be changed."""
    started = started_shape(
        in_room(
            lambda room: service.start_campaign(
                room.pool,
                campaign_id,
                actor=actor(),
                has_secret_key=room.settings.secret_key is not None,
                unset=room.settings.unset_for_mail,
                accepts_failures=accepts_failures,
            )
        )
    )
    text = (
        f"{started.id} is {started.status}: {started.queued} of {started.total} queued, "
        f"{started.suppressed} suppressed, {started.duplicate} duplicates, {started.invalid} rejected;"
        f" finishes about {started.estimate.finishes_at:%Y-%m-%d %H:%M} UTC, at "
        f"{started.estimate.per_second:g}/s at most"
    )
    say_or_json(text, started, as_json=as_json)


@campaigns.command()
def reopen(campaign_id: Id) -> None:
    """Return a campaign to a draft, to change or reschedule it, while no mail of it was queued."""
    _run(campaign_id, service.reopen_campaign)


@campaigns.command()
def pause(campaign_id: Id) -> None:
    """Pause a campaign and hold its unsent mail."""
    _run(campaign_id, service.pause_campaign)


@campaigns.command()
def resume(campaign_id: Id) -> None:
    """Resume a paused campaign."""
    _run(campaign_id, service.resume_campaign)


@campaigns.command()
def cancel(campaign_id: Id) -> None:
    """Cancel a campaign and its unsent mail."""
    _run(campaign_id, service.cancel_campaign)


@campaigns.command()
def report(campaign_id: Id, *, as_json: AsJson = False) -> None:
    """Show the counts of a campaign, in total and by hour."""

    async def command(room: Room) -> tuple[Any, list[CampaignHour]]:
        return await _shape_of(room, campaign_id), await service.list_hours(room.pool, campaign_id)

    shape, hours = in_room(command)
    if as_json:
        print_json({"campaign": shape, "hours": hours})
        return
    say(f"{printable(shape.name)} ({shape.status})")
    _say_figures(shape)
    if hours:
        _plot(hours)


async def _shape_of(room: Room, campaign_id: int) -> Any:
    campaign = await service.get_campaign(room.pool, campaign_id)
    return campaign_shape(campaign, (await service.measure(room.pool, [campaign]))[campaign_id])


def _run(campaign_id: int, step: Callable[..., Awaitable[Campaign]]) -> None:
    campaign = in_room(lambda room: step(room.pool, campaign_id, actor=actor()))
    say(f"{campaign.id} is {campaign.status}")


def _say_figures(shape: Any) -> None:
    counts = "  ".join(f"{name} {getattr(shape.counts, name)}" for name in _COUNTS)
    say(counts)
    for name, found in (("opens", shape.opens), ("clicks", shape.clicks)):
        say(f"{name} {found.total}  unique {found.unique}  by machines {found.machine}")
    say(f"unsubscribes {shape.unsubscribes}  complaints {shape.complaints}")


def _plot(hours: Sequence[CampaignHour]) -> None:
    """One row per hour and one bar per metric; each metric has its own scale."""
    highest = {name: max(hour.amounts.get(name, 0) for hour in hours) for name in _HOURLY}

    def cell(hour: CampaignHour, name: str) -> str:
        amount = hour.amounts.get(name, 0)
        return f"{amount:>8} {'█' * round(20 * amount / highest[name])}" if highest[name] else ""

    print_table(("hour", *_HOURLY), ([hour.hour, *(cell(hour, name) for name in _HOURLY)] for hour in hours))


class _Notes:
    """Print the first rejected lines, and write all of them to the file if one is given."""

    def __init__(self, file: Any) -> None:
        self._file, self._shown = file, 0
        if file:
            file.write(write_rows([RejectedLine.__slots__]))

    def __call__(self, refused: Sequence[RejectedLine]) -> None:
        if self._file:
            self._file.write(write_rows(map(astuple, refused)))
        for each in refused[: max(SHOWN_REFUSED - self._shown, 0)]:
            shown = f" ({printable(each.value)})" if each.value else ""
            sys.stderr.write(f"line {each.line}: {each.field}: {printable(each.message)}{shown}\n")
        self._shown += len(refused)


async def _upload(room: Room, campaign_id: int, file: Path, *, line_format: LineFormat, notes: _Notes) -> Uploaded:
    upload = Upload(room.pool, campaign_id, on_refused=notes)
    with ExitStack() as stack:
        is_stdin = str(file) == "-"
        source = sys.stdin.buffer if is_stdin else stack.enter_context(file.open("rb"))
        size = 0 if is_stdin else os.fstat(source.fileno()).st_size
        chunks = stack.enter_context(progressing(iter(partial(source.read, CHUNK), b""), "uploading", size=size))
        return await upload.run(_asynchronous(chunks), line_format, actor=actor())


async def _asynchronous(chunks: Iterable[bytes]) -> AsyncIterator[bytes]:
    for chunk in chunks:
        yield chunk
