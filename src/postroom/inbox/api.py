"""The capture inbox over HTTP."""

from datetime import timedelta
from functools import partial
from typing import Annotated, Any

import msgspec

from postroom.inbox import service
from postroom.inbox.aside import read_aside
from postroom.inbox.checks import InboxReport, check_message
from postroom.inbox.link_requests import LinkAnswer
from postroom.inbox.model import CODES, InboxEntry, InboxMessage
from postroom.inbox.reader import AttachedFile, ReadMessage, first_values
from postroom.inbox.release import release_message
from postroom.inbox.search import InboxFilter, parse_search
from postroom.runtime.endpoint import Answer, Call, Endpoint
from postroom.runtime.page import PageQuery, page_of
from postroom.runtime.record import Shape, Text, answer, response
from postroom.runtime.service_endpoint import serve

READ = "inbox:read"
WRITE = "inbox:write"


To = Annotated[Text, msgspec.Meta(description="Envelope recipient, case-insensitive.")]
Search = Annotated[
    Text,
    msgspec.Meta(
        description='Words that all occur, such as `from:shop subject:"your order" tag:order=42 has:attachment`.'
    ),
]


class InboxQuery(PageQuery, frozen=True, kw_only=True):
    """Query parameters of the inbox list."""

    to: To | None = None
    query: Search | None = None


class LatestQuery(Shape, frozen=True, kw_only=True):
    """Query parameters that choose one message."""

    to: To | None = None
    query: Search | None = None
    after: Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1, description="Only messages with a larger id.")] | None = None


class WaitQuery(LatestQuery, frozen=True, kw_only=True):
    """Query parameters of a wait."""

    timeout: Annotated[int, msgspec.Meta(ge=0, le=60, description="Seconds to wait.")] = 10


class InboxChange(Shape, frozen=True, kw_only=True):
    """A change of a captured message."""

    read: bool


_HIDDEN = ("is_sign_in",)  # only readers with a further scope get such messages
_ENVELOPE = {"mail_from": "from", "recipients": "to", "is_read": "read"}
InboxItem = response(InboxEntry, "InboxItem", hide=_HIDDEN, rename=_ENVELOPE)
InboxMessageShape = response(
    InboxEntry,
    "InboxMessageShape",
    hide=_HIDDEN,
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


class LinkAnswers(msgspec.Struct, frozen=True):
    """The answers of the links of a message."""

    items: list[LinkAnswer]


class ReleaseRequest(Shape, frozen=True, kw_only=True):
    """The address that a captured message is released to."""

    to: Text


class Released(msgspec.Struct, frozen=True):
    """The new delivery of a released message."""

    delivery_id: int


def _sees_codes(call: Call) -> bool:
    return call.may(CODES)


def _allows_loopback(call: Call) -> bool:
    return bool(call.room.settings.webhook_allow_loopback)


def _chosen(call: Call) -> InboxFilter:
    return parse_search(call.query.query, recipient=call.query.to, after_id=getattr(call.query, "after", None))


async def _find(call: Call) -> InboxMessage:
    return await service.get_inbox_message(call.room.pool, call.path["message_id"], sees_codes=_sees_codes(call))


async def _message_shape(message: InboxMessage) -> Any:
    return message_shape(message, await read_aside(message.raw))


def message_shape(message: InboxMessage, read: ReadMessage) -> Any:
    return answer(
        InboxMessageShape,
        message.entry,
        headers=first_values(read.headers),
        text=read.text,
        html=read.html,
        attachments=list(read.attachments),
    )


async def get_inbox_raw(call: Call) -> Answer:
    message = await _find(call)
    # A browser must not render the bytes of a mail as a page of this site.
    guard = {"x-content-type-options": "nosniff", "content-disposition": "attachment"}
    return Answer(message.raw, media_type="message/rfc822", headers=guard)


async def change_inbox_message(call: Call) -> Answer:
    change: InboxChange = call.body
    await service.mark_inbox(
        call.room.pool,
        call.path["message_id"],
        is_read=change.read,
        actor=call.actor,
        sees_codes=_sees_codes(call),
    )
    return Answer(await _message_shape(await _find(call)))


async def check_inbox_message(call: Call) -> Answer:
    return Answer(await check_message(call.room.settings, await _find(call)))


async def release_inbox_message(call: Call) -> Answer:
    call.need("deliveries:write")  # the message leaves
    wish: ReleaseRequest = call.body
    released = await release_message(
        call.room, call.path["message_id"], to=wish.to, actor=call.actor, sees_codes=_sees_codes(call)
    )
    return Answer(Released(released), 202)


_endpoint = partial(Endpoint, tag="inbox")
_serve = partial(serve, tag="inbox", given={"sees_codes": _sees_codes})
_search = partial(serve, scope=READ, tag="inbox")
_CHOSEN = {"sees_codes": _sees_codes, "chosen": _chosen}
_PATIENT = {**_CHOSEN, "timeout": lambda call: timedelta(seconds=call.query.timeout)}

ENDPOINTS = [
    _search(
        "GET", "/v1/inbox", service.list_inbox, "List captured messages, newest first.", query=InboxQuery,
        answers={200: page_of(InboxItem)}, given=_CHOSEN,
    ),
    _serve(
        "DELETE", "/v1/inbox", service.clear_inbox, "Delete every captured message.", scope=WRITE,
        answers={200: Cleared}, shape=Cleared,
    ),
    _search(
        "GET", "/v1/inbox/latest", service.get_latest, "Read the newest captured message of a search.",
        query=LatestQuery, answers={200: InboxMessageShape}, problems=(404,), given=_CHOSEN, shape=_message_shape,
    ),
    _search(
        "GET", "/v1/inbox/wait", service.wait_for_message,
        "Wait for a captured message of a search, and read the newest.", query=WaitQuery,
        answers={200: InboxMessageShape}, problems=(404,), given=_PATIENT, shape=_message_shape,
    ),
    _serve(
        "GET", "/v1/inbox/{message_id:int}", service.get_inbox_message, "Read a captured message.", scope=READ,
        answers={200: InboxMessageShape}, shape=_message_shape,
    ),
    _endpoint(
        "PATCH", "/v1/inbox/{message_id:int}", change_inbox_message, "Mark a captured message as read or unread.",
        scope=WRITE, body=InboxChange, answers={200: InboxMessageShape},
    ),
    _serve(
        "DELETE", "/v1/inbox/{message_id:int}", service.delete_inbox_message, "Delete a captured message.", scope=WRITE,
        answers={204: None},
    ),
    _endpoint(
        "GET", "/v1/inbox/{message_id:int}/checks", check_inbox_message,
        "Check HTML, links, authentication and headers of a captured message.", scope=READ, answers={200: InboxReport},
    ),
    _serve(
        "POST", "/v1/inbox/{message_id:int}/links", service.request_message_links,
        "Send a HEAD request to each link of a captured message.", scope=WRITE, answers={200: LinkAnswers},
        shape=LinkAnswers, given={"sees_codes": _sees_codes, "allow_loopback": _allows_loopback},
    ),
    _endpoint(
        "POST", "/v1/inbox/{message_id:int}/release", release_inbox_message,
        "Send a captured message to an address as a new delivery; the key also needs `deliveries:write`.", scope=WRITE,
        body=ReleaseRequest, answers={202: Released}, problems=(409,),
    ),
    _endpoint(
        "GET", "/v1/inbox/{message_id:int}/raw", get_inbox_raw, "Read the raw bytes of a captured message.", scope=READ,
        answers={200: None}, media_type="message/rfc822",
    ),
]  # fmt: skip
