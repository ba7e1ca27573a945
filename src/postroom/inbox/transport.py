"""The capture transport: replies like a mail server and stores the mail. The package lists the magic recipients.

Concurrent messages are stored by one statement; each gets its 250 after that commit. Then messages beyond the limit
are deleted, the oldest first.
"""

import asyncio
from collections.abc import Sequence
from datetime import timedelta

import structlog

from postroom.db.faults import is_connection_lost
from postroom.db.pool import Pool
from postroom.inbox import store
from postroom.inbox.aside import outline_aside
from postroom.inbox.model import Captured
from postroom.post.reply import Content, Envelope, RecipientReply, Reply, Stage
from postroom.runtime.combiner import Combiner
from postroom.transports.base import Transport

SLOW = timedelta(seconds=2)  # long enough to be seen, short enough for a test
KEPT = 500  # messages; the default of POSTROOM_INBOX_LIMIT

_HOST = "capture"
_LINE_DROPS = "drop"
_NO_ANSWER = "ambiguous"
_SLOW = "slow"
_REFUSALS = {
    "bounce": (550, "5.1.1", "no such mailbox here"),
    "blocked": (550, "5.7.1", "refused by policy"),
    "full": (452, "4.2.2", "mailbox full"),
    "defer": (451, "4.3.0", "try again later"),
}

_log = structlog.get_logger()


def _weigh(message: Captured) -> int:
    return len(message.raw)


def role_of(address: str) -> str:
    """The magic part of an address: `Bounce+signup@example.org` is `bounce`."""
    return address.rpartition("@")[0].partition("+")[0].lower()


class CaptureTransport:
    """A transport that stores mail in the room's inbox."""

    name = "capture"

    def __init__(
        self, pool: Pool, *, slow: timedelta = SLOW, keep: int = KEPT, release: Transport | None = None
    ) -> None:
        self._pool, self._slow_s, self._keep = pool, slow.total_seconds(), keep
        self._release = release
        self._inbox: Combiner[Captured, int] = Combiner(self._store, largest=500, weigh=_weigh)

    async def send(self, envelope: Envelope, content: Content) -> Reply:
        """Reply to each recipient; capture the message for those accepted. A released message leaves by the relay."""
        if self._release is not None and await store.is_released(self._pool, delivery_id=envelope.delivery_id):
            return await self._release.send(envelope, content)
        taken = [address for address in dict.fromkeys(envelope.recipients) if role_of(address) not in _REFUSALS]
        replies = tuple(_refusal(address) for address in dict.fromkeys(envelope.recipients) if address not in taken)
        if not taken:
            last = replies[-1]
            return Reply(Stage.RECIPIENT, last.code, last.enhanced, last.text, remote_host=_HOST, recipients=replies)
        roles = {role_of(address) for address in taken}
        if _LINE_DROPS in roles:
            return Reply(Stage.CONTENT, text="the line dropped", remote_host=_HOST, recipients=replies)
        if _SLOW in roles:
            await asyncio.sleep(self._slow_s)
        captured = await self._capture(envelope, taken, content)
        if not captured or _NO_ANSWER in roles:
            return Reply(Stage.FINAL, text="no answer came", remote_host=_HOST, recipients=replies)
        return Reply(Stage.FINAL, 250, "2.0.0", "captured", remote_host=_HOST, recipients=replies)

    async def close(self) -> None:
        """Wait for messages being stored; the pool belongs to the room."""
        await self._inbox.drain()
        if self._release is not None:
            await self._release.close()

    async def _capture(self, envelope: Envelope, recipients: Sequence[str], content: Content) -> bool:
        raw = content.encode(eight_bit=True)
        outline = await outline_aside(raw)
        message = Captured(
            envelope.delivery_id,
            envelope.sender,
            recipients,
            outline.subject,
            raw,
            author=outline.author,
            content=outline.content,
            attachment_count=outline.attachment_count,
        )
        try:
            await self._inbox.submit(message)
        except Exception as error:
            if not is_connection_lost(error):
                raise
            # The statement may have been committed before the connection was lost, so the reply is ambiguous.
            _log.warning("capture_unanswered", delivery_id=envelope.delivery_id, error=type(error).__name__)
            return False
        return True

    async def _store(self, messages: Sequence[Captured]) -> list[int]:
        async with self._pool.acquire() as connection:
            stored = await store.insert_inbox_messages(connection, **store.columns_of(messages))
            await store.trim_inbox(connection, keep=self._keep)
            return stored


def _refusal(address: str) -> RecipientReply:
    return RecipientReply(address, *_REFUSALS[role_of(address)])
