"""Publishing templates: versions by content, the current one, samples, and the version that a delivery keeps."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import asyncpg
import pytest
from tests.support.builders import a_checked_mail, a_mail, accepted
from tests.support.retention import swept
from tests.support.templates import published, write_templates

import postroom
from postroom.db.pool import Pool
from postroom.db.room import Room
from postroom.delivery.service import AcceptCombiner, cancel, resend
from postroom.mail.catalog import BUILTIN_TEMPLATES, Catalog
from postroom.mail.errors import TemplateInvalid
from postroom.mail.publishing import publish
from postroom.mail.watcher import TemplateWatcher, signature_of
from postroom.mail.worker import RETENTION

NOTE = {"note/en/subject": "Hello {{ name }}", "note/en/text": "Dear {{ name }},"}


async def versions(pool: Pool, template: str = "note") -> list[int]:
    rows = await pool.fetch("SELECT id FROM template_versions WHERE template = $1 ORDER BY id", template)
    return [row["id"] for row in rows]


async def current(pool: Pool, template: str = "note") -> int | None:
    found: int | None = await pool.fetchval("SELECT version_id FROM current_template_version($1)", template)
    return found


async def test_same_files_are_one_version(pool: Pool, tmp_path: Path) -> None:
    """Publishing again changes nothing; an edit makes a version, and the first text again its first version."""
    await published(pool, tmp_path, NOTE)
    first = await current(pool)
    assert await publish(pool, Catalog.load(tmp_path), actor="cli:ada") == {}
    await published(pool, tmp_path, {"note/en/text": "Hi {{ name }},"})
    second = await current(pool)
    assert await versions(pool) == [first, second]
    await published(pool, tmp_path, NOTE)
    assert (await current(pool), await versions(pool)) == (first, [first, second])
    replaced = await pool.fetch("SELECT id FROM template_versions WHERE replaced_at IS NOT NULL")
    assert [row["id"] for row in replaced] == [second]


async def test_a_room_has_the_built_in_templates(pool: Pool) -> None:
    """Migration publishes them."""
    found = await pool.fetch("SELECT id FROM templates ORDER BY id")
    assert [row["id"] for row in found] == Catalog.load(BUILTIN_TEMPLATES).names()


async def test_processes_publish_at_the_same_time(pool: Pool, tmp_path: Path) -> None:
    """Each version is stored once, and one is current."""
    catalogs = [
        Catalog.load(write_templates(tmp_path / str(at), {"a/en/subject": "s", "a/en/text": str(at % 2), **NOTE}))
        for at in range(6)
    ]
    await asyncio.gather(*(publish(pool, catalog, actor="cli:ada") for catalog in catalogs))
    assert len(await versions(pool, "note")) == 1
    assert len(await versions(pool, "a")) == 2
    assert await current(pool, "a") in await versions(pool, "a")


async def test_a_layout_is_part_of_the_templates_that_use_it(pool: Pool, tmp_path: Path) -> None:
    """A changed layout makes a version of the templates that extend it, also through another file."""
    layouts = {"_layouts/base": "{% include '_partials/foot' %}{% block b %}{% endblock %}", "_partials/foot": "1"}
    using = {"u/en/subject": "s", "u/en/text": "{% extends '_layouts/base' %}"}
    await published(pool, tmp_path, {**NOTE, **layouts, **using})
    await published(pool, tmp_path, {"_partials/foot": "2"})
    assert (len(await versions(pool, "u")), len(await versions(pool))) == (2, 1)


async def test_a_sample_that_fails_stops_publishing(pool: Pool, tmp_path: Path) -> None:
    """Every sample is rendered in every locale before anything is stored."""
    french = {"note/fr/subject": "Bonjour {{ nom }}", "note/fr/text": "x"}
    with pytest.raises(TemplateInvalid, match=r"note: the sample 'ada' fails in fr: subject: .*nom"):
        await published(pool, tmp_path, {**NOTE, **french, "note/_samples/ada.json": '{"name": "Ada"}'})
    assert await versions(pool) == []


@pytest.mark.parametrize("text, problem", [("{", "not JSON"), ("[]", "must be a JSON object")])
async def test_a_sample_is_a_json_object(pool: Pool, tmp_path: Path, text: str, problem: str) -> None:
    """Another file is named with its problem."""
    with pytest.raises(TemplateInvalid, match=problem):
        await published(pool, tmp_path, {**NOTE, "note/_samples/ada.json": text})


async def send_usual(pool: Pool) -> None:
    async with pool.acquire() as connection:
        await postroom.send(connection, to="ada@example.org", template="note", variables={"name": "Ada"})


async def send_with_tags(pool: Pool) -> None:
    async with pool.acquire() as connection:
        await postroom.send(connection, to="ada@example.org", template="note", tags={"a": "b"})


async def send_to_several(pool: Pool) -> None:
    await pool.execute("SELECT send('{ada@example.org,bob@example.org}', p_template => 'note')")


async def accept_alone(pool: Pool) -> None:
    await AcceptCombiner(pool).accept(a_checked_mail(template="note"), key_id=None)


async def accept_one(pool: Pool) -> None:
    await accepted(pool, a_mail(template="note"))


async def accept_several(pool: Pool) -> None:
    await accepted(pool, a_mail(template="note"), a_mail(template="note", idempotency_key="k"))


@pytest.mark.parametrize(
    "accept", [send_usual, send_with_tags, send_to_several, accept_alone, accept_one, accept_several]
)
async def test_a_delivery_keeps_the_version_it_was_accepted_with(
    pool: Pool, tmp_path: Path, accept: Callable[[Pool], Awaitable[None]]
) -> None:
    """On every path of acceptance; later versions do not change accepted mail."""
    await published(pool, tmp_path, NOTE)
    first = await current(pool)
    await accept(pool)
    await published(pool, tmp_path, {"note/en/text": "Hi {{ name }},"})
    assert await current(pool) != first
    pinned = await pool.fetch("SELECT template_version_id FROM deliveries")
    assert {row["template_version_id"] for row in pinned} == {first}


async def test_old_versions_are_deleted_when_no_delivery_keeps_them(pool: Pool, tmp_path: Path) -> None:
    """The current version stays, and so does one that a delivery was accepted with."""
    for text in ("unused", "kept", "current"):
        await published(pool, tmp_path, {**NOTE, "note/en/text": text})
        if text == "kept":
            await accepted(pool, a_mail(template="note", variables={"name": "Ada"}))
    _unused, kept, newest = await versions(pool)
    later = datetime.now(UTC) + timedelta(days=91)
    assert await swept(pool, RETENTION, clock=lambda: later - timedelta(days=2)) == 0
    assert await swept(pool, RETENTION, clock=lambda: later) == 1
    assert await versions(pool) == [kept, newest]


async def test_a_resend_keeps_its_version(pool: Pool, tmp_path: Path) -> None:
    """It is accepted long after the version was replaced, and its original may be gone."""
    await published(pool, tmp_path, NOTE)
    [delivery] = await accepted(pool, a_mail(template="note", variables={"name": "Ada"}))
    await published(pool, tmp_path, {"note/en/text": "Hi {{ name }},"})
    kept, newest = await versions(pool)
    await pool.execute(
        "UPDATE template_versions SET replaced_at = replaced_at - interval '91 days' WHERE id = $1", kept
    )
    await cancel(pool, delivery, actor="tests")
    again = await resend(pool, delivery, actor="tests")
    await pool.execute("DELETE FROM deliveries WHERE id = $1", delivery)
    assert await swept(pool, RETENTION) == 0
    await pool.execute("DELETE FROM deliveries WHERE id = $1", again)
    assert await swept(pool, RETENTION) == 1
    assert await versions(pool) == [newest]


async def test_a_version_stays_while_many_deliveries_of_its_time_are_left(pool: Pool, tmp_path: Path) -> None:
    """A run looks at 100 of them and cannot know which versions the others keep; later mail does not count."""
    for text in ("unused", "current"):
        await published(pool, tmp_path, {**NOTE, "note/en/text": text})
    unused, newest = await versions(pool)
    early = await accepted(pool, *[a_mail(template="note", variables={"name": "Ada"})] * 100)
    await pool.execute("UPDATE deliveries SET created_at = created_at - interval '91 days'")
    await pool.execute(
        "UPDATE template_versions SET replaced_at = replaced_at - interval '91 days' WHERE id = $1", unused
    )
    await accepted(pool, *[a_mail(template="note", variables={"name": "Ada"})] * 100)
    assert await swept(pool, RETENTION) == 0
    await pool.execute("DELETE FROM deliveries WHERE id = $1", early[50])
    assert await swept(pool, RETENTION) == 1
    assert await versions(pool) == [newest]


async def test_old_versions_are_examined_in_steps(pool: Pool, tmp_path: Path) -> None:
    """Versions that stay do not keep a run from those behind them."""
    for text in ("kept", "unused", "unused too", "current"):
        await published(pool, tmp_path, {**NOTE, "note/en/text": text})
        if text == "kept":
            await accepted(pool, a_mail(template="note", variables={"name": "Ada"}))
    kept, *_unused, newest = await versions(pool)
    assert await swept(pool, RETENTION, step=1, clock=lambda: datetime.now(UTC) + timedelta(days=91)) == 2
    assert await versions(pool) == [kept, newest]


async def test_a_change_of_files_is_published_without_a_restart(room: Room, tmp_path: Path) -> None:
    """When two looks in a row find the same files; an invalid file changes nothing until it is corrected."""
    await published(room.pool, tmp_path, NOTE)
    settings = replace(room.settings, template_dir=tmp_path)
    watcher = TemplateWatcher(
        replace(room, settings=settings), tmp_path, interval=timedelta(seconds=5), actor="cli:tests"
    )
    assert [await watcher.run_once() for _ in range(2)] == [{}, {}]
    write_templates(tmp_path, {"note/en/text": "Changed: {{"})
    assert [await watcher.run_once() for _ in range(3)] == [{}, {}, {}]
    write_templates(tmp_path, {"note/en/text": "Changed by hand"})
    first, second, third = [await watcher.run_once() for _ in range(3)]
    assert (first, second, third) == ({}, {"note": await current(room.pool)}, {})


@pytest.mark.parametrize("changed", ["note/en/text", "note/_samples/ada.json", "_layouts/mail/base", "linked/en/text"])
def test_every_file_is_watched(tmp_path: Path, changed: str) -> None:
    """Those behind a link to a folder too, which the catalog follows."""
    write_templates(tmp_path / "elsewhere", {"en/subject": "s", "en/text": "t"})
    root = write_templates(tmp_path / "templates", {**NOTE, "note/_samples/ada.json": "{}", "_layouts/mail/base": "b"})
    (root / "linked").symlink_to(tmp_path / "elsewhere")
    before = signature_of(root)
    write_templates(root, {changed: "changed"})
    assert signature_of(root) != before


async def test_a_change_is_published_after_the_database_failed(room: Room, tmp_path: Path) -> None:
    """A failover at the moment of an edit does not lose it."""
    await published(room.pool, tmp_path, NOTE)
    settings = replace(room.settings, template_dir=tmp_path)
    watcher = TemplateWatcher(
        replace(room, settings=settings), tmp_path, interval=timedelta(seconds=5), actor="cli:tests"
    )
    write_templates(tmp_path, {"note/en/text": "Changed"})
    await watcher.run_once()
    await room.pool.execute("ALTER TABLE templates RENAME TO unavailable")
    with pytest.raises(asyncpg.PostgresError):
        await watcher.run_once()
    await room.pool.execute("ALTER TABLE unavailable RENAME TO templates")
    assert await watcher.run_once() == {"note": await current(room.pool)}
    assert await watcher.run_once() == {}


async def test_sql_rejects_an_unknown_template(pool: Pool) -> None:
    """The error names the field, and nothing is stored."""
    with pytest.raises(asyncpg.PostgresError, match="template: there is no template 'nope'") as caught:
        await pool.fetchval("SELECT send('{ada@example.org}', p_template => 'nope', p_source => 'shop')")
    assert (caught.value.sqlstate, caught.value.column_name) == ("PR001", "template")
    assert await pool.fetchval("SELECT count(*) FROM deliveries") == 0
