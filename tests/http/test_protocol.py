"""Requests rejected before they reach a handler."""

import asyncio
import base64
import json
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import aiohttp
import asyncpg
import pytest
from tests.support.dashboard import captured
from tests.support.http import Browser, Response, call, open_browser, served

from postroom.db.room import Room
from postroom.http.asgi import HttpApplication, build_app
from postroom.http.auth import Authenticator
from postroom.http.problems import answer_to
from postroom.runtime.endpoint import Answer, Call, Endpoint, Site
from postroom.settings import Settings

MAIL = {"to": "ann@example.org", "subject": "s", "text": "t"}


def assert_problem(response: Response, status: int) -> dict[str, Any]:
    document: dict[str, Any] = response.json
    assert response.status == status
    assert response.headers["content-type"] == "application/problem+json"
    assert set(document) == {"type", "title", "status", "detail", "code", "errors"}
    assert document["status"] == status
    return document


@pytest.mark.parametrize(
    "path", ["/", "/v1", "/v1/nothing", "/v1/deliveries/", "/v1/deliveries/x", "/v1/deliveries/-1"]
)
async def test_an_unknown_path_is_not_found(browser: Browser, path: str) -> None:
    """Unknown paths answer 404 with a problem document."""
    assert_problem(await browser.get(path), 404)


@pytest.mark.parametrize("path", [f"/v1/deliveries/{2**63}", "/v1/deliveries/" + "9" * 300, "/v1/inbox/" + "9" * 40])
async def test_an_id_beyond_the_database_is_not_found(browser: Browser, path: str) -> None:
    """An id that no row can have is a row that is not there."""
    assert_problem(await browser.get(path), 404)


async def test_a_wrong_method_names_the_right_ones(browser: Browser) -> None:
    """405 carries Allow."""
    response = await browser.ask("PATCH", "/v1/deliveries")
    assert_problem(response, 405)
    assert response.headers["allow"] == "GET, HEAD, POST"
    assert_problem(await browser.ask("BREW", "/healthz"), 405)


@pytest.mark.parametrize(
    "headers",
    [
        {"content-type": "text/plain"},
        {"content-type": "application/x-www-form-urlencoded"},
        {"content-type": "application/json; charset=latin-1"},
        {},
        {"content-type": "application/json", "content-encoding": "gzip"},
    ],
)
async def test_only_plain_json_is_read(browser: Browser, headers: dict[str, str]) -> None:
    """Another type, charset or coding of the body answers 415."""
    response = await browser.post("/v1/deliveries", content=b"{}", headers=headers)
    assert_problem(response, 415)
    assert response.fields[0] in ("Content-Type", "Content-Encoding")


@pytest.mark.parametrize("kind", ["application/json;charset=UTF-8", "application/json", "application/vnd.post+json"])
async def test_json_by_any_of_its_names_is_read(browser: Browser, kind: str) -> None:
    """A charset of UTF-8 and a +json suffix are JSON as well."""
    response = await browser.post("/v1/deliveries", json=MAIL, headers={"content-type": kind})
    assert response.status == 202


@pytest.mark.parametrize(
    "accept,status",
    [
        ("text/html", 406),
        ("application/json;q=0", 406),
        ("application/*", 200),
        ("text/html, */*;q=0.1", 200),
        ("application/json; q=0.5", 200),
        ("", 200),
    ],
)
async def test_unacceptable_media_type_is_406(browser: Browser, accept: str, status: int) -> None:
    """An Accept that leaves no room for the answer is 406."""
    response = await browser.get("/v1/deliveries", headers={"accept": accept})
    assert response.status == status
    if status == 406:
        assert_problem(response, 406)


@pytest.mark.parametrize("announced", [True, False])
async def test_a_large_body_is_refused_before_it_is_read(room: Room, announced: bool) -> None:  # noqa: FBT001 - a case
    """Beyond POSTROOM_MAX_BODY_MB a request is 413, by its announcement or by its bytes; at the limit it is read."""
    small = replace(room, settings=Settings(max_body_mb=1))
    browser = await open_browser(room, app=build_app(small))
    headers = {"content-type": "application/json", **({"content-length": str(2**20 + 1)} if announced else {})}
    body = b"" if announced else b" " * (2**20 + 1)
    response = await browser.post("/v1/deliveries", content=body, headers=headers)
    assert_problem(response, 413)
    assert response.fields == ["body"]
    at_limit = await browser.post("/v1/deliveries", content=b" " * 2**20, headers={"content-type": "application/json"})
    assert_problem(at_limit, 400)


class Unread:
    """A request whose body must not be read."""

    def __init__(self) -> None:
        self.status = 0

    async def receive(self) -> dict[str, Any]:
        raise AssertionError("the body was read")

    async def send(self, message: Any) -> None:
        self.status = self.status or message["status"]


@pytest.mark.parametrize(
    "method,path,status",
    [
        ("GET", "/healthz", 200),
        ("POST", "/v1/feedback/ses", 404),
        ("POST", "/v1/feedback/sendgrid", 404),
        ("POST", "/v1/feedback/mailgun", 404),
        ("POST", "/v1/feedback/postmark", 404),
        ("POST", "/v1/deliveries", 401),
    ],
)
async def test_no_body_is_read_for_a_stranger(room: Room, method: str, path: str, status: int) -> None:
    """Without a key, or for a provider that is not configured, the answer comes before the body."""
    request = Unread()
    headers = [(b"content-length", b"35000000"), (b"content-type", b"application/json")]
    scope = {"type": "http", "method": method, "path": path, "query_string": b"", "headers": headers}
    await build_app(room)(scope, request.receive, request.send)
    assert request.status == status


async def test_a_response_without_content_has_no_body(room: Room) -> None:
    """A client would read the bytes after a 204 as its next response."""
    browser = await open_browser(room)
    message = await captured(room.pool, b"Subject: Hello\r\n\r\nHello.\r\n")
    response = await browser.ask("DELETE", f"/v1/inbox/{message}")
    assert (response.status, response.body) == (204, b"")
    assert not {"content-length", "content-type"} & set(response.headers)


@pytest.mark.parametrize("path", ["/v1/keys", "/v1/login-codes"])
async def test_most_bodies_may_have_one_megabyte(room: Room, path: str) -> None:
    """POSTROOM_MAX_BODY_MB is for mail and batches; every other body is small."""
    configured = replace(room, settings=Settings(postmark_secret="user:secret"))
    browser = await open_browser(room, app=build_app(configured))
    headers = {"content-type": "application/json", "content-length": str(2**20 + 1)}
    response = await browser.post(path, headers=headers)
    assert_problem(response, 413)
    assert "1 MB" in response.json["detail"]


async def test_a_body_in_pieces_is_put_together_and_counted(room: Room) -> None:
    """Chunks are joined; too many of them are too large."""
    small = replace(room, settings=Settings(max_body_mb=1))
    browser = await open_browser(room, app=build_app(small))
    assert await _in_pieces(browser, [b'{"to":"ann@exam', b'ple.org","subject":"s","te', b'xt":"t"}']) == 202
    assert await _in_pieces(browser, [b" " * 2**19] * 3) == 413
    assert await _in_pieces(browser, [b"{"], cut=True) == 400


async def _in_pieces(browser: Browser, pieces: list[bytes], *, cut: bool = False) -> int:
    headers = {"authorization": f"Bearer {browser.key}", "content-type": "application/json"}
    raw = [(name.encode(), value.encode()) for name, value in headers.items()]
    scope = {"type": "http", "method": "POST", "path": "/v1/deliveries", "query_string": b"", "headers": raw}
    last = len(pieces) - 1
    messages: list[dict[str, Any]] = [
        {"type": "http.request", "body": piece, "more_body": cut or index < last} for index, piece in enumerate(pieces)
    ]
    statuses = []

    async def receive() -> dict[str, Any]:
        return messages.pop(0) if messages else {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        statuses.append(message.get("status"))

    await browser.app(scope, receive, send)
    return int(statuses[0])


async def test_every_answer_names_its_request(browser: Browser) -> None:
    """A plain X-Request-Id comes back; anything else is replaced."""
    assert (await browser.get("/healthz", headers={"x-request-id": "abc-1"})).headers["x-request-id"] == "abc-1"
    for odd in ("a b", "x" * 65, '"><script>'):
        answered = (await browser.get("/healthz", headers={"x-request-id": odd})).headers["x-request-id"]
        assert answered != odd
        assert len(answered) == 16


async def test_head_is_get_without_the_body(browser: Browser) -> None:
    """HEAD answers what GET would, and nothing after the headers."""
    head, get = await browser.ask("HEAD", "/healthz"), await browser.get("/healthz")
    assert (head.status, head.body) == (200, b"")
    assert head.headers["content-length"] == str(len(get.body))


@pytest.mark.parametrize(
    "query,field",
    [
        ("limit=0", "limit"),
        ("limit=201", "limit"),
        ("limit=ten", "limit"),
        ("limit=1.0", "limit"),
        ("limit=" + "9" * 30, "limit"),
        ("limit=1&limit=2", "limit"),
        ("status=lost", "status"),
        ("created_from=2030", "created_from"),
        ("created_from=2030-01-01T00:00:00", "created_from"),
        ("created_before=1700000000", "created_before"),
        ("cursor=!!", "cursor"),
        ("cursor=WyJhIl0", "cursor"),
        ("created_from=9999-12-31T23:59:59-23:00", "created_from"),
        ("created_before=0001-01-01T00:00:00%2B23:00", "created_before"),
        ("recipient=%00", "recipient"),
        ("custom_data=nonsense", "custom_data"),
        ("custom_data=[1]", "custom_data"),
        ("custom_data=%7B%22a%22:%22%5Cu0000%22%7D", "custom_data"),
        ("colour=red", "colour"),
        ("recipient=%FF", "query"),
    ],
)
async def test_a_bad_query_names_its_parameter(browser: Browser, query: str, field: str) -> None:
    """Query parameters are strict: types, bounds, names, once each."""
    response = await browser.get(f"/v1/deliveries?{query}")
    assert_problem(response, 400)
    assert response.fields == [field]


@pytest.mark.parametrize(
    "path,position",
    [
        ("/v1/deliveries", [2**70]),
        ("/v1/deliveries", [-1]),
        ("/v1/inbox", [2**64]),
        ("/v1/keys", [2**63]),
        ("/v1/dead-letters", ["9999-12-31T23:59:59-23:00", 1]),
        ("/v1/dead-letters", ["2030-01-01T00:00:00Z", 2**63]),
    ],
)
async def test_a_forged_cursor_is_never_our_fault(browser: Browser, path: str, position: list[Any]) -> None:
    """For any text as cursor, the response is a page or a 4xx."""
    cursor = base64.urlsafe_b64encode(json.dumps(position).encode()).decode().rstrip("=")
    assert (await browser.get(f"{path}?cursor={cursor}")).status in (200, 400)


async def test_a_refusal_does_not_repeat_megabytes(browser: Browser) -> None:
    """Quoted values are shortened, and long lists of errors are cut."""
    long_name = await browser.post("/v1/deliveries", json={**MAIL, "headers": {"x" * 100_000: "a\n"}})
    assert long_name.status == 400
    many = await browser.post("/v1/deliveries/batch", json=[{**MAIL, "to": "x"}] * 1000)
    assert (many.status, len(many.fields)) == (400, 100)
    assert len(long_name.body) + len(many.body) < 40_000


async def test_parameters_where_none_are_known_are_refused(browser: Browser) -> None:
    """An endpoint without parameters says so."""
    response = await browser.get("/v1/templates?page=2")
    assert_problem(response, 400)
    assert response.fields == ["page"]


@pytest.mark.parametrize(
    "path,method", [("/v1/deliveries", "POST"), ("/v1/deliveries/batch", "POST"), ("/v1/login-codes", "POST")]
)
@pytest.mark.parametrize("key", ["", " ", "a b", "é", "x" * 256, "a\tb"])
async def test_a_bad_idempotency_key_names_the_header(browser: Browser, path: str, method: str, key: str) -> None:
    """The header is 1 to 255 visible characters."""
    response = await browser.ask(method, path, json=MAIL, headers={"idempotency-key": key})
    assert_problem(response, 400)
    assert response.fields == ["Idempotency-Key"]


async def test_a_bug_tells_nothing(room: Room, capsys: pytest.CaptureFixture[str]) -> None:
    """An unexpected exception is 500 without its cause; the log says where, not what."""

    async def broken(_call: Call) -> Answer:
        raise KeyError("ann@example.org's secret")

    endpoint = Endpoint(method="GET", path="/v1/broken", handler=broken, summary="Breaks.", scope=None, tag="tests")
    app = HttpApplication(room, [endpoint], auth=Authenticator(room.pool))
    response = await call(app, "GET", "/v1/broken", body=b"", headers={})
    assert_problem(response, 500)
    assert b"secret" not in response.body
    assert b"KeyError" not in response.body
    written = capsys.readouterr()
    assert "KeyError" in written.out + written.err
    assert "secret" not in written.out + written.err


async def test_a_lost_database_is_not_our_fault(room: Room) -> None:
    """Without its database the API answers 503, is not ready, and is still alive and measured."""
    browser = await open_browser(room)
    await browser.get("/v1/deliveries")
    await room.pool.close()
    for path in ("/v1/deliveries", "/readyz"):
        assert_problem(await browser.get(path), 503)
    for path in ("/healthz", "/metrics"):
        assert (await browser.get(path)).status == 200


async def test_a_site_answers_unknown_paths_in_its_form(room: Room) -> None:
    """A site beside the API adds endpoints with their tools, and may answer the paths that no endpoint has."""

    async def show(call: Call) -> Answer:
        return Answer(call.tool(str).encode(), media_type="text/plain")

    def refuse(call: Call, _error: Exception, problem: Answer) -> Answer | None:
        return None if "authorization" in call.headers else Answer(b"a page", problem.status, "text/html")

    page = Endpoint(method="GET", path="/page", handler=show, summary="A page.", scope=None, tag="pages", is_page=True)
    browser = await open_browser(room, app=build_app(room, sites=[Site([page], ["the tool"], refuse)]))
    assert (await browser.get("/page?x=1", headers={"accept": "image/png"})).body == b"the tool"
    assert (await Browser(browser.app).get("/nothing")).body == b"a page"
    assert_problem(await browser.get("/nothing"), 404)


async def test_a_stream_ends_when_the_client_leaves(room: Room) -> None:
    """The server ignores what is sent to a client that has left, so the application stops the stream itself."""
    started, ended = asyncio.Event(), asyncio.Event()

    async def events() -> AsyncIterator[bytes]:
        try:
            yield b"first"
            started.set()
            await asyncio.Event().wait()
        finally:
            ended.set()

    async def show(_call: Call) -> Answer:
        return Answer(events(), media_type="text/event-stream")

    feed = Endpoint(method="GET", path="/feed", handler=show, summary="A feed.", scope=None, tag="pages", is_page=True)
    async with (
        served(build_app(room, more=[feed])) as url,
        asyncio.timeout(60),
        aiohttp.ClientSession(url) as client,
    ):
        async with client.get("/feed") as response:
            assert await response.content.readexactly(5) == b"first"
            await started.wait()
        await ended.wait()


async def test_two_endpoints_cannot_share_a_place(room: Room) -> None:
    """The same method of the same path listed twice stops the start."""
    taken = build_app(room).endpoints[0]
    with pytest.raises(ValueError, match="listed twice"):
        build_app(room, more=[taken])


async def test_the_application_speaks_lifespan_and_no_websocket(browser: Browser) -> None:
    """A server's start and stop are acknowledged; a websocket is closed."""
    messages = [{"type": "lifespan.startup"}, {"type": "lifespan.shutdown"}]
    sent: list[str] = []

    async def receive() -> Any:
        return messages.pop(0)

    async def send(message: Any) -> None:
        sent.append(message["type"])

    await browser.app({"type": "lifespan"}, receive, send)
    await browser.app({"type": "websocket"}, receive, send)
    assert sent == ["lifespan.startup.complete", "lifespan.shutdown.complete", "websocket.close"]


async def test_behind_https_answers_say_so(room: Room, browser: Browser) -> None:
    """Strict-Transport-Security is sent only with an https public URL."""
    public = replace(room, settings=Settings(public_url="https://post.example.org"))
    answer = await Browser(build_app(public)).get("/healthz")
    assert answer.headers["strict-transport-security"] == "max-age=31536000"
    assert "strict-transport-security" not in (await browser.get("/healthz")).headers


@pytest.mark.parametrize("error", [asyncpg.DeadlockDetectedError("x"), asyncpg.DiskFullError("x")])
def test_an_error_of_the_database_that_passes_asks_to_try_again(error: asyncpg.PostgresError) -> None:
    """The transaction was rolled back: 503 with Retry-After, and not a bug of ours."""
    answer = answer_to(error)
    assert answer is not None
    assert (answer.status, answer.headers["retry-after"]) == (503, "1")
