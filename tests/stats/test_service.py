"""Reading of figures: any selection and grouping, folded or not, and never from the ledger."""

from datetime import timedelta

import pytest
from tests.support.builders import NOON

from postroom.db.pool import Pool
from postroom.errors import BadInput
from postroom.stats import service
from postroom.stats.model import Figures, Grouping, Selection
from postroom.stats.worker import Rollup

WRITE = """
    INSERT INTO stat_deltas (hour, campaign_id, sender_account_id, domain, metric, amount)
    VALUES ($1, $2, $3, $4, $5, $6)
"""
DAY = timedelta(days=1)


@pytest.fixture(params=["folded", "fresh", "both"])
async def counted(pool: Pool, request: pytest.FixtureRequest) -> Pool:
    """Two campaigns on three days; the figures do not depend on the rollup."""
    for place, (days, campaign, sender, domain, metric, amount) in enumerate(
        [
            (0, 7, 1, "a.example", "sent", 10),
            (0, 7, 2, "b.example", "sent", 5),
            (1, 7, 1, "a.example", "bounced", 2),
            (1, 8, 1, "a.example", "sent", 1),
            (2, None, None, "", "accepted", 4),
        ]
    ):
        await pool.execute(WRITE, NOON + days * DAY, campaign, sender, domain, metric, amount)
        if request.param == "both" and place == 2:
            await Rollup(pool).run_once()
    if request.param == "folded":
        await Rollup(pool).run_once()
    return pool


async def test_total_adds_all_figures(counted: Pool) -> None:
    """Without a selection, the total covers all mail."""
    assert await service.total(counted, Selection()) == Figures(accepted=4, sent=16, bounced=2)


@pytest.mark.parametrize(
    "selection, figures",
    [
        (Selection(campaign_id=7), Figures(sent=15, bounced=2)),
        (Selection(campaign_id=0), Figures(accepted=4)),
        (Selection(sender_account_id=2), Figures(sent=5)),
        (Selection(domain="A.Example"), Figures(sent=11, bounced=2)),
        (Selection(campaign_id=7, domain="b.example"), Figures(sent=5)),
        (Selection(begin=NOON + DAY), Figures(accepted=4, sent=1, bounced=2)),
        (Selection(end=NOON + DAY), Figures(sent=15)),
        (Selection(begin=NOON + DAY, end=NOON + 2 * DAY), Figures(sent=1, bounced=2)),
        (Selection(campaign_id=9), Figures()),
    ],
    ids=repr,
)
async def test_selection_limits_the_total(counted: Pool, selection: Selection, figures: Figures) -> None:
    """Campaign, sender, domain in any case, and period are combined with AND."""
    assert await service.total(counted, selection) == figures


async def test_rows_by_day_are_ordered(counted: Pool) -> None:
    """Times ascend; a day begins at midnight UTC."""
    lines = await service.measure(counted, Selection(), groups=[Grouping.DAY])
    midnight = NOON.replace(hour=0)
    assert [(line.moment, line.figures.sent) for line in lines] == [
        (midnight, 15),
        (midnight + DAY, 1),
        (midnight + 2 * DAY, 0),
    ]


async def test_rows_by_hour_have_the_hour(counted: Pool) -> None:
    """Columns outside the grouping are empty."""
    [line, *_] = await service.measure(counted, Selection(campaign_id=7), groups=[Grouping.HOUR])
    assert (line.moment, line.campaign_id, line.sender_account_id, line.domain) == (NOON, None, None, None)


@pytest.mark.parametrize(
    "group, column, expected",
    [
        (Grouping.CAMPAIGN, "campaign_id", [(7, 15), (8, 1), (0, 0)]),
        (Grouping.SENDER, "sender_account_id", [(1, 11), (2, 5), (0, 0)]),
        (Grouping.DOMAIN, "domain", [("a.example", 11), ("b.example", 5), ("", 0)]),
    ],
)
async def test_other_rows_are_ordered_by_sent_mail(
    counted: Pool, group: Grouping, column: str, expected: list[tuple[object, int]]
) -> None:
    """The largest comes first, and a limit keeps the largest."""
    lines = await service.measure(counted, Selection(), groups=[group])
    assert [(getattr(line, column), line.figures.sent) for line in lines] == expected
    [first] = await service.measure(counted, Selection(), groups=[group], limit=1)
    assert getattr(first, column) == expected[0][0]


async def test_groupings_combine(counted: Pool) -> None:
    """Figures can be grouped by day and sender at once."""
    lines = await service.measure(counted, Selection(campaign_id=7), groups=[Grouping.SENDER, Grouping.DAY])
    assert [(line.sender_account_id, line.figures.sent, line.figures.bounced) for line in lines] == [
        (1, 10, 0),
        (2, 5, 0),
        (1, 0, 2),
    ]


async def test_campaign_figures(counted: Pool) -> None:
    """The figures of a campaign are read in the caller's transaction and include its own changes."""
    async with counted.acquire() as connection, connection.transaction():
        await connection.execute(WRITE, NOON, 7, None, "", "opened_unique", 3)
        assert await service.campaign_figures(connection, 7) == Figures(sent=15, bounced=2, opened_unique=3)
        assert await service.campaign_figures(connection, 99) == Figures()


async def test_period_that_ends_before_it_begins_is_rejected(pool: Pool) -> None:
    """The error names the parameter of the end."""
    with pytest.raises(BadInput) as caught:
        await service.total(pool, Selection(begin=NOON, end=NOON))
    assert [error.field for error in caught.value.errors] == ["to"]


async def test_hour_and_day_together_are_rejected(pool: Pool) -> None:
    """A row has one time."""
    with pytest.raises(BadInput) as caught:
        await service.measure(pool, Selection(), groups=[Grouping.HOUR, Grouping.DAY])
    assert [error.field for error in caught.value.errors] == ["by"]


@pytest.mark.parametrize(
    "selection, index",
    [
        ("campaign_id = 77", "stats_hourly_campaign_idx"),
        ("sender_account_id = 3", "stats_hourly_sender_idx"),
        ("domain = 'd77.example'", "stats_hourly_domain_idx"),
        ("hour >= '2030-06-01 12:00+00' AND hour < '2030-06-01 14:00+00'", "stats_hourly_pkey"),
    ],
)
async def test_selection_uses_the_index(pool: Pool, selection: str, index: str) -> None:
    """Figures of one campaign do not read those of others."""
    await pool.execute(
        """
        INSERT INTO stats_hourly (hour, campaign_id, sender_account_id, domain, metric, amount)
        SELECT '2030-01-01'::timestamptz + make_interval(hours => n / 10), n % 200, n % 7, 'd' || n % 100 || '.example',
            'sent', 1
        FROM generate_series(1, 20000) AS n
        """
    )
    await pool.execute("ANALYZE stats_hourly")
    plan = await pool.fetch(f"EXPLAIN SELECT sum(amount) FROM stats_hourly WHERE {selection}")
    assert index in "\n".join(row[0] for row in plan)
