"""Refusals and reports of real servers: those that the table was tuned to, and those that it was not.

`refusals/*.txt` are replies with their class. `programs/*.mbox` are the reports that Postfix 3.7.11, Exim 4.96,
OpenSMTPD 6.8.0p2 and the DragonFly Mail Agent 0.13 wrote about 16 mails each, when the next server gave the replies of
`REPLIES`. ADR 78 has the figures of the first measurement of each set.
"""

import mailbox
import re
from contextlib import closing
from pathlib import Path

import pytest
from tests.support.server_refusals import Refusal, read_refusals

from postroom.feedback.model import classify
from postroom.post.report import ReportKind, read_report

PROGRAMS = sorted((Path(__file__).parent / "programs").glob("*.mbox"))
REPLIES = {
    1: ("recipient_hard", "550 5.1.1 User unknown in virtual mailbox table"),
    2: ("recipient_hard", "550 No Such User Here"),
    3: ("recipient_soft", "552 5.2.2 Quota exceeded (mailbox for user is full)"),
    4: ("policy", "554 5.7.1 Spam message rejected"),
    5: ("message", "552 5.3.4 Message size exceeds fixed limit"),
    6: ("policy", "550 5.7.1 client [192.0.2.1] blocked using a list"),
    7: ("recipient_hard", "550 5.1.1 in three lines, with a guess about typing errors"),
    8: ("unknown", "550 #5.1.0 Address rejected."),
    9: ("policy", "550 5.7.26 blocked because the sender is unauthenticated"),
    10: ("recipient_hard", "553 sorry, no mailbox here by that name (#5.7.1)"),
    11: ("recipient_hard", "550 5.2.1 The email account that you tried to reach is disabled."),
    12: ("recipient_hard", "554 delivery error: this user doesn't have an account"),
    13: ("recipient_hard", "550 5.1.10 RecipientNotFound"),
    14: ("policy", "550 relay not permitted"),
    15: ("policy", "550 5.1.1 sent to too many recipients this hour"),
    16: ("unknown", "550 Mailbox unavailable"),
}


@pytest.mark.parametrize("refusal", read_refusals("tuned"), ids=lambda refusal: refusal.line)
def test_refusal_has_its_class(refusal: Refusal) -> None:
    """Each reply that the table was tuned to has its class."""
    assert refusal.is_recognised
    assert not refusal.is_harmful


def test_most_refusals_that_nothing_was_tuned_to_are_recognised() -> None:
    """97 of 100 have the right class; the others have one that suppresses no address."""
    refusals = read_refusals("heldout")
    missed = [refusal.line for refusal in refusals if not refusal.is_recognised]
    assert len(missed) <= 0.03 * len(refusals), missed
    assert [refusal.line for refusal in refusals if refusal.is_harmful] == []


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.stem)
def test_reports_of_a_program_name_their_recipient_and_class(path: Path) -> None:
    """Every report is a bounce of the right address, with the class of the reply that it quotes."""
    found = {}
    with closing(mailbox.mbox(path)) as messages:
        raws = [message.as_bytes() for message in messages]
    for raw in raws:
        number = re.search(rb"news-(\d+)\.", raw)
        assert number is not None
        report = read_report(raw)
        assert report.kind is ReportKind.BOUNCE
        found[int(number[1])] = [
            (each.address, classify(each.code, each.enhanced, each.text).value) for each in report.failures
        ]
    assert found == {number: [(f"u{number}@example.org", wanted)] for number, (wanted, _) in REPLIES.items()}
