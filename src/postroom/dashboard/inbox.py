"""The capture inbox: messages that would have left, read like mail."""

import base64
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from email.utils import parseaddr
from functools import partial
from http import HTTPStatus
from typing import Any
from urllib.parse import quote, urlencode

from postroom.dashboard.listing import PageAction
from postroom.dashboard.live import stream_changes
from postroom.dashboard.page import INBOX, PageRequest, actions, form, page
from postroom.dashboard.preview import PICTURE_TYPES, WIDTHS, preview
from postroom.dashboard.stylesheet import has_dark_styles
from postroom.db.pool import Pool
from postroom.http.model import Principal
from postroom.inbox import service
from postroom.inbox.aside import aside, read_aside
from postroom.inbox.checks import check_message
from postroom.inbox.errors import MessageTooComplex
from postroom.inbox.html_check import CLIENTS
from postroom.inbox.link_requests import LinkAnswer
from postroom.inbox.model import CODES, InboxEntry, InboxMessage
from postroom.inbox.reader import AttachedFile, ReadMessage, decode_text
from postroom.inbox.release import can_release, release_message
from postroom.inbox.search import parse_search
from postroom.runtime.endpoint import Answer, ProtocolError

WRITE = "inbox:write"
SEND = "deliveries:write"


async def _on_shown(act: Callable[..., Awaitable[Any]], pool: Pool, *place: Any, by: Principal) -> Any:
    """Run an action on the messages that this person may read."""
    return await act(pool, *place, actor=by.actor, sees_codes=by.allows(CODES))


_CHOICES = (("All", ""), ("Unread", "is:unread"), ("With attachments", "has:attachment"))
_ONE = "/inbox/{message_id:int}"
_READ = PageAction(
    "Mark all as read", "/inbox/read", WRITE,
    partial(_on_shown, partial(service.mark_inbox, message_id=None, is_read=True)), "All messages are marked as read.",
)  # fmt: skip
_CLEAR = PageAction(
    "Delete all", "/inbox/clear", WRITE, partial(_on_shown, service.clear_inbox), "The inbox is empty: {0} deleted.",
    question="Delete every captured message? This cannot be undone.", button="Delete all messages",
)  # fmt: skip
_UNREAD = PageAction(
    "Mark as unread", f"{_ONE}/unread", WRITE, partial(_on_shown, partial(service.mark_inbox, is_read=False)),
    "The message is marked as unread.", to="/inbox",
)  # fmt: skip
_DELETE = PageAction(
    "Delete", f"{_ONE}/delete", WRITE, partial(_on_shown, service.delete_inbox_message), "The message is deleted.",
    to="/inbox",
)  # fmt: skip

VIEWS = ("html", "text", "source", "headers", "checks")

_TEXTS = ("application/json", "message/rfc822")
_FILE_POLICY = {"content-security-policy": "default-src 'none'; sandbox", "x-content-type-options": "nosniff"}


@dataclass(frozen=True, slots=True)
class InboxRow:
    """A message in the list, with its author as a mail client shows it."""

    entry: InboxEntry
    author: str

    @classmethod
    def of(cls, entry: InboxEntry) -> "InboxRow":
        name, address = parseaddr(entry.author)
        return cls(entry, name or address or entry.author or entry.mail_from)


async def list_page(request: PageRequest) -> Answer:
    values = await _listed(request)
    parts = _draw_parts(request, values)
    tabs = [
        (name, f"/inbox?{urlencode({'query': query})}" if query else "/inbox", query == (values["query"] or ""))
        for name, query in _CHOICES
    ]
    offered = (_READ, _CLEAR) if values["counts"].total else ()
    return request.page("inbox.html", parts=parts, tabs=tabs, actions=offered, **values)


async def live_page(request: PageRequest) -> Answer:
    """The stream of the list's first page; the search of the page is in the address."""
    return stream_changes(request, partial(_listed, request), partial(_draw_parts, request))


async def _listed(request: PageRequest) -> dict[str, Any]:
    cursor, query, to = request.asked("cursor"), request.asked("query"), request.asked("to")
    chosen = parse_search(query, recipient=to)
    found, next_cursor = await service.list_inbox(request.pool, chosen, sees_codes=request.may(CODES), cursor=cursor)
    asked = urlencode({name: value for name, value in (("query", query), ("to", to)) if value})
    return {
        "rows": [InboxRow.of(entry) for entry in found],
        "counts": await service.count_inbox(request.pool, sees_codes=request.may(CODES)),
        "kept": request.call.room.settings.inbox_limit,
        "query": query,
        "to": to,
        "asked": asked,
        "next_cursor": next_cursor,
        "is_first": cursor is None,
    }


def _draw_parts(request: PageRequest, values: dict[str, Any]) -> dict[str, str]:
    return {name: request.draw(f"parts/inbox_{name}.html", **values) for name in ("messages", "counts")}


async def show_page(request: PageRequest) -> Answer:
    """One message; opening it marks it as read."""
    message_id = request.id("message_id")
    message = await service.open_inbox_message(request.pool, message_id, sees_codes=request.may(CODES))
    return await _shown(request, message)


async def _find(request: PageRequest) -> InboxMessage:
    message_id = request.id("message_id")
    return await service.get_inbox_message(request.pool, message_id, sees_codes=request.may(CODES))


async def _shown(request: PageRequest, message: InboxMessage, answers: list[LinkAnswer] | None = None) -> Answer:
    try:
        return await _drawn(request, message, await read_aside(message.raw), answers)
    except MessageTooComplex as error:
        return await _drawn(replace(request, problem=error.message), message, None, answers)


async def _drawn(
    request: PageRequest, message: InboxMessage, known: ReadMessage | None, answers: list[LinkAnswer] | None
) -> Answer:
    """The page of a message; without `known`, which is its parsed form, only its source is shown."""
    read = known or ReadMessage((), None, None, ())
    view = _view(request, read, has_answers=answers is not None) if known is not None else "source"
    return request.page(
        "message.html",
        entry=message.entry,
        read=read,
        view=view,
        views=[name for name in VIEWS if name != "html" or read.html is not None] if known is not None else [view],
        width=request.choice("width", WIDTHS),
        widths=WIDTHS,
        is_dark=request.asked("dark") is not None,
        has_dark=read.html is not None and await aside(len(read.html), has_dark_styles, read.html),
        source=decode_text(message.raw) if view == "source" else "",
        report=await check_message(request.call.room.settings, message) if view == "checks" else None,
        clients=CLIENTS,
        answers=answers,
        can_open=_can_open,
        can_release=can_release(request.call.room.settings),
        place=await service.find_place(request.pool, message.entry.id, sees_codes=request.may(CODES)),
    )


def _view(request: PageRequest, read: ReadMessage, *, has_answers: bool) -> str:
    asked = "checks" if has_answers else request.asked("view")
    if asked in VIEWS and (asked != "html" or read.html is not None):
        return asked
    return "html" if read.html is not None else "text"


async def preview_page(request: PageRequest) -> Answer:
    """The HTML part, harmless, for the frame on the message's page."""
    read = await read_aside((await _find(request)).raw)
    if read.html is None:
        raise ProtocolError(HTTPStatus.NOT_FOUND, "There is no HTML to show.")
    return await preview(read.html, attached=read.attachments, dark=request.asked("dark") is not None)


async def raw_page(request: PageRequest) -> Answer:
    """The bytes as a file: a browser must not show them as a page of this site."""
    message = await _find(request)
    disposition = f'attachment; filename="message-{message.entry.id}.eml"'
    return Answer(message.raw, media_type="message/rfc822", headers={"content-disposition": disposition})


async def attachment_page(request: PageRequest) -> Answer:
    """One attached file: to download, or with `open` to look at if its type cannot run anything."""
    read = await read_aside((await _find(request)).raw)
    number = request.id("number")
    if not 1 <= number <= len(read.attachments):
        raise ProtocolError(HTTPStatus.NOT_FOUND, "There is no such attachment.")
    file = read.attachments[number - 1]
    content = base64.b64decode(file.content)
    if request.asked("open") and _can_open(file):
        return Answer(content, media_type=_shown_type(file), headers=_FILE_POLICY)
    name = quote(file.filename or f"attachment-{number}", safe="")
    headers = {**_FILE_POLICY, "content-disposition": f"attachment; filename*=UTF-8''{name}"}
    return Answer(content, media_type="application/octet-stream", headers=headers)


def _can_open(file: AttachedFile) -> bool:
    """True for pictures and text, which a browser shows without running anything."""
    return file.content_type in (*PICTURE_TYPES, *_TEXTS) or file.content_type.startswith("text/")


def _shown_type(file: AttachedFile) -> str:
    """Pictures as they are; every kind of text, HTML included, as plain text."""
    return file.content_type if file.content_type in PICTURE_TYPES else "text/plain; charset=utf-8"


async def release_page(request: PageRequest) -> Answer:
    request.need(SEND)
    to = request.form.get("to", "")
    released = await release_message(
        request.call.room, request.id("message_id"), to=to, actor=request.actor, sees_codes=request.may(CODES)
    )
    return request.done(f"/deliveries/{released}", "The message is released: this is its new delivery.")


async def links_page(request: PageRequest) -> Answer:
    """Request the links of a message and show the answers."""
    message = await _find(request)
    answers = await service.request_message_links(
        request.pool,
        message.entry.id,
        actor=request.actor,
        sees_codes=request.may(CODES),
        allow_loopback=bool(request.call.room.settings.webhook_allow_loopback),
    )
    return await _shown(request, message, answers)


PAGES = (
    page("/inbox", list_page, scope=INBOX),
    page("/inbox/live", live_page, scope=INBOX, keeps_session=False),
    page(_ONE, show_page, scope=INBOX),
    page(f"{_ONE}/preview", preview_page, scope=INBOX),
    page(f"{_ONE}/raw", raw_page, scope=INBOX),
    page(f"{_ONE}/attachments/{{number:int}}", attachment_page, scope=INBOX),
    form(f"{_ONE}/release", release_page, scope=WRITE),
    form(f"{_ONE}/links", links_page, scope=WRITE),
    *actions(_READ, _CLEAR, _UNREAD, _DELETE),
)
