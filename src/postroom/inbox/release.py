"""Release of a captured message: its content leaves as a new delivery to an address that a person names."""

from postroom.db.room import Room
from postroom.delivery.check import check_request
from postroom.delivery.model import DeliveryId, DeliveryRequest, Lane
from postroom.delivery.service import accept
from postroom.errors import BadInput
from postroom.events.audit import audited
from postroom.inbox import store
from postroom.inbox.aside import read_aside
from postroom.inbox.errors import ReleaseOff
from postroom.inbox.model import InboxEntry
from postroom.inbox.reader import ReadMessage
from postroom.inbox.service import get_inbox_message
from postroom.post.address import Address, parse_address
from postroom.post.mime import Attachment
from postroom.settings import Settings

SOURCE = "inbox"


def can_release(settings: Settings) -> bool:
    """True if a released message can leave: there is a release relay, or mail is not captured."""
    return settings.transport != "capture" or settings.inbox_release_relay is not None


async def release_message(room: Room, message_id: int, *, to: str, actor: str, sees_codes: bool) -> DeliveryId:
    """Send a captured message to one address as a new delivery; returns its id.

    The message is composed again: it gets a new Message-ID, date and signature. Raises `ReleaseOff` and `BadInput`.
    """
    if not can_release(room.settings):
        raise ReleaseOff
    message = await get_inbox_message(room.pool, message_id, sees_codes=sees_codes)
    request = check_request(_request(await read_aside(message.raw), _address(to), message.entry))
    async with audited(room.pool, actor, "inbox.release", f"inbox:{message_id}") as (connection, note):
        accepted = await accept(connection, request)
        await store.insert_inbox_release(connection, delivery_id=accepted.id, message_id=message_id)
        note.after = {"delivery_id": accepted.id, "to": to}
    return accepted.id


def _request(read: ReadMessage, to: Address, entry: InboxEntry) -> DeliveryRequest:
    return DeliveryRequest(
        to=(to,),
        sender=_author(read.first("from")),
        subject=read.first("subject"),
        text=read.text,
        html=read.html,
        attachments=tuple(
            Attachment(file.filename or "attachment", file.content_type, file.content, file.content_id)
            for file in read.attachments
        ),
        tags={"inbox_message": str(entry.id)},
        lane=Lane.AUTH if entry.is_sign_in else Lane.TRANSACTIONAL,  # pages show no content of the lane auth
        source=SOURCE,
    )


def _address(text: str) -> Address:
    with BadInput.naming("to"):
        return parse_address(text.strip())


def _author(text: str) -> Address | None:
    """The From header; None, which is the installation's default, if it cannot be read."""
    try:
        return parse_address(text)
    except ValueError:
        return None
