"""Two worker hosts, one of them cut off: `./dev chaos two-hosts` in small."""

import sys
from pathlib import Path

import pytest
from tests.support.namespaces import NamespacesDenied
from tests.support.two_hosts import Plan, run


async def test_cut_off_host_loses_nothing_and_exceeds_no_quota(
    database_url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A host loses its links, then the other one only its database: quotas and pace hold, copies are explained."""
    plan = Plan(rounds=2, lease_s=4, mails=120, limit=30, kept=10)
    try:
        ledger = await run(database_url, plan, tmp_path, report=lambda _line: None)
    except NamespacesDenied as error:
        with capsys.disabled():
            sys.stderr.write(f"\nNO HOST WAS CUT OFF: {error}\n")
        pytest.skip(f"Network namespaces are not permitted: {error}")
    assert ledger.problems() == []
    assert ledger.used == plan.quota
    assert all(this.takeover_s > 0 for this in ledger.rounds)
