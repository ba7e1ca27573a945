"""One failover under load, as `./dev chaos failover` does it many times."""

import sys
from pathlib import Path

import pytest
from tests.support.failover import run
from tests.support.patroni import ClusterNotStarted, Failure


async def test_a_failover_loses_nothing_and_repeats_only_what_the_ledger_explains(
    server_directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """PostgreSQL is killed under load: every acknowledged delivery and event is on the new primary, none is skipped."""
    directory = server_directory / "failover"
    directory.mkdir()
    try:
        ledger = await run(directory, [Failure.POSTGRES], lease="10s", report=lambda _line: None)
    except ClusterNotStarted as error:
        with capsys.disabled():
            sys.stderr.write(f"\nNO FAILOVER WAS TESTED: {error}\n")
        pytest.skip(f"Two PostgreSQL servers under Patroni could not be started: {error}")
    assert ledger.problems() == []
    assert ledger.acknowledged.deliveries
    assert ledger.acknowledged.events
    assert all(this.exit_code == 0 for this in ledger.rounds)
    assert None not in ledger.rounds[0].resumed.values()
