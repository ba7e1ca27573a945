"""Letters: drafts, previews, lint, test mails and variables of templates."""

from random import Random
from typing import Any

from fuzz.arena import Arena
from fuzz.mutate import TOKENS, hostile_value, mutate
from fuzz.tally import Case
from fuzz.wire import as_json, exchange, json_of, request

_PIECES = (
    "{{ first_name }}",
    "{{ x|default('y') }}",
    "{% for n in range(99999) %}",
    "{% endfor %}",
    "{% if email %}",
    "{% endif %}",
    "{% set a = 'x' * 60000000 %}",
    "{% set a = a ~ a ~ a ~ a %}",
    "{{ a|length }}",
    "{{ a }}",
    "{# c #}",
    "{{ [1] * 99999 }}",
    "{% macro m(n) %}{{ m(n) }}{% endmacro %}{{ m(1) }}",
    "{% include 'x' %}",
    "{% extends 'x' %}",
    "{{ 'x'|replace('x', 'xx' * 9999) }}",
    "{{ 2 ** 9999 }}",
    "{{ 1 / 0 }}",
    "{{ email|upper|list|join('z' * 9999) }}",
    "{{ self }}",
    "{{ loop }}",
    "{{ [[[[[[1]]]]]]|tojson }}",
    "<style>p{color:red}</style>",
    "<p style='",
    "<a href='{{ x }}'>",
    "<a href=https://example.org>",
    "</p>",
    "<table><tr>",
    "<!--",
    "<script>",
    "<b>" * 300,
    "{% raw %}",
    "{{ unsubscribe_url }}",
    "&#123;&#123; x }}",
    "prt0x",
    "prx0x",
    "\u202e",
    "🦊",
    "x" * 5000,
)


async def attack(arena: Arena, random: Random, case: Case) -> None:
    """Write a campaign and look at it, or preview a template of the catalog."""
    if random.random() < 0.15:
        variables = {"name": hostile_value(random), "code": hostile_value(random), "x": hostile_value(random)}
        template = random.choice(("login-codes", "welcome", "activation", "x"))
        await _ask(arena, case, "POST", f"/v1/templates/{template}/preview", {"locale": "en", "variables": variables})
        return
    letter = {"name": "Fuzz", "subject": _source(random, 3), "html": _source(random, 12)}
    if random.random() < 0.5:
        letter["text"] = _source(random, 8)
    made = await _ask(arena, case, "POST", "/v1/campaigns", letter)
    if not isinstance(made, dict) or "id" not in made:
        return
    path = f"/v1/campaigns/{made['id']}"
    await _ask(arena, case, "POST", f"{path}/preview", {"variables": {"first_name": "Ann", "x": hostile_value(random)}})
    await _ask(arena, case, "GET", f"{path}/lint")
    if random.random() < 0.2:
        await _ask(arena, case, "POST", f"{path}/test", {"to": ["me@example.org"], "variables": {"first_name": "Ann"}})
    await _ask(arena, case, "DELETE", path)


def _source(random: Random, most: int) -> str:
    source = "Hi " + "".join(random.choice(_PIECES) for _ in range(random.randint(0, most)))
    if random.random() < 0.4:
        source = mutate(random, source.encode(), 2).decode(errors="replace")
    if random.random() < 0.05:
        source += random.choice(TOKENS).decode(errors="replace") * 90_000
    return source


async def _ask(arena: Arena, case: Case, method: str, path: str, body: Any = None) -> Any:
    raw = b"" if body is None else as_json(body)
    headers = {**arena.auth, "content-type": "application/json"} if body is not None else arena.auth
    status, answer = await exchange(arena.http, request(method, path, headers=headers, body=raw), patience_s=60)
    case.http(status, f"{method} {path} {raw[:1500]!r} -> {answer[-300:]!r}" if status >= 500 else "")
    return json_of(answer)
