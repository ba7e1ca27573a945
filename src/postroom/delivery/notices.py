"""Notices: mail, or a webhook, to the administrator about events that need a person.

A webhook does not need the relay, and so also reports that the relay does not answer. A notice is accepted in the
transaction that marks its subject as reported. Each kind is sent at most once per interval, whatever the number of
processes: the first report leaves at once, and all that follow within the interval become one mail.
"""

import json
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta

from postroom.db.pool import Pool
from postroom.delivery import service, store
from postroom.delivery.check import check_request
from postroom.delivery.model import Channel, DeliveryRequest, Lane
from postroom.post.address import Address
from postroom.runtime.clock import Clock, database_time
from postroom.runtime.loop import Loop, run_all
from postroom.settings import Settings

CHECK_INTERVAL = timedelta(seconds=30)  # a notice may wait: each kind has its own, longer interval

Report = Callable[..., Awaitable[tuple[str, str] | None]]
"""Marks everything new as reported, in this transaction; returns subject and text, None if nothing is new."""


@dataclass(frozen=True, slots=True)
class Notice:
    """A kind of notice, a row of `admin_notices`; `interval` names the setting of its shortest interval."""

    kind: str
    interval: str
    report: Report


class Notifier:
    """Sends notices to one administrator: by mail, by the webhook of the settings, or both."""

    def __init__(
        self,
        pool: Pool,
        admin: Address | None,
        notices: Sequence[Notice],
        settings: Settings,
        *,
        clock: Clock = database_time,
    ) -> None:
        self._pool, self._admin, self._notices = pool, admin, notices
        self._settings, self._clock = settings, clock

    def loop(self) -> Loop:
        return Loop("notices", self.run_once, rest=CHECK_INTERVAL)

    async def run_once(self) -> int:
        """Send every notice that is due; returns their number."""
        return sum(await run_all(self._send, self._notices))

    async def _send(self, notice: Notice) -> bool:
        now, interval = self._clock(), getattr(self._settings, notice.interval)
        async with self._pool.acquire() as connection, connection.transaction():
            if not await store.lock_notice(connection, kind=notice.kind, interval=interval, now=now):
                return False
            found = await notice.report(connection, now=now)
            if found is None:
                return False
            await store.mark_notice_sent(connection, kind=notice.kind, now=now)
            for request in self._requests(notice.kind, *found):
                await service.accept(connection, check_request(request), now=now)
        return True

    def _requests(self, kind: str, subject: str, text: str) -> Iterator[DeliveryRequest]:
        """The notice for each way to the administrator."""
        if self._admin is not None:
            yield DeliveryRequest(
                to=(self._admin,), subject=subject, text=text, lane=Lane.TRANSACTIONAL, source="postroom"
            )
        if self._settings.admin_webhook is not None:
            body = {"kind": kind, "room": self._settings.schema, "text": f"{subject}\n\n{text}"}
            yield DeliveryRequest(
                to=(Address(self._settings.admin_webhook),),
                text=json.dumps(body),
                lane=Lane.TRANSACTIONAL,
                channel=Channel.WEBHOOK,
                source="postroom",
            )
