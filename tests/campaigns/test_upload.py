"""Uploads into a real database: streamed, counted, idempotent, and honest about what was stored."""

import asyncio
import resource
import tracemalloc
from collections.abc import AsyncIterator

import pytest
from tests.support.builders import suppress
from tests.support.campaigns import a_campaign, a_running_campaign, csv_of, upload

from postroom.campaigns import service
from postroom.campaigns.errors import CampaignNotFound, CampaignWrongStatus
from postroom.campaigns.model import LineFormat, RecipientState, RejectedLine, Uploaded
from postroom.campaigns.upload import Upload
from postroom.db.pool import Pool
from postroom.errors import BadInput


async def test_the_result_accounts_for_every_line(pool: Pool) -> None:
    """Total = added + duplicate + invalid + suppressed, and the campaign keeps the same sums."""
    campaign = await a_campaign(pool)
    await suppress(pool, "sue@example.org", scope="bulk")
    lines = (
        "email,first_name\nann@example.org,Ann\nANN@Example.org,Ann again\nSue@example.org,Sue\nnonsense,x\n"
        "bob@example.org,Bob\n"
    )
    refused: list[RejectedLine] = []
    result = await upload(pool, campaign.id, lines.encode(), refused=refused)
    assert result == Uploaded(total=5, added=2, duplicate=1, invalid=1, suppressed=1)
    assert [(each.line, each.field) for each in refused] == [(5, "email")]
    told = await service.get_campaign(pool, campaign.id)
    assert (told.total, told.suppressed, told.duplicate, told.invalid) == (3, 1, 1, 1)
    listed, _ = await service.list_recipients(pool, campaign.id, state=RecipientState.SUPPRESSED)
    assert [recipient.email for recipient in listed] == ["Sue@example.org"]


async def test_the_same_file_again_adds_nobody(pool: Pool) -> None:
    """Whoever lost the connection in the middle uploads the whole file once more."""
    campaign = await a_campaign(pool)
    assert (await upload(pool, campaign.id, csv_of(50))).added == 50
    again = await upload(pool, campaign.id, csv_of(60))
    assert (again.added, again.duplicate) == (10, 50)
    assert (await service.get_campaign(pool, campaign.id)).total == 60


async def test_uploads_at_the_same_time_store_each_person_once(pool: Pool) -> None:
    """Three files that overlap, at once."""
    campaign = await a_campaign(pool)
    results = await asyncio.gather(*(upload(pool, campaign.id, csv_of(3000)) for _ in range(3)))
    assert sum(result.added for result in results) == 3000
    assert (await service.get_campaign(pool, campaign.id)).total == 3000
    assert await pool.fetchval("SELECT count(DISTINCT lower(email)) FROM campaign_recipients") == 3000


async def test_what_was_stored_before_an_unreadable_line_is_told(pool: Pool) -> None:
    """The error names the line, and how many people are there already."""
    campaign = await a_campaign(pool)
    with pytest.raises(BadInput) as caught:
        await upload(pool, campaign.id, csv_of(20), b"b\xfcb@example.org,x\n")
    fields = {error.field: error.message for error in caught.value.errors}
    assert set(fields) == {"line 22", "stored"}
    assert fields["stored"].startswith("20 people")
    assert (await service.get_campaign(pool, campaign.id)).total == 20


async def test_a_connection_that_dies_leaves_whole_batches(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was stored is counted; nothing is there that the counters do not know."""
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


async def test_the_fields_people_bring_are_counted(pool: Pool) -> None:
    """How many have a value, of those who were stored."""
    campaign = await a_campaign(pool)
    lines = b"email,first_name,city\nann@example.org,Ann,\nbob@example.org,,\nann@example.org,Again,Rome\n"
    await upload(pool, campaign.id, lines)
    rows = await pool.fetch("SELECT name, filled FROM campaign_fields ORDER BY name")
    assert [tuple(row) for row in rows] == [("city", 0), ("first_name", 1)]


async def test_json_lines_are_stored_with_their_types(pool: Pool) -> None:
    """A number stays a number, and can be asked for."""
    campaign = await a_campaign(pool)
    lines = b'{"email":"ann@example.org","age":7}\n{"email":"bob@example.org","age":8}\n'
    await upload(pool, campaign.id, lines, line_format=LineFormat.JSON_LINES)
    found, _ = await service.list_recipients(pool, campaign.id, custom_data={"age": 8})
    assert [recipient.email for recipient in found] == ["bob@example.org"]


@pytest.mark.parametrize("end", ["cancelled", "completed"])
async def test_a_campaign_that_ended_takes_nobody(pool: Pool, end: str) -> None:
    """It would be a promise that nothing keeps."""
    campaign = await a_running_campaign(pool, 1)
    await pool.execute("UPDATE campaigns SET status = $1::text::campaign_status, finished_at = now()", end)
    with pytest.raises(CampaignWrongStatus):
        await upload(pool, campaign, csv_of(3))


async def test_a_campaign_that_is_not_there_takes_nobody(pool: Pool) -> None:
    """Said before anything is read."""
    with pytest.raises(CampaignNotFound):
        await upload(pool, 404, csv_of(3))


async def test_a_hundred_thousand_lines_take_no_more_memory_than_ten_thousand(pool: Pool) -> None:
    """Memory follows the batch, not the file."""
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


async def test_a_suppression_outlives_the_address(pool: Pool) -> None:
    """Somebody who was erased is recognised by the hash that was kept, and still gets nothing."""
    await pool.execute("INSERT INTO erasure_key (inner_pad, outer_pad) VALUES ($1, $2)", bytes(64), bytes(range(64)))
    await pool.execute(
        "INSERT INTO suppressions (address, scope, reason) VALUES (erased_address('ann@example.org'), 'bulk', 'manual')"
    )
    campaign = await a_campaign(pool)
    assert (await upload(pool, campaign.id, b"email\nAnn@example.org\nbob@example.org\n")).suppressed == 1
