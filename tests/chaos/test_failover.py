"""One failover under load, as `./dev chaos failover` does it many times."""

import sys
from datetime import timedelta
from pathlib import Path

import pytest
from tests.support.failover import run
from tests.support.moving_address import MovingAddress
from tests.support.patroni import ClusterNotStarted, Failure, PatroniCluster

GRACE = timedelta(seconds=30)
"""A worker that has ended with 0 has released its claims on the new primary, however slow the machine is."""


@pytest.mark.parametrize("kind", [PatroniCluster, MovingAddress])
async def test_a_failover_loses_nothing_and_repeats_only_what_the_ledger_explains(
    kind: type[PatroniCluster], server_directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """PostgreSQL is killed under load: every acknowledged delivery and event is on the new primary, none is skipped.

    The URL has both hosts, or one that is silent until it moves.
    """
    directory = server_directory / f"failover-{kind.__name__}"
    directory.mkdir()
    try:
        ledger = await run(
            kind(directory), directory, [Failure.POSTGRES], lease="10s", grace=GRACE, report=lambda _line: None
        )
    except ClusterNotStarted as error:
        with capsys.disabled():
            sys.stderr.write(f"\nNO FAILOVER WAS TESTED: {error}\n")
        pytest.skip(f"Two PostgreSQL servers under Patroni could not be started: {error}")
    assert ledger.problems() == []
    assert ledger.acknowledged.deliveries
    assert ledger.acknowledged.events
    assert [this.exit_code for this in ledger.rounds] == [0]
    assert None not in ledger.rounds[0].resumed.values()
