"""Every endpoint of openapi.json with values from its schema, some of them replaced."""

import re
from functools import lru_cache
from random import Random
from typing import Any
from urllib.parse import quote, urlencode

from fuzz.arena import Arena
from fuzz.mutate import STRINGS, at_home, hostile_value, mutate, mutate_value
from fuzz.tally import Case
from fuzz.wire import as_json, exchange, json_of, request

Operation = tuple[str, str, dict[str, Any]]
_KEPT_KEYS = 5
"""Keys that no case may revoke: the fuzzer and its independent client use the first."""

_documents: dict[int, dict[str, Any]] = {}


async def attack(arena: Arena, random: Random, case: Case) -> None:
    """Ask one endpoint."""
    document = await _document(arena)
    method, path, operation = random.choice(_operations(arena.http))
    target = _target(random, path, operation)
    if re.fullmatch(rf"/v1/keys/0*[0-{_KEPT_KEYS}]", target):
        return
    headers = _credentials(arena, random)
    body = b""
    content = operation.get("requestBody", {}).get("content", {})
    if content:
        media_type = random.choice(sorted(content))
        headers["content-type"] = media_type if random.random() < 0.95 else "text/plain; charset=utf-7"
        body = _body(random, content[media_type], document)
        if random.random() < 0.1 and "/senders" not in path:  # where a host is in the body, it stays on loopback
            body = mutate(random, body, 2)
    raw = request(method, target, headers=headers, body=body)
    status, answer = await exchange(arena.http, raw, patience_s=5)  # some endpoints wait for news
    case.http(status, f"{method} {target[:200]} {body[:300]!r} -> {answer[-300:]!r}" if status >= 500 else "")


async def _document(arena: Arena) -> dict[str, Any]:
    if arena.http not in _documents:
        raw = b""
        while not json_of(raw):
            _, raw = await exchange(arena.http, request("GET", "/openapi.json", headers=arena.auth))
        _documents[arena.http] = json_of(raw)
    return _documents[arena.http]


@lru_cache(maxsize=4)
def _operations(port: int) -> list[Operation]:
    found = _documents[port]["paths"].items()
    methods = ("get", "post", "put", "patch", "delete")
    return [(m.upper(), path, item[m]) for path, item in sorted(found) for m in methods if m in item]


def _credentials(arena: Arena, random: Random) -> dict[str, str]:
    chance = random.random()
    if chance < 0.88:
        return dict(arena.auth)
    return {} if chance < 0.94 else {"authorization": random.choice(("Bearer pr_x", "Basic Og==", "Bearer"))}


def _target(random: Random, path: str, operation: dict[str, Any]) -> str:
    def value(_found: re.Match[str]) -> str:
        if random.random() < 0.8:
            return str(random.choice((1, 1, 2, 3, 7, 40, 2**62)))
        return quote(random.choice(STRINGS)[:500], safe="") or "x"

    filled = re.sub(r"\{[^}]*\}", value, path)
    parameters = [each for each in operation.get("parameters", []) if each.get("in") == "query"]
    chosen = [each for each in parameters if random.random() < 0.4]
    query = [(each["name"], _query_value(random, each.get("schema", {}))) for each in chosen]
    return f"{filled}?{urlencode(query, errors='replace')}" if query else filled


def _query_value(random: Random, schema: dict[str, Any]) -> str:
    if random.random() < 0.6:
        return str(_valid(random, schema, {}, 0))
    value = hostile_value(random)
    return (value if isinstance(value, str) else as_json(value).decode())[:2000]


def _body(random: Random, described: dict[str, Any], document: dict[str, Any]) -> bytes:
    components = document.get("components", {}).get("schemas", {})
    value = described.get("example")
    examples = [each["value"] for each in described.get("examples", {}).values() if "value" in each]
    if value is None and examples and random.random() < 0.5:
        value = random.choice(examples)
    if value is None:
        value = _valid(random, described.get("schema", {}), components, 0)
    for _ in range(random.randint(0, 3)):
        value = mutate_value(random, value)
    return as_json(at_home(value))


def _valid(random: Random, schema: dict[str, Any], components: dict[str, Any], depth: int) -> Any:
    """A value that the schema probably allows."""
    if "$ref" in schema:
        return _valid(random, components.get(schema["$ref"].rpartition("/")[2], {}), components, depth)
    if "const" in schema:
        return schema["const"]
    for key in ("enum", "examples"):
        if schema.get(key):
            return random.choice(schema[key])
    for key in ("anyOf", "oneOf", "allOf"):
        if schema.get(key):
            return _valid(random, random.choice(schema[key]), components, depth)
    return _of_type(random, schema, components, depth)


def _of_type(random: Random, schema: dict[str, Any], components: dict[str, Any], depth: int) -> Any:
    kind = schema.get("type")
    if kind == "object" and depth < 5:
        required = schema.get("required", [])
        properties = schema.get("properties", {})
        chosen = [name for name in properties if name in required or random.random() < 0.4]
        return {name: _valid(random, properties[name], components, depth + 1) for name in chosen}
    if kind == "array" and depth < 5:
        return [_valid(random, schema.get("items", {}), components, depth + 1) for _ in range(random.randint(0, 3))]
    if kind == "string":
        return _string(random, schema)
    simple = {"integer": random.choice((1, 1, 2, 50)), "number": 0.5, "boolean": random.random() < 0.5, "null": None}
    return simple.get(str(kind), {})


def _string(random: Random, schema: dict[str, Any]) -> str:
    if schema.get("format") == "date-time":
        return random.choice(("2030-01-31T09:00:00Z", "0001-01-01T00:00:00Z", "9999-12-31T23:59:59+14:00"))
    return random.choice(("ann@example.org", "Europe/London", "news", "2030-01-31", "09:00", "en", "Hello", "1"))
