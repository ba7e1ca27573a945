"""Commands of statistics, in a process of their own."""

import asyncpg
import msgspec
import pytest
from tests.support.builders import NOON
from tests.support.command_line import outcome

from postroom.db.pool import Pool

WRITE = """
    INSERT INTO stat_deltas (hour, domain, metric, amount)
    VALUES ($1, 'example.org', 'sent', 8), ($1 + interval '1 day', 'example.com', 'sent', 4)
"""


async def run(url: str, *arguments: str) -> tuple[int, str, str]:
    return await outcome("stats", *arguments, settings={"POSTROOM_DATABASE_URL": url})


@pytest.fixture
async def url(pool: Pool, database_url: str) -> str:
    """A room with mail on two days, to two domains."""
    await pool.execute(WRITE, NOON)
    return database_url


async def test_table_by_domain(url: str) -> None:
    """Domains are ordered by volume; accepted mail has no domain, and is shown as a dash."""
    connection = await asyncpg.connect(url)
    await connection.execute("INSERT INTO postroom.stat_deltas (hour, metric, amount) VALUES (now(), 'accepted', 12)")
    await connection.close()
    code, output, _ = await run(url, "show", "--by", "domain")
    header, *lines = output.splitlines()
    assert (code, header.split()[:3]) == (0, ["domain", "accepted", "sent"])
    assert [line.split()[:3] for line in lines] == [["example.org", "-", "8"], ["example.com", "-", "4"]]


async def test_table_by_template_and_tag(url: str) -> None:
    """Mail without one is in a row of its own; a filter shows one tag."""
    connection = await asyncpg.connect(url)
    await connection.execute(
        "INSERT INTO postroom.stat_deltas (hour, template_id, tags, metric, amount)"
        " VALUES (now(), 'welcome', '{kind=news,shop=1}', 'sent', 20)"
    )
    await connection.close()
    for option in ("template", "tag"):
        _, output, _ = await run(url, "show", "--by", option, "--json")
        found = {line[option]: line["sent"] for line in msgspec.json.decode(output)["items"]}
        assert found == {"template": {"welcome": 20, "": 12}, "tag": {"kind=news": 20, "shop=1": 20, "": 12}}[option]
    _, output, _ = await run(url, "show", "--by", "tag", "--tag", "shop=1")
    assert [line.split()[:3] for line in output.splitlines()] == [["tag", "accepted", "sent"], ["shop=1", "0", "20"]]


async def test_total_row_and_json(url: str) -> None:
    """The JSON is the same as over HTTP."""
    _, output, _ = await run(url, "show", "--domain", "example.com", "--json")
    [line] = msgspec.json.decode(output)["items"]
    assert (line["sent"], line["rates"]["delivery"]) == (4, 1.0)


async def test_plot_has_a_bar_per_day_and_a_total(url: str) -> None:
    """The largest amount has the widest bar, and the last line is a sparkline."""
    code, output, _ = await run(url, "series", "--from", "2030-06-01T00:00:00Z")
    first, second, last = output.splitlines()
    assert (code, first) == (0, f"2030-06-01  {'█' * 40}  8")
    assert second == f"2030-06-02  {'█' * 20}{' ' * 20}  4"
    assert last == "sent 12  █▄"


async def test_plot_by_hour_as_json(url: str) -> None:
    """Each row has its hour."""
    _, output, _ = await run(url, "series", "--hourly", "--from", "2030-06-01T00:00:00Z", "--json")
    assert [line["hour"] for line in msgspec.json.decode(output)["items"]] == [
        "2030-06-01T12:00:00Z",
        "2030-06-02T12:00:00Z",
    ]


async def test_unknown_metric_is_a_usage_error(url: str) -> None:
    """The error is raised before the database is queried."""
    code, _, errors = await run(url, "series", "--metric", "yodelled")
    assert code == 2
    assert "yodelled" in errors
