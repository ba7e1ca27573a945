"""Upload of recipients in the dashboard: a form with a file, read in pieces, and a report of rejected lines."""

from collections.abc import AsyncIterator

import pytest
from tests.dashboard.test_campaigns import actions_of
from tests.support.campaigns import a_campaign, a_running_campaign
from tests.support.dashboard import Guest, open_guest, text_of
from tests.support.http import Response

from postroom.campaigns import service
from postroom.dashboard.file_form import MultipartReader
from postroom.db.room import Room

BOUNDARY = "----WebKitFormBoundaryabcdef"
CSV = (
    b"email,first_name\nada@example.org,Ada\nada-example,Bob\nADA@example.org,Ada\n"
    b"<script>alert(1)</script>,x\neve@example.org,Eve\n"
)


@pytest.fixture
async def guest(room: Room) -> Guest:
    return await open_guest(room)


def multipart(token: str, content: bytes, *, name: str = "people.csv") -> bytes:
    parts = (
        f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="token"\r\n\r\n{token}\r\n'
        f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="file"; filename="{name}"\r\n'
        "Content-Type: text/csv\r\n\r\n"
    )
    return parts.encode() + content + f"\r\n--{BOUNDARY}--\r\n".encode()


async def uploaded(guest: Guest, content: bytes, *, campaign: int = 1, name: str = "people.csv") -> Response:
    body = multipart(await guest.token("/"), content, name=name)
    return await sent(guest, body, campaign=campaign)


async def sent(guest: Guest, body: bytes, *, campaign: int = 1, **headers: str) -> Response:
    kind = {"content-type": f"multipart/form-data; boundary={BOUNDARY}", **headers}
    return await guest._ask("POST", f"/campaigns/{campaign}/upload", body, kind)


async def test_an_upload_stores_people_and_reports_the_rest(room: Room, guest: Guest) -> None:
    """The report counts all lines and names the rejected ones; a repeated upload adds no person."""
    await a_campaign(room.pool)
    page = await uploaded(guest, CSV)
    assert page.status == 200
    assert "Lines read 5 People added 2 Already stored 1 Suppressed 0 Rejected 2" in text_of(page)
    assert "3 email ada-example An email address must have an @-sign." in text_of(page)
    assert "Merge fields: {{ first_name }}" in text_of(page)
    assert b"data:text/csv;charset=utf-8,line%2Cfield%2Cmessage%2Cvalue%0A3%2Cemail" in page.body
    assert b"<script>alert" not in page.body
    assert "People added 0 Already stored 3" in text_of(await uploaded(guest, CSV))
    lines = b'{"email": "joe@example.org", "first_name": "Joe"}\n'
    assert "People added 1" in text_of(await uploaded(guest, lines, name="people.JSONL"))
    assert (await service.get_campaign(room.pool, 1)).total == 3
    assert await actions_of(room) == ["upload"] * 3


async def test_a_file_that_cannot_be_read_is_explained(room: Room, guest: Guest) -> None:
    """No file, a header without an address, and other encodings come back with the form."""
    await a_campaign(room.pool)
    for content, name, reason in (
        (b"", "", "choose a file"),
        (b"name\nAda\n", "a.csv", "email"),
        (b"email\nada@example.org\n\xff\xfe@example.org\n", "a.csv", "UTF-8"),
    ):
        page = await uploaded(guest, content, name=name)
        assert (name, page.status, reason in text_of(page)) == (name, 400, True)
    cancelled = await a_running_campaign(room.pool, 1)
    await service.cancel_campaign(room.pool, cancelled, actor="tests")
    assert (await uploaded(guest, CSV, campaign=cancelled)).status == 409
    assert (await uploaded(guest, CSV, campaign=99)).status == 404


async def test_an_upload_needs_the_token_before_its_file(room: Room, guest: Guest) -> None:
    """A wrong token, another site, and a key without the scope are refused; nothing of the file is read."""
    await a_campaign(room.pool)
    assert (await sent(guest, multipart("wrong", CSV))).status == 403
    token = await guest.token("/")
    assert (await sent(guest, multipart(token, CSV), sec_fetch_site="cross-site")).status == 403
    reader = await open_guest(room, "deliveries:read", "campaigns:read", name="reader")
    assert (await uploaded(reader, CSV)).status == 403
    assert (await service.get_campaign(room.pool, 1)).total == 0


BROKEN = (
    (b"", "it ended too early"),
    (f"--{BOUNDARY}--\r\n\r\n".encode(), "it has no file"),
    (f"--{BOUNDARY}\r\nContent-Disposition: form-data\r\n\r\nx".encode(), "a field has no name"),
    (f"--{BOUNDARY}\r\n".encode() + b"x" * 5000, "a field is too long"),
    (multipart("x", b"").partition(b"filename")[0], "it ended too early"),
    (f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="a"\r\n\r\n\r\n'.encode() * 30, "it has too many fields"),
)


async def test_a_broken_form_is_refused(room: Room, guest: Guest) -> None:
    """A body that is no form with a file is refused with the reason."""
    await a_campaign(room.pool)
    for body, reason in BROKEN:
        answer = await sent(guest, body)
        assert (reason, answer.status, reason in text_of(answer)) == (reason, 400, True)
    assert (await guest.post("/campaigns/1/upload", {"token": await guest.token("/")})).status == 415


@pytest.mark.parametrize("size", [1, 7, 64, 4096])
async def test_a_file_arrives_in_pieces_of_any_size(size: int) -> None:
    """The file is the same however the body is cut, also where it looks like a delimiter."""
    content = b"email\r\n--" + BOUNDARY[:-1].encode() + b"\r\n\r\nada@example.org\r\n-"
    body = multipart("secret", content)

    async def pieces() -> AsyncIterator[bytes]:
        for start in range(0, len(body), size):
            yield body[start : start + size]

    reader = MultipartReader(pieces(), f'multipart/form-data; boundary="{BOUNDARY}"')
    assert await reader.read_fields() == ({"token": "secret"}, "people.csv")
    assert b"".join([piece async for piece in reader.read_file()]) == content
