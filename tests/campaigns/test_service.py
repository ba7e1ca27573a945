"""Actions on campaigns, and their limits."""

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import asyncpg
import pytest
from tests.support.builders import NOON
from tests.support.campaigns import a_campaign, a_plan, a_running_campaign, csv_of, upload
from tests.support.senders import an_account

from postroom.campaigns import preview as rehearsal
from postroom.campaigns import service
from postroom.campaigns.errors import (
    CampaignFrozen,
    CampaignNotFound,
    CampaignRecipientNotFound,
    CampaignWouldFail,
    CampaignWrongStatus,
)
from postroom.campaigns.model import CampaignStatus
from postroom.db.pool import Pool
from postroom.delivery.model import Lane
from postroom.delivery.service import get_delivery
from postroom.errors import BadInput, SecretKeyMissing, SettingsMissing
from postroom.post.address import Address
from postroom.settings import Settings
from postroom.stats.worker import Rollup


async def test_draft_can_be_changed_and_deleted(pool: Pool) -> None:
    """A change keeps absent fields; a delete removes the recipients too."""
    campaign = await a_campaign(pool, 3)
    changed = await service.update_campaign(
        pool, campaign.id, {"subject": "New", "name": "Summer", "sender": Address("a@example.org")}, actor="tests"
    )
    assert (changed.plan.name, changed.plan.letter.subject) == ("Summer", "New")
    assert changed.plan.letter.html == campaign.plan.letter.html
    await service.delete_campaign(pool, campaign.id, actor="tests")
    with pytest.raises(CampaignNotFound):
        await service.get_campaign(pool, campaign.id)
    assert await pool.fetchval("SELECT count(*) FROM campaign_recipients") == 0


async def test_started_campaign_cannot_be_changed(pool: Pool) -> None:
    """Neither the service nor plain SQL changes or deletes a started letter."""
    campaign = await a_running_campaign(pool, 1)
    with pytest.raises(CampaignFrozen):
        await service.update_campaign(pool, campaign, {"subject": "Other"}, actor="tests")
    with pytest.raises(CampaignWrongStatus):
        await service.delete_campaign(pool, campaign, actor="tests")
    with pytest.raises(asyncpg.PostgresError) as caught:
        await pool.execute("UPDATE campaigns SET html_body = 'other'")
    assert caught.value.sqlstate == "PR070"


@pytest.mark.parametrize("column", ["subject", "text_body", "from_email", "reply_to_name", "time_zone"])
async def test_no_part_of_a_started_letter_can_be_changed(pool: Pool, column: str) -> None:
    """Every column of the letter is protected."""
    await a_running_campaign(pool, 1)
    with pytest.raises(asyncpg.PostgresError, match="cannot be changed"):
        await pool.execute(f"UPDATE campaigns SET {column} = 'Asia/Tokyo'")


STEPS: dict[str, Callable[..., Awaitable[object]]] = {
    "start": service.start_campaign,
    "pause": service.pause_campaign,
    "resume": service.resume_campaign,
    "cancel": service.cancel_campaign,
}
ALLOWED = {("draft", "start"), ("active", "pause"), ("active", "cancel"), ("paused", "resume"), ("paused", "cancel")}


@pytest.mark.parametrize("status", list(CampaignStatus))
@pytest.mark.parametrize("step", list(STEPS))
async def test_only_documented_transitions_are_allowed(pool: Pool, status: CampaignStatus, step: str) -> None:
    """Each action is tried from each status."""
    campaign = (await a_campaign(pool, 1)).id
    if status is not CampaignStatus.DRAFT:
        await service.start_campaign(pool, campaign, actor="tests")
    match status:
        case CampaignStatus.PAUSED:
            await service.pause_campaign(pool, campaign, actor="tests")
        case CampaignStatus.CANCELLED:
            await service.cancel_campaign(pool, campaign, actor="tests")
        case CampaignStatus.COMPLETED:
            await pool.execute("UPDATE campaigns SET status = 'completed', finished_at = now()")
    if (status, step) in ALLOWED:
        await STEPS[step](pool, campaign, actor="tests")
    else:
        with pytest.raises(CampaignWrongStatus):
            await STEPS[step](pool, campaign, actor="tests")


async def test_plain_sql_cannot_make_other_transitions(pool: Pool) -> None:
    """A cancelled campaign cannot become active by plain SQL."""
    campaign = await a_running_campaign(pool, 1)
    await service.cancel_campaign(pool, campaign, actor="tests")
    with pytest.raises(asyncpg.PostgresError) as caught:
        await pool.execute("UPDATE campaigns SET status = 'active', finished_at = NULL")
    assert caught.value.sqlstate == "PR071"


async def test_start_returns_sums_and_estimate(pool: Pool) -> None:
    """A start returns the sums of all uploads, the queued recipients, and the time at the known rate."""
    campaign = await a_campaign(pool)
    await upload(pool, campaign.id, csv_of(100), csv_of(100), b"wrong,x\n")
    started = await service.start_campaign(pool, campaign.id, actor="tests", rate=10.0, now=NOON)
    told = started.campaign
    assert (told.total, told.duplicate, told.invalid, started.queued) == (100, 100, 2, 100)
    assert (started.estimate.seconds, started.estimate.finishes_at) == (10, NOON + timedelta(seconds=10))


async def test_start_estimate_uses_the_sender_quota(pool: Pool) -> None:
    """A hundred mails with a quota of forty a day end on the third day."""
    campaign = await a_campaign(pool)
    await upload(pool, campaign.id, csv_of(100))
    await an_account(pool, daily_limit=40, send_delay_ms=1000)
    started = await service.start_campaign(pool, campaign.id, actor="tests", now=NOON)
    assert started.estimate.per_second == 1
    assert started.estimate.finishes_at == NOON + timedelta(days=1, hours=12, seconds=20)


async def test_start_needs_a_secret_key_and_recipients(pool: Pool) -> None:
    """A start fails without a secret key, which signs unsubscribe links, and without recipients."""
    campaign = await a_campaign(pool)
    with pytest.raises(SecretKeyMissing):
        await service.start_campaign(pool, campaign.id, actor="tests", has_secret_key=False)
    settings = Settings(transport="smtp", smtp_relay="smtp://127.0.0.1:1", public_url="https://shop.example")
    with pytest.raises(SettingsMissing, match="POSTROOM_FROM must be set"):
        await service.start_campaign(pool, campaign.id, actor="tests", unset=settings.unset_for_mail)
    with pytest.raises(BadInput):
        await service.start_campaign(pool, campaign.id, actor="tests")
    assert (await service.get_campaign(pool, campaign.id)).status is CampaignStatus.DRAFT


@pytest.mark.parametrize(
    "wrong, field",
    [
        ({"name": " "}, "name"),
        ({"name": "a\nb"}, "name"),
        ({"subject": ""}, "subject"),
        ({"subject": "a\r\nBcc: x"}, "subject"),
        ({"subject": "{{ a"}, "subject"),
        ({"html": None}, "html"),
        ({"html": "\0"}, "html"),
        ({"time_zone": "Moon/Base"}, "time_zone"),
        ({"start_at": NOON.replace(tzinfo=None)}, "start_at"),
        ({"start_at": NOON.replace(year=2999)}, "start_at"),
    ],
)
async def test_invalid_campaign_names_its_field(pool: Pool, wrong: dict[str, Any], field: str) -> None:
    """An invalid campaign is not stored, and the error names its field."""
    with pytest.raises(BadInput) as caught:
        await service.create_campaign(pool, a_plan(**wrong), actor="tests")
    assert [error.field for error in caught.value.errors] == [field]
    assert await pool.fetchval("SELECT count(*) FROM campaigns") == 0


async def test_every_transition_is_in_the_audit_log(pool: Pool) -> None:
    """The audit log has the actor, the action and both statuses."""
    campaign = await a_running_campaign(pool, 1)
    await service.pause_campaign(pool, campaign, actor="key:ann")
    rows = await pool.fetch("SELECT actor, action FROM audit_log ORDER BY id")
    assert [row["action"] for row in rows] == [
        "campaign.create", "campaign.upload", "campaign.start", "campaign.pause",
    ]  # fmt: skip
    assert rows[-1]["actor"] == "key:ann"


async def test_lists_are_paged_by_cursor(pool: Pool) -> None:
    """Campaigns are listed newest first, recipients by zone in file order, each once."""
    for _ in range(3):
        await a_campaign(pool)
    first, cursor = await service.list_campaigns(pool, limit=2)
    rest, end = await service.list_campaigns(pool, limit=2, cursor=cursor)
    assert ([each.id for each in (*first, *rest)], end) == ([3, 2, 1], None)
    lines = b"email,time_zone\n" + b"".join(
        b"p%d@example.org,%s\n" % (n, b"Asia/Tokyo" if n % 2 else b"") for n in range(9)
    )
    await upload(pool, 1, lines)
    seen: list[str] = []
    page: str | None = None
    while True:
        found, page = await service.list_recipients(pool, 1, limit=2, cursor=page)
        seen += [recipient.email for recipient in found]
        if page is None:
            break
    assert seen == [f"p{n}@example.org" for n in (0, 2, 4, 6, 8, 1, 3, 5, 7)]


async def test_preview_matches_the_mail(pool: Pool) -> None:
    """A preview has the content of the mail with an example in place of personal links."""
    campaign = await a_campaign(pool, ["ann@example.org", "bob@example.org"])
    shown = await rehearsal.preview(pool, campaign.id, email="BOB@example.org")
    assert shown.subject == "News for Name1"
    assert rehearsal.EXAMPLE in (shown.html or "")
    assert "/track/" not in (shown.html or "")
    other = await rehearsal.preview(pool, campaign.id, variables={"first_name": "Eve"})
    assert other.subject == "News for Eve"
    with pytest.raises(CampaignRecipientNotFound):
        await rehearsal.preview(pool, campaign.id, email="nobody@example.org")


async def test_preview_names_a_missing_field(pool: Pool) -> None:
    """A preview fails with the same reason as the mail."""
    campaign = await a_campaign(pool)
    with pytest.raises(BadInput, match="first_name"):
        await rehearsal.preview(pool, campaign.id)


async def test_test_mail_is_sent_at_once_and_not_counted(pool: Pool) -> None:
    """A test mail has a mark in its subject and no campaign."""
    campaign = await a_campaign(pool, 1)
    [delivery_id] = await rehearsal.send_test(pool, campaign.id, ["Me <me@example.org>"], actor="tests")
    sent = await get_delivery(pool, delivery_id)
    assert (sent.lane, sent.subject, sent.source) == (
        Lane.TRANSACTIONAL,
        "[Test] News for Name0",
        f"campaign-test:{campaign.id}",
    )
    assert (await service.get_campaign(pool, campaign.id)).fed == 0
    with pytest.raises(BadInput):
        await rehearsal.send_test(pool, campaign.id, ["nonsense"], actor="tests")


async def test_lint_checks_fields_of_uploaded_recipients(pool: Pool) -> None:
    """A field that no recipient has causes a warning."""
    campaign = await a_campaign(pool, subject="Hello {{ nickname }}", text="Bye {{ unsubscribe_url }}")
    await upload(pool, campaign.id, csv_of(2))
    assert [remark.code for remark in await rehearsal.lint_campaign(pool, campaign.id)] == ["field_missing"]


async def test_figures_come_from_statistics_only(pool: Pool) -> None:
    """Figures add folded and unfolded statistics, and read neither deliveries nor attempts."""
    campaign = await a_running_campaign(pool, 10)
    insert = "INSERT INTO stat_deltas (hour, campaign_id, metric, amount) VALUES ('2030-06-01 10:00Z', $1, $2, $3)"
    await pool.execute(insert, campaign, "sent", 1)
    await pool.execute(insert, None, "sent", 50)
    await Rollup(pool).run_once()
    for metric, amount in (("sent", 6), ("refused", 1), ("dead_lettered", 1), ("opened", 5), ("opened_unique", 3)):
        await pool.execute(insert, campaign, metric, amount)
    found = (await service.measure(pool, [await service.get_campaign(pool, campaign)]))[campaign]
    assert (found.counts.sent, found.counts.failed, found.counts.queued) == (7, 2, 1)
    assert (found.opens.total, found.opens.unique, found.opens.machine) == (5, 3, 0)
    [hour] = await service.list_hours(pool, campaign)
    assert hour.amounts["sent"] == 7


async def test_a_start_that_would_fail_needs_a_confirmation(pool: Pool) -> None:
    """If more than one recipient in a hundred lacks a field without a default, the start names the field."""
    campaign = await a_campaign(pool, 3, html="<p>{{ city }}</p>")
    with pytest.raises(CampaignWouldFail, match=r"3 of 3 mails would fail: no recipient has a value for \{\{ city"):
        await service.start_campaign(pool, campaign.id, actor="tests")
    assert (await service.get_campaign(pool, campaign.id)).status is CampaignStatus.DRAFT
    started = await service.start_campaign(pool, campaign.id, actor="tests", accepts_failures=True)
    assert started.campaign.status is CampaignStatus.ACTIVE


async def test_a_campaign_returns_to_a_draft_until_its_first_mail_is_queued(pool: Pool) -> None:
    """A scheduled campaign can be changed and rescheduled; once mail was queued, its content stays."""
    campaign = await a_campaign(pool, 3, start_at=NOON)
    await service.start_campaign(pool, campaign.id, actor="tests")
    assert (await service.reopen_campaign(pool, campaign.id, actor="tests")).status is CampaignStatus.DRAFT
    later = NOON + timedelta(days=1)
    await service.update_campaign(pool, campaign.id, {"subject": "Later", "start_at": later}, actor="tests")
    started = await service.start_campaign(pool, campaign.id, actor="tests")
    assert (started.queued, started.campaign.plan.start_at) == (3, later)
    await service.pause_campaign(pool, campaign.id, actor="tests")
    await service.reopen_campaign(pool, campaign.id, actor="tests")
    await service.start_campaign(pool, campaign.id, actor="tests")
    await pool.execute("SELECT feed_campaign($1, 100, $2)", campaign.id, later + timedelta(minutes=1))
    with pytest.raises(CampaignFrozen):
        await service.reopen_campaign(pool, campaign.id, actor="tests")
    await service.cancel_campaign(pool, campaign.id, actor="tests")
    with pytest.raises(CampaignWrongStatus):
        await service.reopen_campaign(pool, campaign.id, actor="tests")
