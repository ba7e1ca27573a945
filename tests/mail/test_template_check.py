"""A request that no worker could render is refused when it is accepted, by HTTP and from streams."""

from pathlib import Path
from typing import Any

import pytest
from tests.support.builders import a_mail
from tests.support.http import open_browser
from tests.support.intake import entries, raw
from tests.support.templates import published

from postroom.db.pool import Pool
from postroom.db.room import Room
from postroom.delivery.model import Accepted
from postroom.http.asgi import build_app
from postroom.intake.model import Malformed
from postroom.intake.service import accept_commands
from postroom.mail.template_check import TemplateCheck
from postroom.mail.versions import TemplateVersions

TEXT = "Hello {{ name }}{% if order is defined %}, order {{ order.number }}{% endif %}"


NOTE = {"note/en/subject": "Hello", "note/en/text": TEXT}


@pytest.fixture(autouse=True)
async def notes(pool: Pool, tmp_path: Path) -> None:
    await published(pool, tmp_path, NOTE)


BAD: list[tuple[str, str, dict[str, Any]]] = [
    ("template", "nope", {}),
    ("variables.name", "note", {}),
    ("variables.order.number", "note", {"name": "Ada", "order": {}}),
    ("variables", "note", {"name": None}),
]


@pytest.mark.parametrize("field, template, variables", BAD)
async def test_the_field_is_named(pool: Pool, field: str, template: str, variables: dict[str, Any]) -> None:
    """`template`, or the variable that is missing; the other requests are not affected."""
    good = a_mail(template="note", variables={"name": "Ada"})
    found = await TemplateCheck(pool)([good, a_mail(template=template, variables=variables), a_mail()])
    assert [[error.field for error in errors] for errors in found] == [[], [field], []]


async def test_every_missing_variable_is_named(pool: Pool) -> None:
    """One request is enough to learn what the template needs."""
    [errors] = await TemplateCheck(pool)([a_mail(template="welcome", text=None, variables={"name": "Ada"})])
    assert [error.field for error in errors] == ["variables.product", "variables.url"]


async def test_a_known_shape_is_not_rendered_again(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other values of the same names and types cost a look-up; another shape is tried."""
    check = TemplateCheck(pool)
    await check([a_mail(template="note", variables={"name": "Ada"})])
    monkeypatch.setattr(TemplateVersions, "render", None)  # must not be called
    assert await check([a_mail(template="note", variables={"name": "Bob"})]) == [[]]
    with pytest.raises(TypeError):
        await check([a_mail(template="note", variables={"name": "Bob", "order": {"number": 1}})])


async def test_a_new_version_is_checked_without_a_restart(pool: Pool, tmp_path: Path) -> None:
    """A running process checks with the version that another process published, and knows new templates at once."""
    check = TemplateCheck(pool, fresh_s=0)
    note = a_mail(template="note", variables={"name": "Ada"})
    assert await check([note]) == [[]]
    await published(pool, tmp_path, {"note/en/text": "{{ company }}", "new/en/subject": "s", "new/en/text": "t"})
    assert [error.field for error in (await check([note]))[0]] == ["variables.company"]
    assert await TemplateCheck(pool)([a_mail(template="new")]) == [[]]


@pytest.mark.parametrize("field, template, variables", BAD[:2])
async def test_http_answers_400_and_stores_nothing(
    room: Room, field: str, template: str, variables: dict[str, Any]
) -> None:
    """Alone and in a batch, where the place is named too."""
    browser = await open_browser(room, app=build_app(room))
    good = {"to": ["a@example.org"], "template": "note", "variables": {"name": "Ada"}}
    bad = {**good, "template": template, "variables": variables}
    answer = await browser.post("/v1/deliveries", json=bad)
    assert (answer.status, [error["field"] for error in answer.json["errors"]]) == (400, [field])
    answer = await browser.post("/v1/deliveries/batch", json=[good, bad])
    assert (answer.status, [error["field"] for error in answer.json["errors"]]) == (400, [f"[1].{field}"])
    assert await room.pool.fetchval("SELECT count(*) FROM deliveries") == 0
    assert (await browser.post("/v1/deliveries", json=good)).status == 202


async def test_command_with_an_unknown_template_is_malformed(room: Room) -> None:
    """It is kept for an operator; the next command is accepted."""
    payload = {"to": "ada@example.org", "template": "nope"}
    good = raw(idempotency_key="k2")
    batch = entries(raw(payload, payload_mode="template"), good)
    outcome, accepted = await accept_commands(room.pool, batch, check=TemplateCheck(room.pool))
    assert isinstance(outcome, Malformed)
    assert [error.field for error in outcome.errors] == ["template"]
    assert isinstance(accepted, Accepted)
