"""Every page and form of the dashboard, signed in and not."""

import re
from random import Random
from urllib.parse import quote, urlencode

from fuzz.arena import Arena
from fuzz.mutate import STRINGS, mutate
from fuzz.tally import Case
from fuzz.wire import exchange, request
from postroom.dashboard.endpoints import ENDPOINTS

_FIELDS = (
    "cursor",
    "state",
    "lane",
    "recipient",
    "q",
    "limit",
    "next",
    "sender",
    "reason",
    "since",
    "until",
    "to",
    "as",
)
_FORM = "application/x-www-form-urlencoded"
_sessions: dict[int, tuple[str, str]] = {}


async def attack(arena: Arena, random: Random, case: Case) -> None:
    """One request of a browser."""
    cookie, token = await open_session(arena)
    endpoint = random.choice([each for each in ENDPOINTS if each.path != "/sign-out"])  # the session is for all cases
    path = re.sub(r"\{[^}]*\}", lambda _: _segment(random), endpoint.path)
    fields = [(random.choice(_FIELDS), random.choice(STRINGS)[:2000]) for _ in range(random.choice((0, 1, 3)))]
    headers = {"cookie": cookie} if random.random() < 0.9 else {"cookie": mutate(random, b"a=b", 2).hex()}
    body = b""
    if endpoint.method == "POST":
        fields += [("token", token)] if random.random() < 0.8 else []
        body = urlencode(fields, errors="replace").encode()
        body = mutate(random, body, 2) if random.random() < 0.2 else body
        headers["content-type"] = _FORM
    elif fields:
        path = f"{path}?{urlencode(fields, errors='replace')}"
    raw = request(endpoint.method, path, headers=headers, body=body)
    status, answer = await exchange(arena.http, raw, patience_s=3)  # /live does not end
    case.http(status, f"{endpoint.method} {path[:200]} {body[:300]!r} -> {answer[-300:]!r}" if status >= 500 else "")


async def open_session(arena: Arena) -> tuple[str, str]:
    """The cookie of a session and the token of its forms."""
    if arena.http not in _sessions:
        body = urlencode({"key": arena.key}).encode()
        _, answer = await exchange(arena.http, request("POST", "/sign-in", headers={"content-type": _FORM}, body=body))
        found = re.search(rb"set-cookie: ([^;]+);", answer, re.IGNORECASE)
        cookie = found[1].decode() if found else ""
        _, shown = await exchange(arena.http, request("GET", "/", headers={"cookie": cookie}))
        token = re.search(rb'name="token" value="([^"]+)"', shown)
        _sessions[arena.http] = cookie, token[1].decode() if token else ""
    return _sessions[arena.http]


def _segment(random: Random) -> str:
    if random.random() < 0.8:
        return str(random.choice((1, 1, 2, 3, 7, 40, 2**62, 2**64)))
    return quote(random.choice(STRINGS)[:500], safe="") or "x"
