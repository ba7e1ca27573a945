"""Suppression lists as CSV: accepted and rejected lines."""

from collections.abc import AsyncIterator

import pytest
from tests.support.feedback import rows

from postroom.db.pool import Pool
from postroom.errors import BadInput
from postroom.feedback.lists import ListReader, lines_of, write_lines
from postroom.feedback.model import NewSuppression, Scope, SuppressionReason
from postroom.feedback.service import export, import_batch


def read(*lines: str) -> tuple[list[NewSuppression], list[tuple[int, str]]]:
    reader = ListReader()
    return reader.read(lines), reader.result.problems


def test_header_names_the_columns() -> None:
    """Columns may have any order and case; unknown ones are ignored."""
    found, problems = read("Reason,Name,E-Mail,detail\n", 'complaint,Ada,ada@example.org,"said, loudly"\n')
    assert problems == []
    assert [(each.email, each.reason, each.detail) for each in found] == [
        ("ada@example.org", SuppressionReason.COMPLAINT, "said, loudly")
    ]


def test_without_a_header_the_first_column_is_the_address() -> None:
    """A plain list of addresses needs no header."""
    found, _ = read("ada@example.org\n", "ben@example.org,whatever\n", "\n")
    assert [(each.email, each.reason, each.origin) for each in found] == [
        ("ada@example.org", SuppressionReason.MANUAL, "import"),
        ("ben@example.org", SuppressionReason.MANUAL, "import"),
    ]


def test_invalid_lines_are_named() -> None:
    """An invalid line is reported with its number and reason; the others are used."""
    found, problems = read(
        "email,reason,scope,campaign_id\n",
        "nonsense,,,\n",
        "a@example.org,because,,\n",
        "b@example.org,,half,\n",
        "c@example.org,,,seven\n",
        '"d@example.org,,,\n',
        "e@example.org,unsubscribe,,7\n",
    )
    assert [(each.email, each.scope, each.campaign_id) for each in found] == [("e@example.org", None, 7)]
    assert [number for number, _ in problems] == [2, 3, 4, 5, 6]
    assert problems[1][1].startswith("reason: must be one of")


def test_header_without_email_is_rejected() -> None:
    """A file without an email column is rejected as a whole."""
    with pytest.raises(BadInput, match="lacks the column email"):
        read("name,colour\n", "Ada,blue\n")


def test_internationalised_domains_are_stored_as_ascii() -> None:
    """Deliveries use the ASCII form, so suppressions must use it too."""
    found, _ = read("ann@bücher.example\n")
    assert found[0].email == "ann@xn--bcher-kva.example"


async def chunks(*pieces: bytes) -> AsyncIterator[bytes]:
    for piece in pieces:
        yield piece


async def test_lines_are_assembled_from_chunks() -> None:
    """A chunk may end within a line or within a character."""
    raw = "\ufeffemail\nann@bücher.example\r\nada@example.org".encode()
    found = [line async for lines in lines_of(chunks(*(raw[at : at + 1] for at in range(len(raw))))) for line in lines]
    assert found == ["email", "ann@bücher.example\r", "ada@example.org"]


@pytest.mark.parametrize("raw", [b"\xff\xfe", b"email\n" + b"a" * 20_000])
async def test_invalid_text_is_rejected(raw: bytes) -> None:
    """Bytes that are not UTF-8 and unterminated lines are rejected."""
    with pytest.raises(BadInput):
        [lines async for lines in lines_of(chunks(raw))]


async def test_export_can_be_imported(pool: Pool) -> None:
    """Reasons, scopes and details with commas and line breaks survive a paged export and import."""
    wanted = [
        NewSuppression(email=f"p{number}@example.org", reason=reason, scope=Scope.ALL, detail='says "no,\nno"')
        for number, reason in enumerate(
            (
                SuppressionReason.MANUAL,
                SuppressionReason.COMPLAINT,
                SuppressionReason.HARD_BOUNCE,
                SuppressionReason.UNSUBSCRIBE,
            )
        )
    ]
    await import_batch(pool, wanted, actor="tests")
    pages = [page async for page in export(pool, page=2)]
    assert [len(page) for page in pages] == [2, 2]
    text = "".join(write_lines(page, header=number == 0) for number, page in enumerate(pages))
    found, problems = read(*text.splitlines(keepends=True))
    assert problems == []
    assert [(each.email, each.reason, each.scope) for each in found] == [
        (each.email, each.reason, each.scope) for each in wanted
    ]
    assert found[0].detail == 'says "no, no"'


async def test_most_severe_reason_of_a_batch_wins(pool: Pool) -> None:
    """An address that occurs three times in a file is written once."""
    reasons = (SuppressionReason.MANUAL, SuppressionReason.COMPLAINT, SuppressionReason.HARD_BOUNCE)
    batch = [
        NewSuppression(email=address, reason=reason)
        for address, reason in zip(("A@x.org", "a@X.org", "a@x.org"), reasons, strict=True)
    ]
    assert await import_batch(pool, batch, actor="tests") == 1
    assert await rows(pool, "SELECT address, reason::text FROM suppressions") == [("a@x.org", "complaint")]
