"""A request that no worker could render is refused when it is accepted, wherever the catalog is at hand."""

from pathlib import Path
from typing import Any

import pytest
from tests.support.builders import a_mail
from tests.support.http import open_browser
from tests.support.intake import entries, raw

from postroom.db.room import Room
from postroom.delivery.model import Accepted
from postroom.errors import BadInput
from postroom.http.asgi import build_app
from postroom.intake.model import Malformed
from postroom.intake.service import accept_commands
from postroom.mail.catalog import Catalog
from postroom.mail.template_check import TemplateCheck

TEXT = "Hello {{ name }}{% if order is defined %}, order {{ order.number }}{% endif %}"


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    folder = tmp_path / "note" / "en"
    folder.mkdir(parents=True)
    (folder / "subject").write_text("Hello", "utf-8")
    (folder / "text").write_text(TEXT, "utf-8")
    return Catalog.load(tmp_path)


BAD: list[tuple[str, str, dict[str, Any]]] = [
    ("template", "nope", {}),
    ("variables.name", "note", {}),
    ("variables.order.number", "note", {"name": "Ada", "order": {}}),
    ("variables", "note", {"name": None}),
]


@pytest.mark.parametrize("field, template, variables", BAD)
def test_the_field_is_named(catalog: Catalog, field: str, template: str, variables: dict[str, Any]) -> None:
    """`template`, or the variable that is missing."""
    with pytest.raises(BadInput) as caught:
        TemplateCheck(catalog)(a_mail(template=template, variables=variables))
    assert [error.field for error in caught.value.errors] == [field]


def test_a_known_shape_is_not_rendered_again(catalog: Catalog) -> None:
    """Other values of the same names and types cost a look-up; another shape is tried."""
    check = TemplateCheck(catalog)
    check(a_mail(template="note", variables={"name": "Ada"}))
    catalog.render = None  # type: ignore[method-assign, assignment]  # must not be called
    check(a_mail(template="note", variables={"name": "Bob"}))
    with pytest.raises(TypeError):
        check(a_mail(template="note", variables={"name": "Bob", "order": {"number": 1}}))


@pytest.mark.parametrize("field, template, variables", BAD[:2])
async def test_http_answers_400_and_stores_nothing(
    room: Room, catalog: Catalog, field: str, template: str, variables: dict[str, Any]
) -> None:
    """Alone and in a batch, where the place is named too."""
    browser = await open_browser(room, app=build_app(room, catalog=catalog))
    good = {"to": ["a@example.org"], "template": "note", "variables": {"name": "Ada"}}
    bad = {**good, "template": template, "variables": variables}
    answer = await browser.post("/v1/deliveries", json=bad)
    assert (answer.status, [error["field"] for error in answer.json["errors"]]) == (400, [field])
    answer = await browser.post("/v1/deliveries/batch", json=[good, bad])
    assert (answer.status, [error["field"] for error in answer.json["errors"]]) == (400, [f"[1].{field}"])
    assert await room.pool.fetchval("SELECT count(*) FROM deliveries") == 0
    assert (await browser.post("/v1/deliveries", json=good)).status == 202


async def test_command_with_an_unknown_template_is_malformed(room: Room, catalog: Catalog) -> None:
    """It is kept for an operator; the next command is accepted."""
    payload = {"to": "ada@example.org", "template": "nope"}
    good = raw(idempotency_key="k2")
    batch = entries(raw(payload, payload_mode="template"), good)
    outcome, accepted = await accept_commands(room.pool, batch, check=TemplateCheck(catalog))
    assert isinstance(outcome, Malformed)
    assert [error.field for error in outcome.errors] == ["template"]
    assert isinstance(accepted, Accepted)
