"""The capacity page calculates with the costs that the performance page measured."""

import re
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"
CAPACITY = (DOCS / "explanation" / "capacity.md").read_text("utf-8")
PERFORMANCE = (DOCS / "performance.md").read_text("utf-8")

DAY_S = 86_400
PEAK = 4  # times the average, in the busiest hour


def cells(page: str, row: str) -> list[str]:
    """The cells of a table's row behind its first."""
    [line] = re.findall(rf"^\| {re.escape(row)} \|(.*)\|$", page, re.MULTILINE)
    return [cell.strip() for cell in line.split("|")]


def number(text: str) -> float:
    found = re.search(r"[\d,.]*\d", text)
    assert found is not None, text
    return float(found[0].replace(",", ""))


def test_costs_are_those_that_were_measured() -> None:
    """CPU, WAL and kept bytes of a mail; the last row of the table is the sum of the two before."""
    accept, send = (
        cells(CAPACITY, "accept, in batches of 1,000"),
        cells(CAPACITY, "render, send over SMTP without a signature, record"),
    )
    for given, measured in ((accept, "accept in batches"), (send, "template to sink")):
        postgresql, _bare, python, _script = cells(PERFORMANCE, measured)
        assert [number(cell) for cell in given[:2]] == [number(postgresql), number(python)]
    single = cells(CAPACITY, "accept, one call in your transaction")
    call = cells(PERFORMANCE, "accept one in the caller's transaction, 1 client, with its commit")
    assert [number(cell) for cell in single[:2]] == [round(number(call[at]), -1) for at in (0, 2)]
    [campaign] = cells(PERFORMANCE, "campaign with ten accounts, tracking, unsubscribe headers and Ed25519")
    in_python, in_postgresql = (number(part) for part in campaign.split(" Python ")[1].split(", PostgreSQL "))
    assert f"costs {in_postgresql:.0f} µs of PostgreSQL and {in_python:.0f} µs of Python" in CAPACITY.replace("\n", " ")
    [wal] = cells(PERFORMANCE, "WAL per mail")
    to_accept, to_drain = (number(part) / 1000 for part in wal.split(" to accept, "))
    assert (number(accept[2]), number(send[2])) == (to_accept, to_drain)
    total = cells(CAPACITY, "all of it, in batches")
    assert [number(cell) for cell in total[:3]] == [
        round(number(one) + number(two), 1) for one, two in zip(accept[:3], send[:3], strict=True)
    ]
    [kept] = cells(PERFORMANCE, "kept per finished mail, facts on")
    assert number(total[3]) == round(number(kept) / 1000, 1)


def test_every_calculation_is_right() -> None:
    """`a ÷ b = c` and `a × b = c`, to the digits that are shown."""
    text = CAPACITY.replace("(200 + 37)", "237").replace("\n", " ")
    shown = re.findall(r"([\d,.]+)(?: s)? ([÷×]) ([\d.]+)( µs)? = ([\d.]+)( M)?", text)
    assert len(shown) == 6
    for left, sign, right, micro, result, million in shown:
        factor = float(right) / (1e6 if micro else 1)
        value = number(left) / factor if sign == "÷" else number(left) * factor
        digits = len(result.partition(".")[2])
        assert round(value / (1e6 if million else 1), digits) == float(result), f"{left} {sign} {right} = {result}"


def test_the_plans_follow_from_the_costs() -> None:
    """Mails a second, WAL and kept bytes of 100 million and of a billion mails a day, rounded as a reader would."""
    _cpu, _python, wal, kept = (number(cell) for cell in cells(CAPACITY, "all of it, in batches"))
    assert f"{round(100e6 / DAY_S, -1):,.0f} mails a second on average" in CAPACITY
    busy = round(PEAK * 100e6 / DAY_S, -2)
    assert f"busiest hour: {busy:,.0f} a second" in CAPACITY
    assert f"WAL: {100 * wal:.0f} GB a day, {busy * wal / 1000:.0f} MB/s" in CAPACITY
    assert f"Kept: {100 * kept:.0f} GB a day" in CAPACITY
    assert f"{10 * busy:,.0f} mails a second in the busiest hour" in CAPACITY
    assert f"{busy * wal / 100:.0f} MB/s at the peak" in CAPACITY
    assert f"archive takes {kept:.1f} TB a day" in CAPACITY


def test_the_campaign_rate_follows_from_its_cost() -> None:
    """Mails a day of one core at half load."""
    found = re.search(r"(\d+) µs of Python", CAPACITY.replace("\n", " "))
    assert found is not None
    assert f"or {DAY_S / 2 / float(found[1]):.0f} M of a campaign" in CAPACITY
