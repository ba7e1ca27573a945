"""Uploads into a real database: streamed, counted and idempotent."""

import asyncio
import resource
import tracemalloc
from collections.abc import AsyncIterator

import pytest
from tests.support.builders import suppress
from tests.support.campaigns import a_campaign, a_running_campaign, csv_of, upload
from tests.support.patience import PATIENCE_S

from postroom.campaigns import service
from postroom.campaigns.errors import CampaignNotFound, CampaignWrongStatus
from postroom.campaigns.model import LineFormat, RecipientState, RejectedLine, Uploaded
from postroom.campaigns.upload import Upload
from postroom.campaigns.worker import Feeder
from postroom.db.pool import Pool
from postroom.errors import BadInput


async def test_result_accounts_for_every_line(pool: Pool) -> None:
    """Total = added + duplicate + invalid + suppressed, and the campaign has the same sums."""
    campaign = await a_campaign(pool)
    await suppress(pool, "sue@example.org", scope="bulk")
    lines = (
        "email,first_name\nann@example.org,Ann\nANN@Example.org,Ann again\nSue@example.org,Sue\nnonsense,x\n"
        "bob@example.org,Bob\n"
    )
    refused: list[RejectedLine] = []
    result = await upload(pool, campaign.id, lines.encode(), refused=refused)
    assert result == Uploaded(total=5, added=2, duplicate=1, invalid=1, suppressed=1, fields=("first_name",))
    assert [(each.line, each.field) for each in refused] == [(5, "email")]
    told = await service.get_campaign(pool, campaign.id)
    assert (told.total, told.suppressed, told.duplicate, told.invalid) == (3, 1, 1, 1)
    listed, _ = await service.list_recipients(pool, campaign.id, state=RecipientState.SUPPRESSED)
    assert [recipient.email for recipient in listed] == ["Sue@example.org"]


async def test_repeated_upload_adds_no_recipients(pool: Pool) -> None:
    """A second upload of the same file counts all lines as duplicates."""
    campaign = await a_campaign(pool)
    assert (await upload(pool, campaign.id, csv_of(50))).added == 50
    again = await upload(pool, campaign.id, csv_of(60))
    assert (again.added, again.duplicate) == (10, 50)
    assert (await service.get_campaign(pool, campaign.id)).total == 60


async def test_concurrent_uploads_store_each_recipient_once(pool: Pool) -> None:
    """Three overlapping files are uploaded at the same time."""
    campaign = await a_campaign(pool)
    results = await asyncio.gather(*(upload(pool, campaign.id, csv_of(3000)) for _ in range(3)))
    assert sum(result.added for result in results) == 3000
    assert (await service.get_campaign(pool, campaign.id)).total == 3000
    assert await pool.fetchval("SELECT count(DISTINCT lower(email)) FROM campaign_recipients") == 3000


async def test_feeder_does_not_skip_an_upload_that_commits_late(pool: Pool) -> None:
    """An upload has drawn its ids and waits; a later one must not commit higher ids, or a feeder goes on past both."""
    campaign = await a_running_campaign(pool, ["ann@example.org"])
    feeder = Feeder(pool)
    await feeder.run_once()
    async with pool.acquire() as blocker:
        rival = blocker.transaction()
        await rival.start()
        await blocker.execute(
            "INSERT INTO campaign_recipients (campaign_id, time_zone, email, custom_data)"
            " SELECT campaign_id, time_zone, 'eve@example.org', '{}' FROM campaign_recipients"
        )
        late = asyncio.create_task(upload(pool, campaign, csv_of(["bob@example.org", "eve@example.org"])))
        await _blocked(pool, 1, late)
        later = asyncio.create_task(upload(pool, campaign, csv_of(["sue@example.org"])))
        await _blocked(pool, 2, later)
        await feeder.run_once()
        await rival.rollback()
    await asyncio.gather(late, later)
    await feeder.run_once()
    fed = await pool.fetch("SELECT email FROM campaign_recipients WHERE state = 'fed' ORDER BY email")
    assert [row["email"].partition("@")[0] for row in fed] == ["ann", "bob", "eve", "sue"]


async def _blocked(pool: Pool, number: int, task: "asyncio.Task[Uploaded]") -> None:
    """Wait, by asking, until so many sessions wait for a lock or the task has ended."""
    waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
    async with asyncio.timeout(PATIENCE_S):
        while not task.done() and await pool.fetchval(waiting) < number:
            await pool.execute("SELECT pg_sleep(0.01)")


async def test_unreadable_line_reports_stored_recipients(pool: Pool) -> None:
    """The error names the line and the number of stored recipients."""
    campaign = await a_campaign(pool)
    with pytest.raises(BadInput) as caught:
        await upload(pool, campaign.id, csv_of(20), b"b\xfcb@example.org,x\n")
    fields = {error.field: error.message for error in caught.value.errors}
    assert set(fields) == {"line 22", "stored"}
    assert fields["stored"].startswith("20 people")
    assert (await service.get_campaign(pool, campaign.id)).total == 20


async def test_lost_connection_leaves_whole_batches(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The counters agree with the stored recipients after a lost connection."""
    monkeypatch.setattr("postroom.campaigns.upload.BATCH", 10)
    campaign = await a_campaign(pool)

    async def dying() -> AsyncIterator[bytes]:
        yield csv_of(25)
        yield b"more@example.org,x\n" * 3
        raise ConnectionResetError

    upload_ = Upload(pool, campaign.id)
    with pytest.raises(ConnectionResetError):
        await upload_.run(dying(), LineFormat.CSV, actor="tests")
    told = await service.get_campaign(pool, campaign.id)
    assert told.total == upload_.result.added == await pool.fetchval("SELECT count(*) FROM campaign_recipients")
    assert await pool.fetchval("SELECT count(*) FROM audit_log WHERE action = 'campaign.upload'") == 1


async def test_merge_fields_with_values_are_counted(pool: Pool) -> None:
    """The campaign counts the stored recipients that have a value, by field."""
    campaign = await a_campaign(pool)
    lines = b"email,first_name,city\nann@example.org,Ann,\nbob@example.org,,\nann@example.org,Again,Rome\n"
    await upload(pool, campaign.id, lines)
    rows = await pool.fetch("SELECT name, filled FROM campaign_fields ORDER BY name")
    assert [tuple(row) for row in rows] == [("city", 0), ("first_name", 1)]


async def test_json_lines_keep_their_types(pool: Pool) -> None:
    """A number stays a number and can be filtered."""
    campaign = await a_campaign(pool)
    lines = b'{"email":"ann@example.org","age":7}\n{"email":"bob@example.org","age":8}\n'
    await upload(pool, campaign.id, lines, line_format=LineFormat.JSON_LINES)
    found, _ = await service.list_recipients(pool, campaign.id, custom_data={"age": 8})
    assert [recipient.email for recipient in found] == ["bob@example.org"]


@pytest.mark.parametrize("end", ["cancelled", "completed"])
async def test_finished_campaign_rejects_uploads(pool: Pool, end: str) -> None:
    """A finished campaign accepts no recipients."""
    campaign = await a_running_campaign(pool, 1)
    await pool.execute("UPDATE campaigns SET status = $1::text::campaign_status, finished_at = now()", end)
    with pytest.raises(CampaignWrongStatus):
        await upload(pool, campaign, csv_of(3))


async def test_unknown_campaign_rejects_uploads(pool: Pool) -> None:
    """The error is raised before any input is read."""
    with pytest.raises(CampaignNotFound):
        await upload(pool, 404, csv_of(3))


async def test_upload_memory_does_not_grow_with_the_file(pool: Pool) -> None:
    """100,000 lines need no more memory than 10,000."""
    campaign = await a_campaign(pool)
    refused = 0

    def count(found: object) -> None:
        nonlocal refused
        refused += len(found)  # type: ignore[arg-type]

    async def lines(first: int, number: int) -> AsyncIterator[bytes]:
        yield b"email,first_name,city\r\n"
        for start in range(first, first + number, 500):
            yield b"".join(b"p%d@example.org,Ann,Rome\r\n" % n for n in range(start, start + 500)) + b"wrong\r\n"

    tracemalloc.start()
    try:
        await Upload(pool, campaign.id, on_refused=count).run(lines(0, 10_000), LineFormat.CSV, actor="tests")
        tracemalloc.reset_peak()
        before = tracemalloc.get_traced_memory()[0]
        await Upload(pool, campaign.id, on_refused=count).run(lines(10_000, 10_000), LineFormat.CSV, actor="tests")
        small = tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()
    resident = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    result = await Upload(pool, campaign.id, on_refused=count).run(
        lines(20_000, 100_000), LineFormat.CSV, actor="tests"
    )
    assert (result.added, result.invalid, refused) == (100_000, 200, 240)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - resident < 30_000  # kilobytes
    assert small < 30_000_000


async def test_erased_address_stays_suppressed(pool: Pool) -> None:
    """An erased address is recognised by its stored hash, and gets no mail."""
    await pool.execute("INSERT INTO erasure_key (inner_pad, outer_pad) VALUES ($1, $2)", bytes(64), bytes(range(64)))
    await pool.execute(
        "INSERT INTO suppressions (address, scope, reason) VALUES (erased_address('ann@example.org'), 'bulk', 'manual')"
    )
    campaign = await a_campaign(pool)
    assert (await upload(pool, campaign.id, b"email\nAnn@example.org\nbob@example.org\n")).suppressed == 1
