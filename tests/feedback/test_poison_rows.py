"""A report that cannot be recorded does not block the other reports of its batch."""

import asyncpg
import pytest
from tests.support.feedback import PATHS, report, rows, sent, suppressed

from postroom.db.pool import Pool
from postroom.feedback.attribution import Incoming
from postroom.feedback.ingest import ingest

POISON = {
    "NUL in the diagnostic": (b"Diagnostic-Code: smtp; ", b"Diagnostic-Code: smtp; 550 a\0b "),
    "surrogate in the address": (b"Final-Recipient: rfc822;", b"Final-Recipient: rfc822;\xed\xa0\x80"),
    "status of other digits": (b"Status: 5.1.1", "Status: \u0665.\u0661.\u0661".encode()),
    "encoded NUL in the subject": (b"Subject: ", b"Subject: =?utf-8?q?=00?= "),
    "a diagnostic of 200 kB": (b"Diagnostic-Code: smtp; ", b"Diagnostic-Code: smtp; " + b"(" * 200_000),
}


@pytest.mark.parametrize("old, new", POISON.values(), ids=POISON)
async def test_poison_report_stops_no_other_report(pool: Pool, old: bytes, new: bytes) -> None:
    """The batch is recorded with or without the poison report."""
    delivery_id = await sent(pool)
    good = report("postfix-unknown-user", delivery_id=delivery_id)
    assert old in good
    bad = good.replace(old, new)
    done = await ingest(pool, [Incoming(bad, "imap"), Incoming(good, "imap")], paths=PATHS)
    assert done.messages == 2
    assert await suppressed(pool) == [("hard_bounce", "all", None)]


@pytest.mark.parametrize("until", ["10000-01-01Z", "infinity", "4000-01-01Z BC"])
async def test_suppression_times_are_readable_by_python(pool: Pool, until: str) -> None:
    """The table rejects times that the driver cannot decode, which would break the whole response."""
    with pytest.raises(asyncpg.CheckViolationError, match="suppressions_until_readable"):
        await rows(
            pool,
            "INSERT INTO suppressions (address, scope, reason, until)"
            f" VALUES ('a@example.org', 'all', 'manual', '{until}')",
        )
