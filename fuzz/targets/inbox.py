"""Hostile captured mail, of which every page, tab and endpoint of the inbox and its delivery is opened."""

import json
from random import Random
from typing import Any

from fuzz.arena import Arena
from fuzz.mutate import STRINGS
from fuzz.tally import Case
from fuzz.targets.dashboard import open_session
from fuzz.wire import as_json, exchange, request

FRAGMENTS = (
    *("-", "--a ", "/* ", "background:", "display ", "a{", "a{}", "a{b:c}", "@media (", "@media ({", "url(", "{", "{{"),
    *("{{ ", "{%", "${a", "&lt;", '"', "'", "<", "<b>", "<p>", "<a href=x>y</a>", "<p style='color:red'>x</p>", "<!--"),
    *("<p title='x'>x</p>", "<img src=cid:a>", "<img src='data:image/png;base64,aaaa'>", "<![CDATA[", "<table>"),
    *("=?a?q? ", "=?a?q?x?=", "=?", "(", "\\", ";", ",", "<a@b.example>,", "http://a.example/{{ ", "https://", "a."),
    *("é", "\u202e", "😀", "\u2028", "\t"),
)
PLACES = ("{}", "<style>{}</style><p>x", "<p style='{}'>x", "<a href='{}'>x</a>", "<body bgcolor='{}'>x", "<style>{}")
VIEWS = ("html", "text", "source", "headers", "checks")


async def attack(arena: Arena, random: Random, case: Case) -> None:
    """One mail: accepted, captured, and opened everywhere."""
    to = f"f{random.randrange(2**60)}@example.org"
    status, made = await _call(arena, "POST", "/v1/deliveries", _mail(random, to))
    case.http(status, f"POST /v1/deliveries -> {made!r:.300}" if status >= 500 else "")
    if status != 202:
        return
    status, found = await _call(arena, "GET", f"/v1/inbox/wait?to={to}&timeout=30")
    case.http(status, f"GET /v1/inbox/wait -> {found!r:.300}" if status >= 500 else "")
    if status == 200:
        cookie, _token = await open_session(arena)
        for path in _paths(found["id"], made["id"]):
            headers = {"authorization": f"Bearer {arena.key}"} if path.startswith("/v1/") else {"cookie": cookie}
            status, answer = await exchange(arena.http, request("GET", path, headers=headers), patience_s=60)
            case.http(status, f"{case.name} GET {path} -> {answer[-300:]!r}" if status >= 500 else "")


def _paths(message: int, delivery: int) -> list[str]:
    one = f"/inbox/{message}"
    return [
        "/inbox",
        "/inbox?query=a",
        *(f"{one}?view={view}" for view in VIEWS),
        *(
            f"{one}/preview",
            f"{one}/preview?dark=1",
            f"{one}/raw",
            f"{one}/attachments/1",
            f"{one}/attachments/1?open=1",
        ),
        *(f"/v1/inbox/{message}", f"/v1/inbox/{message}/checks", f"/v1/inbox/{message}/raw", "/v1/inbox"),
        *(f"/deliveries/{delivery}", f"/deliveries/{delivery}/preview", f"/deliveries/{delivery}/source"),
        f"/v1/deliveries/{delivery}",
    ]


async def _call(arena: Arena, method: str, path: str, body: Any = None) -> tuple[int, Any]:
    headers = {"authorization": f"Bearer {arena.key}", "content-type": "application/json"}
    raw = b"" if body is None else as_json(body)
    status, answer = await exchange(arena.http, request(method, path, headers=headers, body=raw), patience_s=60)
    try:
        return status, json.loads(answer.partition(b"\r\n\r\n")[2])
    except ValueError:
        return status, answer


def _mail(random: Random, to: str) -> dict[str, Any]:
    mail: dict[str, Any] = {"to": [to], "subject": random.choice(("x", "=?a?q? " * 100, random.choice(STRINGS)[:900]))}
    mail["subject"] = mail["subject"].replace("\r", "").replace("\n", "") or "x"
    if random.random() < 0.8:
        mail["html"] = random.choice(PLACES).replace("{}", _repeated(random, 1_000_000))
    if random.random() < 0.5 or "html" not in mail:
        mail["text"] = _repeated(random, 1_000_000)
    if random.random() < 0.3:
        mail["headers"] = {"List-X": _repeated(random, 50_000).strip() or "x"}
    if random.random() < 0.3:
        content = {"filename": _repeated(random, 200), "content_type": "text/html", "content": "PHA+eA=="}
        mail["attachments"] = [content]
    return mail


def _repeated(random: Random, most: int) -> str:
    """One fragment, or a few in turn, up to some size."""
    unit = "".join(random.choices(FRAGMENTS, k=random.choice((1, 1, 2, 3))))
    size = random.choice((100, 5_000, 60_000, most))
    return unit * (min(size, most) // len(unit.encode()))
