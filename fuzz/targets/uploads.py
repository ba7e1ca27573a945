"""Files over HTTP: recipients of campaigns as CSV and JSON lines, suppressions as CSV."""

from random import Random

from fuzz.arena import Arena
from fuzz.mutate import hostile_value, mutate
from fuzz.tally import Case
from fuzz.wire import as_json, exchange, json_of, request

_campaigns: dict[int, int] = {}
_LETTER = {"name": "Fuzz", "subject": "Hi", "text": "Hello {{ first_name|default('you') }}"}
_CSV = b'email,name,time_zone,first_name\nann@example.org,Ann,Europe/London,Ann\nbob@example.org,"B, b",,Bob\n'
_SUPPRESSIONS = b"email,reason,detail\nann@example.org,manual,asked\nbob@example.org,hard_bounce,\n"


async def attack(arena: Arena, random: Random, case: Case) -> None:
    """Upload one file."""
    if random.random() < 0.3:
        await _post(arena, random, case, "/v1/suppressions/import", "text/csv", csv(random, _SUPPRESSIONS))
        return
    campaign = _campaigns.get(arena.http)
    if campaign is None:
        headers = {**arena.auth, "content-type": "application/json"}
        _, answer = await exchange(arena.http, request("POST", "/v1/campaigns", headers=headers, body=as_json(_LETTER)))
        campaign = _campaigns[arena.http] = json_of(answer)["id"]
    path = f"/v1/campaigns/{campaign}/recipients"
    if random.random() < 0.5:
        await _post(arena, random, case, path, "text/csv", csv(random, _CSV))
    else:
        lines = [
            as_json({"email": f"p{n}@example.org", "x": hostile_value(random)}) for n in range(random.randint(1, 30))
        ]
        body = random.choice((b"\n", b"\r\n", b"\n\n", b"\r")).join(lines)
        await _post(arena, random, case, path, "application/x-ndjson", mutate(random, body))


def csv(random: Random, seed: bytes) -> bytes:
    """Lines of CSV, mutated; now and then many, or one without end."""
    match random.randrange(10):
        case 0:
            return seed + b"x@example.org" * random.choice((10_000, 100_000))
        case 1:
            return seed + b'"' * random.choice((1, 50_001)) + b"\n"
        case 2:
            return seed + b"".join(b"p%d@example.org,P,,x\n" % n for n in range(3000))
        case 3:
            return seed.decode().encode("utf-16")
        case 4:
            return b",".join(b"c%d" % n for n in range(5000)) + b"\n" + seed
        case _:
            return mutate(random, seed)


async def _post(arena: Arena, random: Random, case: Case, path: str, media_type: str, body: bytes) -> None:
    headers = {**arena.auth, "content-type": media_type}
    raw = request("POST", path, headers=headers, body=body)
    if random.random() < 0.2:
        raw = request("POST", path, headers={**headers, "content-length": str(len(body) + 10)}, body=body)
    patience_s = 20 if raw.endswith(body) and str(len(body)).encode() in raw else 2
    status, answer = await exchange(arena.http, raw, patience_s=patience_s)
    case.http(status, f"POST {path} {body[:400]!r} -> {answer[-300:]!r}" if status >= 500 else "")
