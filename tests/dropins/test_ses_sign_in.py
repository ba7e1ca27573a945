"""The SES interface holds little for clients whose signature is not verified, and tells them nothing."""

import asyncio
import hashlib
import tracemalloc
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime

import aiohttp
import msgspec
import pytest
from structlog.testing import capture_logs
from tests.support.http import Browser, Response, served
from tests.support.ses import KEY_999_999, SIMPLE, TO, Shop, app_of, client_to, opened, pair_of

from postroom.db.room import Room
from postroom.dropins.ses import store
from postroom.http import service as keys
from postroom.http.asgi import build_app
from postroom.http.auth import WRONG_KEYS, Authenticator
from postroom.runtime.aws import AwsCredentials, sign

PATH = "/v2/email/outbound-emails"
LARGE = {"Subject": {"Data": "Hello"}, "Body": {"Text": {"Data": "Hello, Ada. " * 20_000}}}
STRANGER = AwsCredentials("PR000000000000000001", "guessed")


@pytest.fixture
async def shop(room: Room) -> AsyncIterator[Shop]:
    async with opened(room) as one:
        yield one


def old_pair_of(shop: Shop) -> AwsCredentials:
    """The pair that release 0.1.0 printed."""
    return replace(pair_of(shop.row), access_key_id=f"PR{shop.row.id:018X}")


def body_of(content: object = SIMPLE) -> bytes:
    return msgspec.json.encode({"Destination": TO, "Content": {"Simple": content}})


def signed(credentials: AwsCredentials, body: bytes, **extra: str) -> dict[str, str]:
    headers = {name.replace("_", "-"): value for name, value in extra.items()}
    added = sign(
        "POST",
        f"http://localhost{PATH}",
        headers,
        body,
        credentials=credentials,
        region="eu-central-1",
        service="ses",
        now=datetime.now(UTC),
    )
    return {"host": "localhost", "content-length": str(len(body)), **headers, **added}


@dataclass(slots=True)
class Upload:
    """A body in chunks that counts how many were asked for."""

    chunks: int
    taken: int = 0

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        if self.taken == self.chunks:
            raise StopIteration
        self.taken += 1
        return bytes(64 * 1024)


def error_of(response: Response) -> tuple[int, str, object]:
    return response.status, response.headers["x-amzn-errortype"], response.json


async def count(shop: Shop) -> int:
    return int(await shop.room.pool.fetchval("SELECT count(*) FROM deliveries"))


async def test_a_body_of_a_stranger_is_not_held(shop: Shop) -> None:
    """A guessed access key id and a wrong signature make the process hold 64 kB, not the body."""
    browser = Browser(app_of(shop.room))
    await browser.post(PATH, content=body_of(), headers=signed(STRANGER, b""))  # imports and caches
    tracemalloc.start()
    try:
        response = await browser.post(PATH, content=iter(Upload(320)), headers=signed(STRANGER, b""))
        _now, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert response.status == 403
    assert peak < 1024 * 1024  # of 20 MB


async def test_a_body_whose_hash_is_signed_is_read_after_the_signature_was_verified(shop: Shop) -> None:
    """A wrong signature over `X-Amz-Content-SHA256` is refused without reading the body."""
    upload = Upload(3)
    headers = signed(STRANGER, b"x", x_amz_content_sha256=hashlib.sha256(b"x").hexdigest())
    response = await Browser(app_of(shop.room)).post(PATH, content=iter(upload), headers=headers)
    assert response.status == 403
    assert upload.taken == 0


@pytest.mark.parametrize("announced, status", [(body_of(LARGE), 200), (b"another body", 403)])
async def test_the_signed_hash_must_be_that_of_the_body(shop: Shop, announced: bytes, status: int) -> None:
    """A client that signs the hash may send any body with this hash, and no other, whatever its access key id is."""
    headers = signed(old_pair_of(shop), announced, x_amz_content_sha256=hashlib.sha256(announced).hexdigest())
    response = await Browser(app_of(shop.room)).post(PATH, content=body_of(LARGE), headers=headers)
    assert response.status == status
    assert await count(shop) == (status == 200)


async def test_a_pair_of_release_0_1_0_still_sends(shop: Shop) -> None:
    """A guessable access key id sends small mail at once, and large mail when the library repeats the call."""
    client = client_to(shop.url, old_pair_of(shop), attempts=2)
    for content in (SIMPLE, LARGE):
        await shop.send(client, Destination=TO, Content={"Simple": content})
    client.close()
    assert await count(shop) == 2


async def test_a_large_body_under_a_guessable_id_is_expected_once(shop: Shop) -> None:
    """Each verified request lets one more request with as many bytes be read; other sizes stay refused."""
    browser, pair = Browser(app_of(shop.room)), old_pair_of(shop)
    bodies = [body_of(LARGE), body_of(LARGE), body_of(LARGE) + b" ", body_of(LARGE)]
    statuses = []
    for number, body in enumerate(bodies):
        headers = {**signed(pair, body), "amz-sdk-invocation-id": str(number // 3), "content-length": str(len(body))}
        statuses.append((await browser.post(PATH, content=body, headers=headers)).status)
    assert statuses == [503, 200, 503, 503]
    assert await count(shop) == 1


async def test_a_number_without_a_key_is_answered_as_a_wrong_signature(shop: Shop) -> None:
    """Numbers of keys cannot be found by trying."""
    browser = Browser(app_of(shop.room))
    wrong = replace(old_pair_of(shop), secret_access_key="guessed")
    nobody = replace(wrong, access_key_id=f"PR{KEY_999_999.id:018X}")
    answers = [await browser.post(PATH, content=body_of(), headers=signed(pair, body_of())) for pair in (wrong, nobody)]
    assert error_of(answers[0]) == error_of(answers[1])
    assert answers[0].status == 403


@pytest.mark.parametrize("access_key_id", [None, "EXAMPLEKEY"], ids=["known", "unknown"])
async def test_a_wrong_signature_is_no_error_of_ours(shop: Shop, access_key_id: str | None) -> None:
    """A refused request is not logged as an error and does not count as a use of the key."""
    wrong = replace(old_pair_of(shop), secret_access_key="guessed")
    pair = replace(wrong, access_key_id=access_key_id or wrong.access_key_id)
    with capture_logs() as logs:
        response = await Browser(app_of(shop.room)).post(PATH, content=body_of(), headers=signed(pair, body_of()))
    assert response.status == 403
    assert [entry for entry in logs if entry["log_level"] == "error"] == []
    (row,), _cursor = await keys.list_keys(shop.room.pool)
    assert row.last_used_at is None


async def test_wrong_signatures_count_against_the_address(shop: Shop) -> None:
    """They count as wrong API keys do, and the counter is the same one."""
    auth = Authenticator(shop.room.pool)
    async with served(build_app(shop.room, auth=auth)) as url, aiohttp.ClientSession() as client:
        for _ in range(WRONG_KEYS):
            async with client.post(url + PATH, data=b"", headers=signed(STRANGER, b"")) as response:
                assert response.status == 403
    assert auth.wrong.wait_s("127.0.0.1") > 0


async def test_a_recorded_request_is_not_another_mail(shop: Shop) -> None:
    """A request that is sent again with an invocation id of its own is refused while its signature is valid."""
    browser, body = Browser(app_of(shop.room)), body_of()
    headers = signed(pair_of(shop.row), body)
    given = [{}, {"amz-sdk-invocation-id": "a"}, {"amz-sdk-invocation-id": "b"}, {}]
    answers = await asyncio.gather(*(browser.post(PATH, content=body, headers={**headers, **more}) for more in given))
    assert sorted(answer.status for answer in answers) in ([200, 200, 429, 429], [200, 429, 429, 429])
    assert {answer.headers["x-amzn-errortype"] for answer in answers if answer.status == 429} == {
        "TooManyRequestsException"
    }
    assert await count(shop) == 1


async def test_signatures_that_have_expired_are_deleted(shop: Shop) -> None:
    """The table holds ten minutes, during which a signature can be valid."""
    pool = shop.room.pool
    await pool.execute(
        "INSERT INTO ses_signatures (used_at, signature, call_hash) VALUES (now() - interval '9 minutes', 'a', ''), "
        "(now() - interval '11 minutes', 'b', '')"
    )
    assert await store.drop_signatures(pool) == 1
    assert await pool.fetchval("SELECT signature FROM ses_signatures") == b"a"
