"""The capture inbox: messages that would have left, read like mail."""

import asyncio
from http import HTTPStatus

from postroom.dashboard.page import PageRequest
from postroom.dashboard.preview import picture, preview
from postroom.inbox import service
from postroom.inbox.reader import ReadMessage, read_message
from postroom.inbox.search import InboxFilter
from postroom.runtime.endpoint import Answer, ProtocolError


async def list_page(request: PageRequest) -> Answer:
    cursor, recipient = request.asked("cursor"), request.asked("to")
    messages, next_cursor = await service.list_inbox(request.pool, InboxFilter(recipient=recipient), cursor=cursor)
    return request.page("inbox.html", messages=messages, to=recipient, next_cursor=next_cursor, is_first=cursor is None)


async def show_page(request: PageRequest) -> Answer:
    message = await service.get_inbox_message(request.pool, request.id("message_id"))
    return request.page("message.html", entry=message.entry, read=await _read(message.raw), size=len(message.raw))


async def preview_page(request: PageRequest) -> Answer:
    """The HTML part, harmless, for the frame on the message's page."""
    read = await _read((await service.get_inbox_message(request.pool, request.id("message_id"))).raw)
    if read.html is None:
        raise ProtocolError(HTTPStatus.NOT_FOUND, "There is no HTML to show.")
    inside = {a.content_id: picture(a.content_type, a.content) for a in read.attachments if a.content_id}
    return preview(read.html, pictures={name: found for name, found in inside.items() if found})


async def raw_page(request: PageRequest) -> Answer:
    """The bytes, as a file: a browser must not take a stranger's bytes for a page of ours."""
    message = await service.get_inbox_message(request.pool, request.id("message_id"))
    disposition = f'attachment; filename="message-{message.entry.id}.eml"'
    return Answer(message.raw, media_type="message/rfc822", headers={"content-disposition": disposition})


async def _read(raw: bytes) -> ReadMessage:
    """Taken apart in a thread: a large message must not hold up those who send."""
    return await asyncio.to_thread(read_message, raw)
