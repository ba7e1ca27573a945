"""The actions on campaigns. Surfaces call this module and nothing below it; lists of recipients go through `upload`."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import msgspec

from postroom.campaigns import store
from postroom.campaigns.check import check_plan
from postroom.campaigns.errors import CampaignFrozen, CampaignNotFound, CampaignWouldFail, CampaignWrongStatus
from postroom.campaigns.model import (
    Campaign,
    CampaignFigures,
    CampaignHour,
    CampaignPerson,
    CampaignRequest,
    CampaignStatus,
    Estimate,
    Forecast,
    RecipientState,
    Started,
    figures_of,
)
from postroom.campaigns.preview import try_out
from postroom.campaigns.queue_sync import settle_mail, settle_step
from postroom.campaigns.trial import lint_letter
from postroom.campaigns.zones import due_times
from postroom.db.pool import Pool
from postroom.db.queries import Connection
from postroom.delivery import store as delivery_store
from postroom.delivery.model import Lane
from postroom.errors import BadInput, SecretKeyMissing, SettingsMissing
from postroom.events.audit import audited
from postroom.mail.content_lint import LetterWarning
from postroom.runtime.page import EXAMINED, Found, search_page
from postroom.senders import store as sender_store
from postroom.senders.forecast import SENDING, AccountPool
from postroom.senders.model import SenderAccount

MOST_FAILING = 0.01
"""The share of a campaign's mails that may fail without a confirmation: single addresses in a long list."""

EXPECTED_RATE = 1000.0
"""Mails per second assumed at a start without sender accounts: a cautious value for two cores and a nearby relay."""

CONTENT = frozenset({"subject", "html", "text", "sender", "reply_to", "is_tracked"})


# ── writing ───────────────────────────────────────────────────────────────────────────────────────────────────────


async def create_campaign(pool: Pool, plan: CampaignRequest, *, actor: str, now: datetime | None = None) -> Campaign:
    """Store a draft; its letter must parse."""
    await check_plan(plan)
    async with audited(pool, actor, "campaign.create", after={"name": plan.name}) as (connection, note):
        campaign_id = await store.insert_campaign(connection, now=now, **_columns(plan))
        note.subject = f"campaign:{campaign_id}"
        return CampaignNotFound.unless(await store.find_campaign(connection, campaign_id=campaign_id))


async def update_campaign(
    pool: Pool, campaign_id: int, changes: Mapping[str, Any], *, actor: str, now: datetime | None = None
) -> Campaign:
    """Change fields of a draft: those of `CampaignRequest` and of its `Letter`. A started campaign is rejected.

    The check may take seconds, so it holds no connection; a concurrent change causes another check.
    """
    checked: CampaignRequest | None = None
    while True:
        async with audited(pool, actor, "campaign.update", f"campaign:{campaign_id}") as (connection, note):
            campaign = CampaignNotFound.unless(await store.lock_campaign(connection, campaign_id=campaign_id))
            if campaign.status is not CampaignStatus.DRAFT:
                raise CampaignFrozen
            plan = _changed(campaign.plan, changes)
            if plan == checked:
                await store.update_campaign(connection, campaign_id=campaign_id, now=now, **_columns(plan))
                note.after = {"fields": sorted(changes)}
                return CampaignNotFound.unless(await store.find_campaign(connection, campaign_id=campaign_id))
            note.is_dropped = True
        await check_plan(plan)
        checked = plan


async def delete_campaign(pool: Pool, campaign_id: int, *, actor: str) -> None:
    """Delete a draft and its recipients. A started campaign is kept, because sent mail refers to it."""
    async with audited(pool, actor, "campaign.delete", f"campaign:{campaign_id}") as (connection, note):
        campaign = CampaignNotFound.unless(await store.lock_campaign(connection, campaign_id=campaign_id))
        if not await store.delete_campaign(connection, campaign_id=campaign_id):
            raise CampaignWrongStatus("deleted", campaign.status)
        await store.delete_recipients(connection, campaign_id=campaign_id)
        note.before = {"name": campaign.plan.name}


# ── running ───────────────────────────────────────────────────────────────────────────────────────────────────────


async def start_campaign(  # noqa: PLR0913 - what the settings lack, besides the parameters of every step
    pool: Pool,
    campaign_id: int,
    *,
    actor: str,
    has_secret_key: bool = True,
    unset: Sequence[str] = (),
    accepts_failures: bool = False,
    rate: float | None = None,
    now: datetime | None = None,
) -> Started:
    """Start a draft: feeders queue it when it is due; `rate` is the number of mails sent per second.

    `unset` names settings without which mail leaves with a wrong sender or dead links (`Settings.unset_for_mail`).
    A letter that more than one recipient in a hundred cannot get starts only with `accepts_failures`.
    """
    if not has_secret_key:  # no unsubscribe link could be signed, and every campaign mail needs one
        raise SecretKeyMissing
    SettingsMissing.unless_none(unset)
    tried = await try_out(pool, campaign_id)
    if not accepts_failures:
        await _refuse_failures(pool, campaign_id)
    async with audited(pool, actor, "campaign.start", f"campaign:{campaign_id}") as (connection, note):
        campaign = CampaignNotFound.unless(await store.lock_campaign(connection, campaign_id=campaign_id))
        if not await store.start_campaign(connection, campaign_id=campaign_id, now=now):
            raise CampaignWrongStatus("started", campaign.status)
        if campaign.total == 0:
            raise BadInput.of("recipients", "the campaign has no recipients; upload them first")
        if campaign.plan.letter != tried:
            raise BadInput.of("letter", "was changed during the trial; start the campaign again")
        moment = await store.read_clock(connection, now=now)
        last_due = await _give_turns(connection, campaign, moment)
        await store.wake_feeders(connection)
        note.after = {"recipients": campaign.total}
        campaign = CampaignNotFound.unless(await store.find_campaign(connection, campaign_id=campaign_id))
        accounts = [sealed.account for sealed in await sender_store.list_senders(connection)]
    queued = campaign.total - campaign.suppressed
    expected = estimate(queued, moment, last_due, rate=rate or EXPECTED_RATE, accounts=accounts)
    return Started(campaign=campaign, queued=queued, estimate=expected)


async def _refuse_failures(pool: Pool, campaign_id: int) -> None:
    """Raise `CampaignWouldFail` if too many mails cannot be rendered."""
    async with pool.acquire() as connection:
        campaign = CampaignNotFound.unless(await store.find_campaign(connection, campaign_id=campaign_id))
        fields = await store.list_fields(connection, campaign_id=campaign_id)
    if campaign.total:
        warnings = await lint_letter(campaign.plan.letter, fields=fields, people=campaign.total)
        worst = too_many_failing(warnings, campaign.total)
        if worst is not None:
            raise CampaignWouldFail(f"{worst.failing} of {campaign.total} mails would fail: {worst.message}.")


def too_many_failing(warnings: Sequence[LetterWarning], total: int) -> LetterWarning | None:
    """The warning about the most mails that would fail, if they are more than a start accepts unasked."""
    worst = max(warnings, key=lambda warning: warning.failing, default=None)
    return worst if worst is not None and worst.failing > MOST_FAILING * total else None


async def reopen_campaign(pool: Pool, campaign_id: int, *, actor: str, now: datetime | None = None) -> Campaign:
    """Return a campaign to a draft, to change or reschedule it, while no mail of it was queued."""
    async with audited(pool, actor, "campaign.reopen", f"campaign:{campaign_id}") as (connection, note):
        before = CampaignNotFound.unless(await store.lock_campaign(connection, campaign_id=campaign_id))
        if not await store.reopen_campaign(connection, campaign_id=campaign_id, now=now):
            if before.status in (CampaignStatus.ACTIVE, CampaignStatus.PAUSED):
                raise CampaignFrozen
            raise CampaignWrongStatus("reopened", before.status)
        note.before, note.after = {"status": before.status}, {"status": CampaignStatus.DRAFT}
        return CampaignNotFound.unless(await store.find_campaign(connection, campaign_id=campaign_id))


async def pause_campaign(pool: Pool, campaign_id: int, *, actor: str, now: datetime | None = None) -> Campaign:
    """Pause a campaign and hold its waiting mail. Mail that a worker is already sending still leaves."""
    return await _step(pool, campaign_id, "pause", actor=actor, now=now)


async def resume_campaign(pool: Pool, campaign_id: int, *, actor: str, now: datetime | None = None) -> Campaign:
    """Resume a campaign and release its held mail."""
    return await _step(pool, campaign_id, "resume", actor=actor, now=now)


async def cancel_campaign(pool: Pool, campaign_id: int, *, actor: str, now: datetime | None = None) -> Campaign:
    """Cancel a campaign. Mail that a worker is already sending still leaves."""
    return await _step(pool, campaign_id, "cancel", actor=actor, now=now)


async def forecast(pool: Pool, campaign: Campaign, *, now: datetime | None = None) -> Forecast:
    """The accounts that would send a campaign, and the time they would need if it started now."""
    async with pool.acquire() as connection:
        moment = await store.read_clock(connection, now=now)
        accounts = [sealed.account for sealed in await sender_store.list_senders(connection)]
    queued = campaign.total - campaign.suppressed
    last_due = max(campaign.plan.start_at or moment, moment)
    expected = estimate(queued, moment, last_due, rate=EXPECTED_RATE, accounts=accounts)
    ours = [account.email for account in accounts if account.status in SENDING and Lane.BULK in account.lanes]
    return Forecast(senders=ours, estimate=expected)


def estimate(
    queued: int, moment: datetime, last_due: datetime, *, rate: float, accounts: Sequence[SenderAccount] = ()
) -> Estimate:
    """The time that these mails need, from the pace and quota of the sender accounts; the last is due at `last_due`."""
    together = AccountPool.of(accounts, lane=Lane.BULK, rate=rate)
    sending = timedelta(seconds=queued / rate) if together is None else together.time_for(queued, now=moment)
    needed = max(sending, last_due - moment)
    per_second = rate if together is None else together.per_second
    return Estimate(seconds=round(needed.total_seconds()), per_second=per_second, finishes_at=moment + needed)


# ── looking ───────────────────────────────────────────────────────────────────────────────────────────────────────


async def get_campaign(pool: Pool, campaign_id: int) -> Campaign:
    return CampaignNotFound.unless(await store.find_campaign(pool, campaign_id=campaign_id))


async def list_campaigns(
    pool: Pool,
    *,
    status: CampaignStatus | None = None,
    name: str | None = None,
    cursor: str | None = None,
    limit: int = 50,
) -> Found[Campaign]:
    """A page of campaigns, newest first and without bodies, and the cursor of the next page.

    `name` is any part of the name, compared without case.
    """
    return await search_page(store.list_campaigns, pool, cursor, limit, status=status, name=name)


async def list_hours(pool: Pool, campaign_id: int) -> list[CampaignHour]:
    """The amounts of a campaign by hour."""
    async with pool.acquire() as connection:
        CampaignNotFound.unless(await store.find_campaign(connection, campaign_id=campaign_id))
        return await store.list_hours(connection, campaign_id=campaign_id)


async def list_recipients(
    pool: Pool,
    campaign_id: int,
    *,
    state: RecipientState | None = None,
    custom_data: Mapping[str, Any] | None = None,
    cursor: str | None = None,
    limit: int = 50,
) -> Found[CampaignPerson]:
    """A page of a campaign's recipients by time zone and place in the list, and the cursor of the next page."""
    containing = None if custom_data is None else msgspec.json.encode(custom_data).decode()
    order = {"after_zone": ("time_zone", str), "after_id": ("id", int)}
    filters = {"campaign_id": campaign_id, "state": state, "custom_data": containing}
    async with pool.acquire() as connection:
        CampaignNotFound.unless(await store.find_campaign(connection, campaign_id=campaign_id))
        bound = limit + 1 if state is None and custom_data is None else EXAMINED
        return await search_page(store.list_recipients, connection, cursor, limit, order=order, bound=bound, **filters)


async def measure(pool: Pool, campaigns: Sequence[Campaign]) -> dict[int, CampaignFigures]:
    """All counts, by campaign."""
    measured = await store.measure_campaigns(pool, campaign_ids=[campaign.id for campaign in campaigns])
    return {campaign.id: figures_of(campaign, measured[campaign.id]) for campaign in campaigns}


# ── steps ─────────────────────────────────────────────────────────────────────────────────────────────────────────

_STEPS = {
    "pause": (store.pause_campaign, "paused"),
    "resume": (store.resume_campaign, "resumed"),
    "cancel": (store.cancel_campaign, "cancelled"),
}


async def _step(pool: Pool, campaign_id: int, action: str, *, actor: str, now: datetime | None) -> Campaign:
    """Change the status and a bounded part of the queued mail in one transaction, and the rest after it."""
    change, done = _STEPS[action]
    async with audited(pool, actor, f"campaign.{action}", f"campaign:{campaign_id}") as (connection, note):
        before = CampaignNotFound.unless(await store.lock_campaign(connection, campaign_id=campaign_id))
        if not await change(connection, campaign_id=campaign_id, now=now):
            raise CampaignWrongStatus(done, before.status)
        campaign = CampaignNotFound.unless(await store.find_campaign(connection, campaign_id=campaign_id))
        await settle_step(connection, campaign_id, campaign.status, now=now)
        if campaign.status is CampaignStatus.ACTIVE:
            await store.wake_feeders(connection)
            await delivery_store.wake_workers(connection, lanes=[Lane.BULK])
        note.before, note.after = {"status": before.status}, {"status": campaign.status}
    await settle_mail(pool, campaign_id, now=now)
    return campaign


async def _give_turns(connection: Connection, campaign: Campaign, moment: datetime) -> datetime:
    """Set the due time of each zone; returns the last."""
    plan = campaign.plan
    zones = [zone.time_zone for zone in await store.list_zones(connection, campaign_id=campaign.id)]
    since = max(plan.start_at or moment, moment)
    due = due_times(zones, local_time=plan.local_time, own_zone=plan.time_zone, since=since)
    await store.start_zones(connection, campaign_id=campaign.id, time_zone=list(due), due_at=list(due.values()))
    return max(due.values(), default=since)


def _changed(plan: CampaignRequest, changes: Mapping[str, Any]) -> CampaignRequest:
    of_letter = {name: value for name, value in changes.items() if name in CONTENT}
    of_plan = {name: value for name, value in changes.items() if name not in CONTENT}
    return replace(plan, letter=replace(plan.letter, **of_letter), **of_plan)


def _columns(plan: CampaignRequest) -> dict[str, Any]:
    letter = plan.letter
    return {
        "name": plan.name,
        "from_email": letter.sender.email if letter.sender else None,
        "from_name": letter.sender.name if letter.sender else None,
        "reply_to_email": letter.reply_to.email if letter.reply_to else None,
        "reply_to_name": letter.reply_to.name if letter.reply_to else None,
        "subject": letter.subject,
        "text_body": letter.text,
        "html_body": letter.html,
        "is_tracked": letter.is_tracked,
        "start_at": plan.start_at,
        "local_time": plan.local_time,
        "time_zone": plan.time_zone,
    }
