"""HTTP endpoints of templates."""

from dataclasses import replace
from pathlib import Path

import pytest
from tests.support.http import Browser, open_browser
from tests.support.templates import published, write_templates

from postroom.db.room import Room
from postroom.http.asgi import build_app


@pytest.fixture
async def browser(room: Room) -> Browser:
    return await open_browser(room, "templates:read")


async def test_templates_are_listed_with_their_locales_and_versions(browser: Browser) -> None:
    """All templates on one page."""
    listed = await browser.get("/v1/templates")
    assert (listed.status, listed.json["next_cursor"]) == (200, None)
    [code] = [item for item in listed.json["items"] if item["id"] == "login-code"]
    assert code["locales"] == ["en", "fr"]
    [version] = (await browser.get("/v1/templates/login-code/versions")).json["items"]
    assert (version["id"], version["content_hash"]) == (code["version_id"], code["content_hash"])
    assert version["replaced_at"] is None


async def test_versions_are_listed_shown_and_compared(browser: Browser, room: Room, tmp_path: Path) -> None:
    """Newest first; a version is compared with the one before it, or with another."""
    parts = {"note/en/subject": "s", "note/en/text": "one\n"}
    await published(room.pool, tmp_path, parts)
    await published(room.pool, tmp_path, {"note/en/text": "two\n"})
    new, old = (await browser.get("/v1/templates/note/versions")).json["items"]
    assert (new["replaced_at"], old["replaced_at"] is None) == (None, False)
    files = (await browser.get(f"/v1/templates/note/versions/{old['id']}")).json["files"]
    assert files == {"en/subject": "s", "en/text": "one\n"}
    diff = (await browser.get(f"/v1/templates/note/versions/{new['id']}/diff")).json["diff"]
    assert "-one\n+two\n" in diff
    back = await browser.get(f"/v1/templates/note/versions/{old['id']}/diff?against={new['id']}")
    assert "-two\n+one\n" in back.json["diff"]
    body = {"version_id": old["id"]}
    assert (await browser.post("/v1/templates/note/preview", json=body)).json["text"] == "one"
    assert (await browser.post("/v1/templates/note/preview", json={})).json["text"] == "two"


async def test_an_unknown_version_is_not_found(browser: Browser, room: Room) -> None:
    """Also one of another template."""
    other = await room.pool.fetchval("SELECT version_id FROM templates WHERE id = 'welcome'")
    for path in (f"login-code/versions/{other}", "login-code/versions/0/diff", "nothing/versions"):
        assert (await browser.get(f"/v1/templates/{path}")).json["code"] == "template_not_found"


async def test_files_are_published_without_a_restart(room: Room, tmp_path: Path) -> None:
    """The next mail is accepted with them; an invalid file is named, and nothing is published."""
    serving = replace(room, settings=replace(room.settings, template_dir=tmp_path))
    browser = await open_browser(room, "templates:write", "deliveries:write", app=build_app(serving))
    write_templates(tmp_path, {"note/en/subject": "s", "note/en/text": "t"})
    published = await browser.post("/v1/templates/publish")
    assert (published.status, list(published.json["templates"])) == (200, ["note"])
    mail = {"to": "ada@example.org", "template": "note"}
    assert (await browser.post("/v1/deliveries", json=mail)).status == 202
    write_templates(tmp_path, {"note/en/subject": "{{", "more/en/subject": "s", "more/en/text": "t"})
    refused = await browser.post("/v1/templates/publish")
    assert (refused.status, refused.fields) == (400, ["template"])
    assert await room.pool.fetchval("SELECT count(*) FROM templates WHERE id = 'more'") == 0


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


@pytest.mark.parametrize(
    "template, code",
    [
        ("nothing", "template_not_found"),
        ("..", "template_not_found"),
        ("%2e%2e", "template_not_found"),
        ("%2e%2e%2fetc", "not_found"),  # servers decode the slash, so no endpoint has this path
        ("Login-Code", "template_not_found"),
    ],
)
async def test_an_unknown_template_is_not_found(browser: Browser, template: str, code: str) -> None:
    """Only templates of the room can be previewed."""
    response = await browser.post(f"/v1/templates/{template}/preview", json={})
    assert response.status == 404
    assert response.json["code"] == code


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
