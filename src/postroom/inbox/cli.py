"""The capture inbox at the command line."""

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

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

if TYPE_CHECKING:
    from postroom.inbox.model import InboxEntry, InboxMessage

inbox = typer.Typer()

_LISTED = ("id", "delivery_id", "received_at", "mail_from", "recipients", "subject")

Id = Annotated[int, typer.Argument(min=0, max=LARGEST_ID, help="Id of a captured message.")]


@inbox.command("list")
def list_(
    *,
    to: Annotated[str | None, typer.Option(help="Only messages to this address.")] = None,
    limit: Limit = 50,
    cursor: Cursor = None,
    as_json: AsJson = False,
) -> None:
    """List captured messages, newest first."""
    from postroom.inbox import service

    found, more = in_room(lambda room: service.list_inbox(room.pool, recipient=to, cursor=cursor, limit=limit))
    if as_json:
        print_json({"items": [_as_json(entry) for entry in found], "next_cursor": more})
    else:
        print_page(found, more, columns=_LISTED, as_json=False)


@inbox.command()
def show(message_id: Id, *, as_json: AsJson = False) -> None:
    """Show one captured message: its headers and its text."""
    from postroom.inbox.reader import first_values, read_message

    message = _find(message_id)
    content = read_message(message.raw)
    if as_json:
        parts = {"text": content.text, "html": content.html, "attachments": content.attachments}
        print_json({**_as_json(message.entry), "headers": first_values(content.headers), **parts})
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
    from postroom.inbox import service

    cleared = in_room(lambda room: service.clear_inbox(room.pool, actor=actor()))
    say(f"{cleared} cleared")


def _as_json(entry: "InboxEntry") -> dict[str, Any]:
    """The JSON form, with the names of the API."""
    return {
        "id": entry.id,
        "delivery_id": entry.delivery_id,
        "from": entry.mail_from,
        "to": entry.recipients,
        "subject": entry.subject,
        "received_at": entry.received_at,
    }


def _find(message_id: int) -> "InboxMessage":
    from postroom.inbox import service

    return in_room(lambda room: service.get_inbox_message(room.pool, message_id))
