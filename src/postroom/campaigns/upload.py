"""Upload of recipients: lines become rows in batches of thousands, in constant memory.

Each batch is one transaction that locks the campaign, stores the recipients, marks suppressed ones and updates the
counters. Stored batches stay stored. `BadInput` from the parser ends the upload and says how many recipients were
stored.
"""

from collections.abc import AsyncIterable, AsyncIterator, Callable, Sequence
from datetime import datetime

from postroom.campaigns import store
from postroom.campaigns.errors import CampaignNotFound, CampaignWrongStatus
from postroom.campaigns.model import ENDED, Campaign, CampaignStatus, LineFormat, RejectedLine, Uploaded
from postroom.campaigns.recipients_file import Lines, Person, open_lines
from postroom.campaigns.zones import due_times
from postroom.db.pool import Pool
from postroom.db.queries import Connection
from postroom.errors import BadInput, FieldError
from postroom.events.audit import record_audit

BATCH = 5000  # recipients per transaction, which holds the campaign's row lock
LARGEST_CHUNK = 256 * 1024  # parsing a chunk holds the event loop for some milliseconds; a larger one for longer

OnRefused = Callable[[Sequence[RejectedLine]], None]
"""Callback for rejected lines, called as they are found."""


class Upload:
    """The upload of one file into one campaign."""

    def __init__(
        self, pool: Pool, campaign_id: int, *, on_refused: OnRefused | None = None, now: datetime | None = None
    ) -> None:
        self._pool, self._campaign_id, self._on_refused, self._now = pool, campaign_id, on_refused, now
        self.result = Uploaded()

    async def run(self, chunks: AsyncIterable[bytes], line_format: LineFormat, *, actor: str) -> Uploaded:
        """Read the whole input; the audit log records the result, also of an incomplete upload."""
        _must_take(await store.find_campaign(self._pool, campaign_id=self._campaign_id))
        lines = open_lines(line_format)
        try:
            async for chunk in _bounded(chunks):
                lines.feed(chunk)
                if len(lines.people) >= BATCH or len(lines.refused) >= BATCH:
                    await self._store(lines)
            lines.close()
            await self._store(lines)
        except BadInput as error:
            await self._store(lines)
            raise BadInput([*error.errors, FieldError("stored", self._so_far())]) from error
        finally:
            await self._note(actor)
        return self.result

    async def _store(self, lines: Lines) -> None:
        people, refused = lines.take()
        self.result.fields = tuple(lines.fields)
        if refused and self._on_refused is not None:
            self._on_refused(refused)
        for start in range(0, max(len(people), 1), BATCH):
            batch = people[start : start + BATCH]
            await self._store_batch(batch, invalid=len(refused) if start == 0 else 0)

    async def _store_batch(self, people: Sequence[Person], *, invalid: int) -> None:
        stored = suppressed = 0
        if not people and not invalid:
            return
        async with self._pool.acquire() as connection, connection.transaction():
            campaign = _must_take(await store.lock_campaign(connection, campaign_id=self._campaign_id))
            if people:
                stored, suppressed = await self._insert(connection, campaign, people)
            if invalid:
                await store.count_refused(connection, campaign_id=campaign.id, invalid=invalid)
        result = self.result
        result.total += len(people) + invalid
        result.added += stored - suppressed
        result.duplicate += len(people) - stored
        result.suppressed += suppressed
        result.invalid += invalid

    async def _insert(self, connection: Connection, campaign: Campaign, people: Sequence[Person]) -> tuple[int, int]:
        emails, names, zones, data = zip(*people, strict=True)
        due = await self._due(connection, campaign, set(zones))
        inserted: tuple[int, int] = await store.insert_recipients(
            connection,
            campaign_id=campaign.id,
            now=self._now,
            email=emails,
            name=names,
            time_zone=zones,
            custom_data=data,
            zone=list(due),
            due_at=list(due.values()),
        )
        return inserted

    async def _due(self, connection: Connection, campaign: Campaign, zones: set[str]) -> dict[str, datetime]:
        """Set the due time of a zone that is new to a running campaign; a draft's zones are set at its start."""
        if campaign.status is CampaignStatus.DRAFT:
            return {}
        moment = await store.read_clock(connection, now=self._now)
        since = max(campaign.plan.start_at or moment, moment)
        return due_times(zones, local_time=campaign.plan.local_time, own_zone=campaign.plan.time_zone, since=since)

    async def _note(self, actor: str) -> None:
        result = self.result
        after = {"total": result.total, "added": result.added, "invalid": result.invalid}
        await record_audit(self._pool, actor, "campaign.upload", f"campaign:{self._campaign_id}", after=after)

    def _so_far(self) -> str:
        result = self.result
        kept = result.added + result.suppressed
        return f"{kept} people of the lines before are stored; uploading the whole file again skips them"


def _must_take(campaign: Campaign | None) -> Campaign:
    """The campaign, if it exists and accepts recipients."""
    found = CampaignNotFound.unless(campaign)
    if found.status in ENDED:
        raise CampaignWrongStatus("given recipients", found.status)
    return found


async def _bounded(chunks: AsyncIterable[bytes]) -> AsyncIterator[bytes]:
    """Split input into pieces of a bounded size, so that a whole file in one chunk causes no larger batch."""
    async for chunk in chunks:
        for start in range(0, len(chunk), LARGEST_CHUNK):
            yield chunk[start : start + LARGEST_CHUNK]
