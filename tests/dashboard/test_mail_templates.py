"""Pages of templates: versions, changes, previews of samples."""

from pathlib import Path

from tests.support.builders import a_mail, accepted
from tests.support.dashboard import open_guest, text_of
from tests.support.templates import published

from postroom.db.room import Room

NOTE = {
    "note/en/subject": "Hello {{ name }}",
    "note/en/html": "<p>Dear {{ name }}</p><script>alert(1)</script>",
    "note/_samples/ada.json": '{"name": "Ada"}',
}


async def test_templates_versions_and_changes_are_shown(room: Room, tmp_path: Path) -> None:
    """From the list to a version, with what it changed, its samples and its files."""
    await published(room.pool, tmp_path, NOTE)
    await published(room.pool, tmp_path, {"note/en/subject": "Welcome {{ name }}"})
    guest = await open_guest(room)
    assert 'href="/templates/note"' in (await guest.get("/templates")).body.decode()
    version = await room.pool.fetchval("SELECT version_id FROM templates WHERE id = 'note'")
    assert f"/templates/note/versions/{version}" in (await guest.get("/templates/note")).body.decode()
    shown = text_of(await guest.get(f"/templates/note/versions/{version}"))
    for expected in ("+Welcome {{ name }}", "Welcome Ada", "en/subject", "_samples/ada.json"):
        assert expected in shown
    frame = await guest.get(f"/templates/note/versions/{version}/preview?sample=ada&locale=en")
    assert b"Dear Ada" in frame.body
    assert b"alert" not in frame.body
    assert b'class="preview desktop"' in (await guest.get(f"/templates/note/versions/{version}")).body
    phone = (await guest.get(f"/templates/note/versions/{version}?width=phone&dark=1")).body
    assert b'class="preview phone dark"' in phone
    assert b"locale=en&dark=1" in phone.replace(b"&amp;", b"&")
    first = await room.pool.fetchval("SELECT min(version_id) FROM templates WHERE id = 'welcome'")
    assert "This is the first version." in text_of(await guest.get(f"/templates/welcome/versions/{first}"))


async def test_unknown_templates_and_samples_are_not_found(room: Room) -> None:
    """Also a version of another template."""
    guest = await open_guest(room)
    version = await room.pool.fetchval("SELECT version_id FROM templates WHERE id = 'welcome'")
    for path in (
        "/templates/nothing",
        f"/templates/birthday/versions/{version}",
        f"/templates/welcome/versions/{version}/preview?sample=nobody&locale=en",
    ):
        assert (await guest.get(path)).status == 404


async def test_a_delivery_leads_to_its_version(room: Room, tmp_path: Path) -> None:
    """To the version that it was accepted with; a person who may not see templates gets no link."""
    await published(room.pool, tmp_path, NOTE)
    version = await room.pool.fetchval("SELECT version_id FROM templates WHERE id = 'note'")
    [noted, plain] = await accepted(room.pool, a_mail(template="note", variables={"name": "Ada"}), a_mail())
    await published(room.pool, tmp_path, {"note/en/subject": "Welcome {{ name }}"})
    guest, other = await open_guest(room), await open_guest(room, "deliveries:read")
    link = f'<a href="/templates/note/versions/{version}">version {version}</a>'
    assert link in (await guest.get(f"/deliveries/{noted}")).body.decode()
    assert (await guest.get(f"/templates/note/versions/{version}")).status == 200
    assert f", version {version}" in text_of(await other.get(f"/deliveries/{noted}"))
    assert "/versions/" not in (await other.get(f"/deliveries/{noted}")).body.decode()
    assert "version" not in text_of(await guest.get(f"/deliveries/{plain}"))


async def test_a_key_needs_the_scope(room: Room) -> None:
    """Without it there is neither the page nor its link."""
    guest = await open_guest(room, "deliveries:read")
    assert (await guest.get("/templates")).status == 403
    assert 'href="/templates"' not in (await guest.get("/deliveries")).body.decode()
