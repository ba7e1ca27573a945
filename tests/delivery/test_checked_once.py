"""A request is checked once per acceptance, on every way in."""

from collections import Counter
from email.message import EmailMessage
from typing import Any

import pytest
from tests.support.http import open_browser

from postroom.db.room import Room
from postroom.delivery import check
from postroom.delivery.send import send
from postroom.delivery.service import AcceptCombiner
from postroom.intake.smtp.submission import SubmittedEnvelope, read_submission
from postroom.post.mime import Attachment

FILE = {"filename": "a.txt", "content_type": "text/plain", "content": "aGVsbG8="}
MAIL: dict[str, Any] = {"to": ["ann@example.org"], "subject": "Hello", "text": "Hello Ann", "attachments": [FILE]}


@pytest.fixture
def checks(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Counts how often the attachments of a request were decoded, by the subject of the request."""
    counted: Counter[str] = Counter()
    decode = check._attachments

    def count(request: Any) -> Any:
        counted[request.subject] += 1
        return decode(request)

    monkeypatch.setattr(check, "_attachments", count)
    return counted


async def test_http_checks_a_request_once(room: Room, checks: Counter[str]) -> None:
    """The endpoint checks the body; neither the combiner nor the service decodes the attachments again."""
    browser = await open_browser(room, name="shop")
    assert (await browser.post("/v1/deliveries", json=MAIL)).status == 202
    batch = [{**MAIL, "subject": "First"}, {**MAIL, "subject": "Second"}]
    assert (await browser.post("/v1/deliveries/batch", json=batch)).status == 202
    assert checks == {"Hello": 1, "First": 1, "Second": 1}


async def test_send_checks_a_request_once(room: Room, checks: Counter[str]) -> None:
    """An application's own connection passes the same single check."""
    async with room.pool.acquire() as connection:
        await send(
            connection,
            to="ann@example.org",
            subject="Hello",
            text="Hello Ann",
            attachments=[Attachment(**FILE)],
            source="shop",
        )
    assert checks == {"Hello": 1}


async def test_smtp_submission_checks_a_request_once(room: Room, checks: Counter[str]) -> None:
    """The parser of the message checks each delivery of it."""
    message = EmailMessage()
    message["From"], message["To"], message["Subject"] = "shop@example.org", "ann@example.org", "Hello"
    message.set_content("Hello Ann")
    message.add_attachment(b"hello", maintype="text", subtype="plain", filename="a.txt")
    requests = read_submission(
        message.as_bytes(), SubmittedEnvelope("shop@example.org", ("ann@example.org",)), source="shop"
    )
    await AcceptCombiner(room.pool).accept_together(requests, key_id=None)
    assert checks == {"Hello": 1}
