"""Counts by one dimension: the same as those by campaign, sender and domain, bounded, and cheap to read."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from tests.support.builders import DELIVERED, NOON, Recording, a_mail, a_worker, accepted, per_recipient
from tests.support.campaigns import a_campaign_worker, a_running_campaign
from tests.support.retention import swept

from postroom.campaigns import store as campaigns
from postroom.campaigns.worker import Feeder
from postroom.db.pool import Pool
from postroom.delivery.maintenance import RETENTION
from postroom.delivery.service import cancel
from postroom.delivery.worker import WorkerOptions
from postroom.errors import BadInput
from postroom.stats import service, store
from postroom.stats.model import Figures, Grouping, Selection
from postroom.stats.worker import Rollup, RollupOptions

SAME = {"total": "''", "campaign": "campaign_id::text", "sender": "sender_account_id::text"}
"""Dimensions that are also in the other table, and their values there."""

COUNTS = "SELECT {} AS value, hour, metric, sum(amount)::bigint FROM {} GROUP BY 1, 2, 3 HAVING sum(amount) <> 0"
FILL = """
    INSERT INTO stats_hourly (hour, campaign_id, sender_account_id, domain, metric, amount)
    SELECT date_trunc('hour', now(), 'UTC'), c, 0, 'd' || d, 'sent', 1
    FROM generate_series(1, 20) AS c, generate_series(1, 500) AS d
"""
FILL_CAMPAIGNS = """
    INSERT INTO stats_dimension_hours (dimension, value, hour, metric, amount)
    SELECT 'campaign', c, date_trunc('hour', now(), 'UTC') - h * interval '1 hour', 'sent', 1
    FROM generate_series(1, 200) AS c, generate_series(1, 20) AS h
"""
FILL_RECIPIENTS = """
    INSERT INTO campaign_recipients (campaign_id, email) SELECT 1, 'p' || n || '@example.org'
    FROM generate_series(1, 20000) AS n
"""
TAGGED = """
    INSERT INTO stat_deltas (hour, tags, metric, amount)
    SELECT $1, ARRAY[tag, 'kind=receipt'], 'opened', 1 FROM unnest($2::text[]) AS tag
"""


async def counts(pool: Pool, value: str, source: str) -> list[tuple[object, ...]]:
    return sorted(tuple(row.values()) for row in await pool.fetch(COUNTS.format(value, source)))


async def stored(pool: Pool, dimension: str) -> list[tuple[object, ...]]:
    return await counts(pool, "value", f"stats_dimension_hours WHERE dimension = '{dimension}'")


async def by(pool: Pool, group: Grouping, metric: str, **filters: Any) -> dict[str, int]:
    """A metric by template or tag, without zero amounts."""
    lines = await service.measure(pool, Selection(**filters), groups=[group])
    found = {getattr(line, group.value): getattr(line.figures, metric) for line in lines}
    return {value: amount for value, amount in found.items() if amount}


async def test_all_rollups_agree(pool: Pool) -> None:
    """Steps and deltas are counted in both tables, also after a rebuild, and deleted after the same time."""
    for people in (3, 5):
        await a_running_campaign(pool, people)
    await Feeder(pool).run_once()
    transport = Recording(per_recipient({"p1@example.org": (550, "5.1.1")}, DELIVERED))
    await a_campaign_worker(pool, transport, options=WorkerOptions(until_empty=True)).run()
    expected = {name: await counts(pool, value, "read_counts()") for name, value in SAME.items()}
    assert {row[2] for row in expected["campaign"]} >= {"accepted", "sent", "refused", "bounced"}

    async def read() -> dict[str, list[tuple[object, ...]]]:
        return {name: await counts(pool, "value", f"read_dimension_counts('{name}')") for name in SAME}

    assert await read() == expected
    for batch in (3, 1000):
        while await store.fold(pool, batch_limit=batch):
            assert await read() == expected
    assert {name: await stored(pool, name) for name in SAME} == expected
    await service.rebuild(pool, actor="tests")
    assert await read() == expected
    await Rollup(pool).run_once()
    async with pool.acquire() as connection:
        late = NOON + timedelta(days=10_000)
        for delete in (store.delete_old_hours, store.delete_old_dimension_hours):
            assert await delete(connection, retention=timedelta(days=1), batch_limit=1000, now=late) > 0
    assert await pool.fetchval("SELECT count(*) FROM stats_dimension_hours") == 0


@pytest.mark.parametrize("is_rolled_up", [False, True])
async def test_mail_counts_by_its_template_and_each_of_its_tags(pool: Pool, *, is_rolled_up: bool) -> None:
    """Steps and later figures of a mail count for its template and all its tags; the total counts it once."""
    tagged = a_mail(tags={"kind": "receipt", "shop": "1"})
    [first, *_] = await accepted(pool, tagged, a_mail(tags={"kind": "receipt"}), a_mail())
    await pool.execute("UPDATE deliveries SET template_id = 'order' WHERE tags IS NOT NULL")
    await a_worker(pool, Recording()).run_once(tagged.lane)
    await pool.execute("SELECT unsubscribe('ada@example.org', $1, NULL, 'page', NULL, NULL)", first)
    if is_rolled_up:
        while await store.fold(pool, batch_limit=1000):
            pass
    for metric in ("accepted", "sent"):
        assert await by(pool, Grouping.TEMPLATE, metric) == {"order": 2, "": 1}
        assert await by(pool, Grouping.TAG, metric) == {"kind=receipt": 2, "shop=1": 1, "": 1}
    assert await by(pool, Grouping.TAG, "unsubscribed") == {"kind=receipt": 1, "shop=1": 1}
    assert await by(pool, Grouping.TEMPLATE, "unsubscribed", template="order") == {"order": 1}
    assert await service.total(pool, Selection()) == Figures(accepted=3, sent=3, unsubscribed=1)
    assert await service.total(pool, Selection(tag="shop=1")) == Figures(accepted=1, sent=1, unsubscribed=1)
    [day] = await service.measure(pool, Selection(template="order"), groups=[Grouping.DAY])
    assert (day.figures.sent, day.template) == (2, None)


async def test_figures_after_the_end_of_a_delivery_keep_its_template_and_tags(pool: Pool) -> None:
    """Deliveries are deleted after a week; an open or unsubscribe that comes later counts by what the ledger kept."""
    [first, _other] = await accepted(pool, a_mail(tags={"kind": "receipt"}), a_mail())
    await pool.execute("UPDATE deliveries SET template_id = 'order' WHERE id = $1", first)
    await a_worker(pool, Recording()).run_once(a_mail().lane)
    await pool.execute("DELETE FROM deliveries")
    await pool.execute("SELECT unsubscribe('ada@example.org', $1, NULL, 'page', NULL, NULL)", first)
    assert await by(pool, Grouping.TEMPLATE, "unsubscribed") == {"order": 1}
    assert await by(pool, Grouping.TAG, "unsubscribed") == {"kind=receipt": 1}


async def test_an_hour_has_a_bounded_number_of_tags(pool: Pool) -> None:
    """Tags with a new value in each mail share one row beyond the limit; other keys keep theirs, and none is lost."""
    for first in (1, 151):
        await pool.execute(TAGGED, NOON, [f"order={number}" for number in range(first, first + 150)])
        await pool.execute(TAGGED, NOON, ["shop=1"])
        await Rollup(pool).run_once()
    found = await by(pool, Grouping.TAG, "opened")
    orders = {tag: amount for tag, amount in found.items() if tag.startswith("order=")}
    assert (len(orders), orders["order=*"], sum(orders.values())) == (201, 100, 300)
    assert (found["shop=1"], found["kind=receipt"]) == (2, 302)
    await pool.execute(TAGGED, NOON, ["order=1", "order=999"])
    await Rollup(pool).run_once()
    assert await by(pool, Grouping.TAG, "opened", tag="order=1") == {"order=1": 2}
    assert await by(pool, Grouping.TAG, "opened", tag="order=*") == {"order=*": 101}


async def test_keys_of_tags_are_bounded_too(pool: Pool) -> None:
    """A new key in each mail shares one row beyond a thousand values of an hour; the next hour begins again."""
    for hours in (0, 1):
        hour = NOON + timedelta(hours=hours)
        await pool.execute(TAGGED, hour, [f"key-{number}=1" for number in range(1500)])
        await Rollup(pool, RollupOptions(batch=10_000)).run_once()
        values = await pool.fetch("SELECT value FROM stats_dimension_hours WHERE dimension = 'tag' AND hour = $1", hour)
        assert len(values) == 1001
    assert await by(pool, Grouping.TAG, "opened", tag="*") == {"*": 1002}


async def test_statistics_store_no_address(pool: Pool) -> None:
    """A tag with an address or a very long value counts by its key alone; tags that are no object count as none."""
    tags = {"user": "ada@example.org", "text": "x" * 101, "bob@example.org": "1", "kind": "receipt"}
    odd, _other = await accepted(pool, a_mail(), a_mail(tags=tags))
    await pool.execute("UPDATE deliveries SET tags = '[1]' WHERE id = $1", odd)
    await Rollup(pool).run_once()
    assert set(await by(pool, Grouping.TAG, "accepted")) == {"user=*", "text=*", "*", "kind=receipt", ""}


@pytest.mark.parametrize(
    "selection, groups, field",
    [
        (Selection(template="order"), [Grouping.CAMPAIGN], "template"),
        (Selection(tag="kind=receipt", domain="example.org"), [], "tag"),
        (Selection(), [Grouping.TAG, Grouping.TEMPLATE], "tag"),
    ],
)
async def test_templates_and_tags_are_not_combined(
    pool: Pool, selection: Selection, groups: list[Grouping], field: str
) -> None:
    """No table counts such combinations; the error names the parameter."""
    with pytest.raises(BadInput) as caught:
        await service.measure(pool, selection, groups=groups)
    assert [error.field for error in caught.value.errors] == [field]


async def test_rebuilding_corrects_templates_and_tags(pool: Pool) -> None:
    """Counts of steps are written again; a month whose deliveries were deleted keeps its counts by template and tag."""
    first, _second = await accepted(pool, a_mail(tags={"kind": "receipt"}), a_mail(tags={"kind": "welcome"}))
    while await store.fold(pool, batch_limit=1000):
        pass
    damage = "UPDATE stats_dimension_hours SET amount = 99"
    await pool.execute(damage)
    await service.rebuild(pool, actor="tests")
    assert await by(pool, Grouping.TAG, "accepted") == {"kind=receipt": 1, "kind=welcome": 1}
    await cancel(pool, first, actor="tests")
    await swept(pool, RETENTION, clock=lambda: datetime.now(UTC) + timedelta(days=30))
    await pool.execute(damage)
    await service.rebuild(pool, actor="tests")
    assert await by(pool, Grouping.TAG, "accepted") == {"kind=receipt": 99, "kind=welcome": 99}
    assert await service.total(pool, Selection()) == Figures(accepted=2, cancelled=1)


@pytest.mark.parametrize("group", [Grouping.HOUR, Grouping.CAMPAIGN, Grouping.SENDER, Grouping.TEMPLATE, Grouping.TAG])
async def test_one_dimension_reads_no_domain(pool: Pool, group: Grouping) -> None:
    """Figures by one dimension do not read the counts by domain, which may be millions."""
    scans = (
        "SELECT coalesce(sum(seq_scan + idx_scan), 0)::int FROM pg_stat_xact_user_tables WHERE relname = 'stats_hourly'"
    )
    async with pool.acquire() as connection, connection.transaction():
        await connection.execute("SET LOCAL plan_cache_mode = force_generic_plan")
        before = await connection.fetchval(scans)
        await store.measure(
            connection,
            dimension="total" if group is Grouping.HOUR else group.value,
            value=None,
            groups=[group.value],
            campaign_id=None,
            sender_account_id=None,
            domain=None,
            begin_hour=NOON,
            end_hour=None,
            page_limit=10,
        )
        assert await connection.fetchval(scans) == before


async def test_figures_of_campaigns_read_no_domain(pool: Pool) -> None:
    """The list and the report of campaigns read the small rollup by its key; a person is found by the index."""
    async with pool.acquire() as connection:
        for statement in (FILL, FILL_CAMPAIGNS, FILL_RECIPIENTS, "ANALYZE", "SET plan_cache_mode = force_generic_plan"):
            await connection.execute(statement)
        for name, values, index in (
            ("measure_campaigns", "'{1,2,3}'", "stats_dimension_hours_value_idx"),
            ("list_hours", "7", "stats_dimension_hours_value_idx"),
            ("find_recipient", "1, 'P7@example.org'", "campaign_recipients_person_idx"),
            ("list_people", "1, NULL, NULL, 51, NULL, 51", "campaign_recipients_pkey"),
        ):
            await connection.execute(f"PREPARE {name} AS {campaigns.QUERIES[name].sql}")
            rows = await connection.fetch(f"EXPLAIN EXECUTE {name}({values})")
            plan = "\n".join(row[0] for row in rows)
            assert (name, index in plan, "stats_hourly" in plan) == (name, True, False)
            assert "Seq Scan on campaign_recipients" not in plan
        await connection.execute(f"PREPARE list_domains AS {campaigns.QUERIES['list_domains'].sql}")
        rows = await connection.fetch("EXPLAIN EXECUTE list_domains(1, 10)")
        plan = "\n".join(row[0] for row in rows)
        assert "stats_hourly_failures_idx" in plan
        assert "Seq Scan on stats_hourly" not in plan
