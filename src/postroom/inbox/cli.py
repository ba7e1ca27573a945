"""The capture inbox at the command line, whose user has the database and so sees every message."""

import sys
from datetime import timedelta
from typing import Annotated

import typer

from postroom.db.room import Room
from postroom.inbox import service
from postroom.inbox.api import InboxItem, message_shape
from postroom.inbox.checks import InboxReport, check_message
from postroom.inbox.model import InboxMessage
from postroom.inbox.reader import read_message
from postroom.inbox.release import release_message
from postroom.inbox.search import parse_search
from postroom.runtime.record import answer
from postroom.runtime.terminal import (
    LARGEST_ID,
    AsJson,
    Cursor,
    Limit,
    actor,
    in_room,
    print_json,
    print_page,
    printable,
    say,
)

inbox = typer.Typer()

_LISTED = ("id", "delivery_id", "received_at", "mail_from", "recipients", "subject", "is_read")
_SECONDS = 10  # a worker that sleeps takes less to wake and send

Id = Annotated[int, typer.Argument(min=0, max=LARGEST_ID, help="Id of a captured message.")]


To = Annotated[str | None, typer.Option(help="Only messages to this address.")]
Search = Annotated[
    str | None,
    typer.Option(help="Words that all occur; from:, to:, subject:, tag:, has:attachment and is:unread choose a field."),
]
After = Annotated[int | None, typer.Option(min=0, max=LARGEST_ID, help="Only messages with a larger id.")]


@inbox.command("list")
def list_(
    *,
    to: To = None,
    query: Search = None,
    limit: Limit = 50,
    cursor: Cursor = None,
    as_json: AsJson = False,
) -> None:
    """List captured messages, newest first."""
    chosen = parse_search(query, recipient=to)
    found, more = in_room(
        lambda room: service.list_inbox(room.pool, chosen, sees_codes=True, cursor=cursor, limit=limit)
    )
    print_page(
        [answer(InboxItem, entry) for entry in found] if as_json else found, more, columns=_LISTED, as_json=as_json
    )


@inbox.command()
def show(message_id: Id, *, as_json: AsJson = False) -> None:
    """Show one captured message: its headers and its text."""
    _show(_find(message_id), as_json=as_json)


@inbox.command()
def latest(*, to: To = None, query: Search = None, after: After = None, as_json: AsJson = False) -> None:
    """Show the newest captured message of a search."""
    chosen = parse_search(query, recipient=to, after_id=after)
    _show(in_room(lambda room: service.get_latest(room.pool, chosen, sees_codes=True)), as_json=as_json)


@inbox.command()
def wait(
    *,
    to: To = None,
    query: Search = None,
    after: After = None,
    timeout: Annotated[float, typer.Option(min=0, max=60, help="Seconds to wait.")] = _SECONDS,
    as_json: AsJson = False,
) -> None:
    """Wait for a captured message of a search, and show the newest."""
    chosen = parse_search(query, recipient=to, after_id=after)
    seconds = timedelta(seconds=timeout)
    message = in_room(lambda room: service.wait_for_message(room.pool, chosen, timeout=seconds, sees_codes=True))
    _show(message, as_json=as_json)


@inbox.command()
def delete(message_id: Id) -> None:
    """Delete one captured message."""
    in_room(lambda room: service.delete_inbox_message(room.pool, message_id, actor=actor(), sees_codes=True))
    say("deleted")


@inbox.command()
def check(message_id: Id, *, as_json: AsJson = False) -> None:
    """Check HTML, links, authentication and headers of one captured message."""

    async def checked(room: Room) -> InboxReport:
        message = await service.get_inbox_message(room.pool, message_id, sees_codes=True)
        return await check_message(room.settings, message)

    report = in_room(checked)
    if as_json:
        print_json(report)
        return
    for warning in report.warnings:
        say(printable(f"{warning.part} {warning.message}"))
    for link in report.links:
        for problem in link.problems:
            say(printable(f"{link.url} {problem}"))
    for finding in report.html:
        lacking = ", ".join(client for client, support in finding.support.items() if support != "yes")
        say(f"{finding.feature} is not fully supported by {lacking}")
    for signature in report.authentication.dkim:
        say(printable(f"DKIM {signature.domain}: {signature.result} {signature.reason}".rstrip()))
    say(f"DMARC: {report.authentication.dmarc}")


@inbox.command()
def release(message_id: Id, *, to: Annotated[str, typer.Option(help="Address that gets the message.")]) -> None:
    """Send one captured message to an address as a new delivery."""
    delivery_id = in_room(lambda room: release_message(room, message_id, to=to, actor=actor(), sees_codes=True))
    say(f"released as delivery {delivery_id}")


def _show(message: InboxMessage, *, as_json: bool) -> None:
    content = read_message(message.raw)
    if as_json:
        print_json(message_shape(message, content))
        return
    for name, value in content.headers:
        say(printable(f"{name}: {value}"))
    say("\n" + printable(content.text or content.html or ""))
    for attachment in content.attachments:
        say(printable(f"[{attachment.filename}, {attachment.content_type}, {attachment.size} bytes]"))


@inbox.command()
def raw(message_id: Id) -> None:
    """Print the raw bytes of one captured message."""
    sys.stdout.buffer.write(_find(message_id).raw)


@inbox.command()
def clear() -> None:
    """Delete every captured message."""
    cleared = in_room(lambda room: service.clear_inbox(room.pool, actor=actor(), sees_codes=True))
    say(f"{cleared} cleared")


def _find(message_id: int) -> InboxMessage:
    return in_room(lambda room: service.get_inbox_message(room.pool, message_id, sees_codes=True))
