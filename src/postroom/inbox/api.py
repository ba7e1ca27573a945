"""The capture inbox over HTTP."""

from typing import Annotated

import msgspec

from postroom.inbox import service
from postroom.inbox.model import InboxEntry
from postroom.inbox.reader import AttachedFile, first_values, read_message
from postroom.runtime.endpoint import Answer, Call, Endpoint
from postroom.runtime.page import Page, PageQuery, page_of
from postroom.runtime.record import Text, answer, response

READ = "inbox:read"
WRITE = "inbox:write"


class InboxQuery(PageQuery, frozen=True, kw_only=True):
    """Query parameters of the inbox list."""

    to: Annotated[Text, msgspec.Meta(description="Envelope recipient, in any case.")] | None = None


_ENVELOPE = {"mail_from": "from", "recipients": "to"}
InboxItem = response(InboxEntry, "InboxItem", rename=_ENVELOPE)
InboxMessageShape = response(
    InboxEntry,
    "InboxMessageShape",
    rename=_ENVELOPE,
    extra={
        "headers": dict[str, str],  # the first value of each name
        "text": str | None,
        "html": str | None,
        "attachments": list[AttachedFile],
    },
)


class Cleared(msgspec.Struct, frozen=True):
    """The number of deleted messages."""

    cleared: int


async def list_inbox(call: Call) -> Answer:
    query: InboxQuery = call.query
    found, more = await service.list_inbox(call.room.pool, recipient=query.to, cursor=query.cursor, limit=query.limit)
    return Answer(Page([answer(InboxItem, entry) for entry in found], more))


async def get_inbox_message(call: Call) -> Answer:
    message = await service.get_inbox_message(call.room.pool, call.path["message_id"])
    read = read_message(message.raw)
    shape = answer(
        InboxMessageShape,
        message.entry,
        headers=first_values(read.headers),
        text=read.text,
        html=read.html,
        attachments=list(read.attachments),
    )
    return Answer(shape)


async def get_inbox_raw(call: Call) -> Answer:
    message = await service.get_inbox_message(call.room.pool, call.path["message_id"])
    # A browser must not render the bytes of a mail as a page of this site.
    guard = {"x-content-type-options": "nosniff", "content-disposition": "attachment"}
    return Answer(message.raw, media_type="message/rfc822", headers=guard)


async def clear_inbox(call: Call) -> Answer:
    return Answer(Cleared(await service.clear_inbox(call.room.pool, actor=call.actor)))


ENDPOINTS = [
    Endpoint(
        method="GET",
        path="/v1/inbox",
        handler=list_inbox,
        summary="List captured messages, newest first.",
        scope=READ,
        tag="inbox",
        query=InboxQuery,
        answers={200: page_of(InboxItem)},
    ),
    Endpoint(
        method="DELETE",
        path="/v1/inbox",
        handler=clear_inbox,
        summary="Delete every captured message.",
        scope=WRITE,
        tag="inbox",
        answers={200: Cleared},
    ),
    Endpoint(
        method="GET",
        path="/v1/inbox/{message_id:int}",
        handler=get_inbox_message,
        summary="Read a captured message.",
        scope=READ,
        tag="inbox",
        answers={200: InboxMessageShape},
    ),
    Endpoint(
        method="GET",
        path="/v1/inbox/{message_id:int}/raw",
        handler=get_inbox_raw,
        summary="Read the raw bytes of a captured message.",
        scope=READ,
        tag="inbox",
        answers={200: None},
        media_type="message/rfc822",
    ),
]
