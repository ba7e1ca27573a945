"""HTTP endpoints of templates."""

import pytest
from tests.support.http import Browser, open_browser

from postroom.db.room import Room
from postroom.http.asgi import build_app


@pytest.fixture
async def browser(room: Room) -> Browser:
    return await open_browser(room, "templates:read")


async def test_templates_are_listed_with_their_locales(browser: Browser) -> None:
    """The whole catalog, one page."""
    listed = await browser.get("/v1/templates")
    assert listed.status == 200
    assert listed.json["next_cursor"] is None
    assert {"id": "login-code", "locales": ["en", "fr"]} in listed.json["items"]


async def test_a_preview_is_what_would_be_sent(browser: Browser) -> None:
    """Subject, text and HTML in the nearest locale."""
    body = {"locale": "fr-CA", "variables": {"code": "123456", "minutes": 10}}
    shown = await browser.post("/v1/templates/login-code/preview", json=body)
    assert shown.status == 200
    assert set(shown.json) == {"subject", "text", "html"}
    assert "123456" in shown.json["text"]
    assert "123456" in shown.json["html"]
    english = await browser.post("/v1/templates/login-code/preview", json={"variables": body["variables"]})
    assert english.json["subject"] != shown.json["subject"]


async def test_missing_variable_is_named(browser: Browser) -> None:
    """A missing variable is named in the error."""
    response = await browser.post("/v1/templates/login-code/preview", json={"variables": {}})
    assert (response.status, response.fields) == (400, ["variables"])
    assert "code" in response.json["detail"]


@pytest.mark.parametrize("template", ["nothing", "..", "%2e%2e%2fetc", "Login-Code"])
async def test_an_unknown_template_is_not_found(browser: Browser, template: str) -> None:
    """Only what the catalog holds can be previewed."""
    response = await browser.post(f"/v1/templates/{template}/preview", json={})
    assert response.status == 404
    assert response.json["code"] == "template_not_found"


@pytest.mark.parametrize(
    "body,field",
    [
        ({"locale": "../fr"}, "locale"),
        ({"variables": []}, "variables"),
        ({"html": "<p>"}, "html"),
    ],
)
async def test_a_bad_preview_names_its_field(browser: Browser, body: object, field: str) -> None:
    """Input is strict here as everywhere."""
    response = await browser.post("/v1/templates/login-code/preview", json=body)
    assert (response.status, response.fields) == (400, [field])


async def test_without_a_catalog_there_are_no_templates(room: Room) -> None:
    """A process without templates answers all the same."""
    browser = await open_browser(room, app=build_app(room))
    assert (await browser.get("/v1/templates")).json["items"] == []
    assert (await browser.post("/v1/templates/login-code/preview", json={})).status == 404
