"""Rendering as the mail leaves, and the trial of mail that is due later."""

import asyncio
from datetime import timedelta
from email import message_from_bytes
from email.policy import default
from pathlib import Path
from typing import Any

import pytest
from tests.support.builders import (
    BUSY,
    DELIVERED,
    NOON,
    Hands,
    Recording,
    Steps,
    a_mail,
    accepted,
    attempts_of,
    claimed,
    state_of,
)
from tests.support.loops import looping
from tests.support.templates import a_template_worker, published, template_writers

from postroom.campaigns.contents import contents_of
from postroom.db.pool import Pool
from postroom.delivery import service, store
from postroom.delivery.model import ClaimId, DeliveryId, DeliveryRequest, DeliveryState, Lane
from postroom.delivery.worker import WorkerOptions
from postroom.events.model import Query
from postroom.events.service import EventStore
from postroom.mail.library import preview
from postroom.mail.render import Rendered
from postroom.mail.rendering import TemplateRendering
from postroom.mail.service import render_ahead
from postroom.mail.versions import TemplateVersions
from postroom.mail.worker import RenderWorker
from postroom.post.reply import Content, Envelope, Reply

HOUR = timedelta(hours=1)
PARTS = {
    "note/en/subject": "Hello {{ name }}",
    "note/en/text": "Dear {{ name }},",
    "note/fr/subject": "Bonjour {{ name }}",
    "note/fr/text": "Cher {{ name }},",
}


@pytest.fixture
async def versions(pool: Pool, tmp_path: Path) -> TemplateVersions:
    await published(pool, tmp_path, PARTS)
    return TemplateVersions(pool)


def a_note(**fields: Any) -> DeliveryRequest:
    return a_mail(**{"template": "note", "variables": {"name": "Ada"}, **fields})


def a_later_note(**fields: Any) -> DeliveryRequest:
    return a_note(send_at=NOON + HOUR, **fields)


async def subject_of(pool: Pool, delivery: DeliveryId) -> str | None:
    return (await contents_of(pool).fill(await service.get_delivery(pool, delivery))).subject


async def last_fact(pool: Pool, delivery: DeliveryId) -> tuple[str, int, str]:
    """Type, attempt and reason of the last fact about a delivery."""
    page = await EventStore(pool).read(Query.of(tags=[f"postroom.delivery={delivery}"]))
    fact = page.events[-1]
    return fact.type, fact.data["attempt"], fact.data["reason"]


async def alter_versions(pool: Pool, old: str, new: str) -> None:
    """Change the files of stored versions, as an upgrade of the libraries changes their meaning."""
    await pool.execute("UPDATE template_versions SET files = replace(files::text, $1, $2)::jsonb", old, new)


# --- as the mail leaves --------------------------------------------------------------


@pytest.mark.usefixtures("versions")
async def test_a_template_is_rendered_as_it_leaves(pool: Pool) -> None:
    """The worker sends the rendered content, and stores only the variables."""
    [delivery] = await accepted(pool, a_note(), now=NOON)
    transport = Recording()
    await a_template_worker(pool, transport, clock=Hands()).run_once(Lane.TRANSACTIONAL)
    [content] = transport.contents
    assert b"Subject: Hello Ada" in content
    assert b"Dear Ada," in content
    assert (await state_of(pool, delivery), await subject_of(pool, delivery)) == (DeliveryState.SENT, "Hello Ada")
    stored = await pool.fetchrow("SELECT subject, text_body, html_body FROM delivery_payloads")
    assert tuple(stored or ()) == (None, None, None)


async def test_rendered_content_is_stored_on_request(pool: Pool, versions: TemplateVersions) -> None:
    """With the setting, subject and parts are stored before the mail leaves; a failure stores nothing."""
    await accepted(pool, a_note(), a_note(variables={}), now=NOON)
    store_content = TemplateRendering(pool, versions).store
    worker = a_template_worker(pool, transport := Recording(), clock=Hands(), on_started=store_content)
    await versions.load([await pool.fetchval("SELECT version_id FROM templates WHERE id = 'note'")])
    await worker.run_once(Lane.TRANSACTIONAL)
    assert len(transport.contents) == 1
    stored = await pool.fetch("SELECT subject, text_body FROM delivery_payloads ORDER BY delivery_id")
    assert [tuple(row) for row in stored] == [("Hello Ada", "Dear Ada,"), (None, None)]


async def test_stored_content_is_sent_again_whatever_renders_now(pool: Pool, tmp_path: Path) -> None:
    """A retry and a resend send the stored content, and leave it as it is, although the version renders other bytes."""
    await published(pool, tmp_path, {**PARTS, "note/en/html": "<style>p { color: red }</style><p>Dear {{ name }}</p>"})
    hands, transport = Hands(), Recording(BUSY, DELIVERED, DELIVERED)

    async def work() -> None:
        versions = TemplateVersions(pool)
        await versions.load([await pool.fetchval("SELECT version_id FROM templates WHERE id = 'note'")])
        store_content = TemplateRendering(pool, versions).store
        await a_template_worker(pool, transport, clock=hands, on_started=store_content).run_once(Lane.TRANSACTIONAL)

    [delivery] = await accepted(pool, a_note(), now=hands())
    await work()
    stored = await pool.fetch("SELECT rendered_at, subject, text_body, html_body FROM delivery_payloads")
    await alter_versions(pool, "Dear", "Changed")
    await alter_versions(pool, "Hello", "Changed")
    hands.forward(hours=1)
    await work()
    assert await pool.fetch("SELECT rendered_at, subject, text_body, html_body FROM delivery_payloads") == stored
    clone = await service.resend(pool, delivery, actor="cli:ada", now=hands())
    await work()
    assert transport.contents[1] == transport.contents[0]
    first, *_others, third = (message_from_bytes(content, policy=default) for content in transport.contents)
    assert third["subject"] == first["subject"] == "Hello Ada"
    assert [part.get_content() for part in third.iter_parts()] == [part.get_content() for part in first.iter_parts()]
    copied = "SELECT rendered_at, subject, text_body, html_body FROM delivery_payloads WHERE delivery_id = $1"
    assert await pool.fetch(copied, clone) == stored


@pytest.mark.usefixtures("versions")
async def test_a_late_worker_does_not_replace_stored_content(pool: Pool) -> None:
    """A worker that has lost its claim may store after the one that sends: what was sent stays."""
    [delivery] = await accepted(pool, a_note(), now=NOON)
    for subject in ("Sent", "Late"):
        await store.store_rendered(pool, delivery_id=[delivery], subject=[subject], text_body=["t"], html_body=[None])
    assert await pool.fetchval("SELECT subject FROM delivery_payloads") == "Sent"


@pytest.mark.usefixtures("versions")
@pytest.mark.parametrize(
    "locale, subject",
    [("fr", "Bonjour Ada"), ("fr-FR", "Bonjour Ada"), ("en", "Hello Ada"), ("de", "Hello Ada"), (None, "Hello Ada")],
)
async def test_the_locale_chooses_the_language(pool: Pool, locale: str | None, subject: str) -> None:
    """From the country to the language to English."""
    [delivery] = await accepted(pool, a_note(locale=locale))
    assert await subject_of(pool, delivery) == subject


@pytest.mark.usefixtures("versions")
@pytest.mark.parametrize(
    "fields, detail",
    [({"variables": {}}, "note/subject: line 1: unknown variable: name"), ({"template": "missing"}, "missing/catalog")],
    ids=["variable", "template"],
)
async def test_mail_that_cannot_be_rendered_fails_unsent(pool: Pool, fields: dict[str, Any], detail: str) -> None:
    """An unknown variable or template ends the delivery as render_failed; the others of its claim are sent."""
    before, broken, after = await accepted(pool, a_note(), a_note(**fields), a_note(), now=NOON)
    transport = Recording()
    await a_template_worker(pool, transport, clock=Hands()).run_once(Lane.TRANSACTIONAL)
    assert transport.delivery_ids == [before, after]
    found = await service.get_delivery(pool, broken)
    assert (found.state, found.reason) == (DeliveryState.FAILED, "render_failed")
    assert detail in (found.detail or "")
    assert (found.attempt_count, await attempts_of(pool, broken)) == (0, [])
    assert await last_fact(pool, broken) == ("DeliveryFailed", 0, "render_failed")
    assert await pool.fetchval("SELECT count(*) FROM send_logs WHERE email_queue_id = $1", broken) == 0


async def test_retry_that_can_no_longer_be_rendered_is_no_attempt(pool: Pool, tmp_path: Path) -> None:
    """The failed rendering adds nothing to the attempt that was made."""
    await published(pool, tmp_path, PARTS)
    hands, transport = Hands(), Recording(BUSY)
    [delivery] = await accepted(pool, a_note(), now=hands())
    await a_template_worker(pool, transport, clock=hands).run_once(Lane.TRANSACTIONAL)
    await alter_versions(pool, "Dear", "Dear {{ unknown }}")
    hands.forward(hours=1)
    await a_template_worker(pool, transport, clock=hands).run_once(Lane.TRANSACTIONAL)
    assert len(transport.contents) == 1
    found = await service.get_delivery(pool, delivery)
    assert (found.state, found.reason, found.attempt_count) == (DeliveryState.FAILED, "render_failed", 1)
    assert [attempt.outcome for attempt in await attempts_of(pool, delivery)] == ["deferred"]
    assert await last_fact(pool, delivery) == ("DeliveryFailed", 1, "render_failed")


async def test_a_retry_sends_the_same_bytes_although_the_files_changed(pool: Pool, tmp_path: Path) -> None:
    """Another process with newer templates retries: it renders the version of the acceptance."""
    await published(pool, tmp_path, PARTS)
    hands, first, second = Hands(), Recording(BUSY), Recording()
    [delivery] = await accepted(pool, a_note(), now=hands())
    await a_template_worker(pool, first, clock=hands).run_once(Lane.TRANSACTIONAL)
    assert await state_of(pool, delivery) is DeliveryState.RENDERED
    await published(pool, tmp_path, {"note/en/subject": "Changed", "note/en/text": "Changed"})
    hands.forward(hours=1)
    await a_template_worker(pool, second, clock=hands).run_once(Lane.TRANSACTIONAL)
    assert second.contents == first.contents


STYLED = "<style>p { color: red }</style><p>Dear {{ name }}</p>\n<p>Grüße</p>\n"
LATE = "<style>p.{{ name|length }} { color: red }</style><pre>Dear {{ name }}&#13;</pre>"
CONTENTS: dict[str, dict[str, str | None]] = {
    "joined": {"note/en/html": STYLED},
    "text derived": {"note/en/html": STYLED, "note/en/text": None},
    "styles applied late": {"note/en/html": LATE, "note/en/text": None},
    "engine": {"note/en/html": "<p>{{ name|upper }}</p>\n", "note/en/text": " {{ name|upper }}\n\n"},
    "CRLF in files": {"note/en/html": "<p>{{ name }}</p>\r\n<p></p>\r", "note/en/text": "{{ name }},\r\n\rBye\r\n"},
}


@pytest.mark.parametrize("name", ["Ada", "Ada\nB", "Ada\r\nB", "Ada\rB", " Ada  ", "Ada" * 400, "Zoë" * 400, ".Ada"])
@pytest.mark.parametrize("content", CONTENTS)
async def test_readers_and_previews_get_the_content_that_was_sent(
    pool: Pool, tmp_path: Path, content: str, name: str
) -> None:
    """The delivery as shown, and a preview of its version with its variables, although the files changed since.

    Byte for byte, with the line ends of mail.
    """
    files = {**PARTS, "note/en/subject": "Hello", **CONTENTS[content]}
    await published(pool, tmp_path, {path: text for path, text in files.items() if text is not None})
    [delivery] = await accepted(pool, a_note(variables={"name": name}), now=NOON)
    transport = Recording()
    await a_template_worker(pool, transport, clock=Hands()).run_once(Lane.TRANSACTIONAL)
    await published(pool, tmp_path, {"note/en/subject": "Changed", "note/en/html": "<p>Changed</p>"})
    shown = await contents_of(pool).fill(await service.get_delivery(pool, delivery))
    version_id = await pool.fetchval("SELECT template_version_id FROM deliveries WHERE id = $1", delivery)
    again = await preview(pool, "note", version_id=version_id, locale=None, variables={"name": name})
    assert (shown.subject, shown.text, shown.html) == (again.subject, again.text, again.html)
    sent = message_from_bytes(transport.contents[0], policy=default)
    parts = {part.get_content_type(): part.get_payload(decode=True) for part in sent.walk() if not part.is_multipart()}
    assert sent["subject"] == shown.subject
    assert parts == {"text/plain": as_sent(shown.text), "text/html": as_sent(shown.html)}


async def test_readers_get_the_text_that_was_sent_alone(pool: Pool, tmp_path: Path) -> None:
    """A message of one part differs in one thing: SMTP requires that its last line ends."""
    await published(pool, tmp_path, PARTS)
    [delivery] = await accepted(pool, a_note(variables={"name": "Ada\rB"}), now=NOON)
    transport = Recording()
    await a_template_worker(pool, transport, clock=Hands()).run_once(Lane.TRANSACTIONAL)
    shown = await contents_of(pool).fill(await service.get_delivery(pool, delivery))
    assert transport.contents[0].partition(b"\r\n\r\n")[2] == as_sent(shown.text) + b"\r\n"


def as_sent(text: str | None) -> bytes:
    assert text is not None
    return text.replace("\n", "\r\n").encode()


async def test_a_resend_has_the_version_of_the_original(pool: Pool, tmp_path: Path) -> None:
    """The same content in a new delivery, whatever was published since."""
    await published(pool, tmp_path, PARTS)
    [delivery] = await accepted(pool, a_note(), now=NOON)
    transport = Recording()
    worker = a_template_worker(pool, transport, clock=Hands())
    await worker.run_once(Lane.TRANSACTIONAL)
    await published(pool, tmp_path, {"note/en/subject": "Changed", "note/en/text": "Changed"})
    clone = await service.resend(pool, delivery, actor="cli:ada", now=NOON)
    assert await subject_of(pool, clone) == "Hello Ada"
    await worker.run_once(Lane.TRANSACTIONAL)
    first, second = (content.partition(b"\r\n\r\n")[2] for content in transport.contents)
    assert first == second


async def test_a_version_that_was_not_loaded_is_not_a_failure_of_the_mail(pool: Pool, tmp_path: Path) -> None:
    """The worker defers such mail: the next attempt loads the version."""
    await published(pool, tmp_path, PARTS)
    await accepted(pool, a_note(), now=NOON)
    [outgoing] = await claimed(pool, now=NOON)
    [writer] = template_writers(pool).values()
    with pytest.raises(LookupError, match="was not loaded"):
        writer.write(outgoing)


async def test_the_cache_is_bounded(pool: Pool, tmp_path: Path) -> None:
    """The least recently used version is loaded again when it is needed."""
    ids = []
    for text in ("a", "b", "c"):
        await published(pool, tmp_path, {**PARTS, "note/en/text": text})
        ids.append(await pool.fetchval("SELECT version_id FROM templates WHERE id = 'note'"))
    versions = TemplateVersions(pool, cached=2)
    for version_id in (*ids, ids[0]):
        await versions.load([version_id])
    with pytest.raises(LookupError):
        versions.render("note", ids[1], locale=None, variables={})
    assert await versions.get(ids[1]) is not None


class Waiting(Recording):
    """A transport with one connection, whose first message waits until the worker has started two chunks."""

    max_connections = 1

    def __init__(self, steps: Steps) -> None:
        super().__init__()
        self._steps = steps

    async def send(self, envelope: Envelope, content: Content) -> Reply:
        await self._steps.reached("started", times=2)
        return await super().send(envelope, content)


async def test_a_claim_keeps_its_versions_until_it_ends(pool: Pool, tmp_path: Path) -> None:
    """Mail that waits for a connection is rendered although later claims fill the cache; then it is evicted."""
    names = ("a", "b", "c", "d")
    await published(pool, tmp_path, {f"{name}/en/{part}": part for name in names for part in ("subject", "text")})
    ids = await accepted(pool, *(a_mail(template=name) for name in names))
    versions, steps = TemplateVersions(pool, cached=1), Steps()
    worker = a_template_worker(
        pool,
        Waiting(steps),
        versions=versions,
        signal=steps,
        options=WorkerOptions(batch=2, chunk=2, lanes=(Lane.TRANSACTIONAL,), until_empty=True),
    )
    await worker.run()
    assert [[each.outcome for each in await attempts_of(pool, delivery)] for delivery in ids] == [["sent"]] * 4
    used = dict(await pool.fetch("SELECT id, version_id FROM templates"))
    await versions.load_claim(ClaimId(99), {used["d"]}, [ClaimId(99)])
    with pytest.raises(LookupError):
        versions.render("a", used["a"], locale=None, variables={})


async def test_versions_in_memory_survive_a_load_beside_them(pool: Pool, tmp_path: Path) -> None:
    """A reader renders what it has loaded, although another reader fills the cache meanwhile."""
    names = ("a", "b", "c", "d")
    await published(pool, tmp_path, {f"{name}/en/{part}": part for name in names for part in ("subject", "text")})
    used = dict(await pool.fetch("SELECT id, version_id FROM templates"))
    versions = TemplateVersions(pool, cached=2)
    await versions.load([used["a"]])

    async def read(*wanted: str) -> None:
        await versions.load([used[name] for name in wanted])
        for name in wanted:
            assert isinstance(versions.render(name, used[name], locale=None, variables={}), Rendered)

    await asyncio.gather(*(read(*wanted) for wanted in (("a", "b"), ("c", "d"), ("b", "c"), ("a", "d"))))


# --- ahead of its time ---------------------------------------------------------------


async def test_mail_that_is_due_later_is_tried_ahead(pool: Pool, versions: TemplateVersions) -> None:
    """It is known to render before its first attempt; its content is not stored, and it leaves at its time."""
    [delivery] = await accepted(pool, a_later_note(), now=NOON)
    batch = await render_ahead(pool, versions, now=NOON)
    assert (batch.rendered, batch.failed) == (1, 0)
    found = await service.get_delivery(pool, delivery)
    assert (found.state, found.text, found.rendered_at) == (DeliveryState.RENDERED, None, NOON)
    assert await claimed(pool, now=NOON) == []
    assert (await render_ahead(pool, versions, now=NOON)).total == 0
    assert [outgoing.id for outgoing in await claimed(pool, now=NOON + HOUR)] == [delivery]


async def test_mail_that_is_due_at_once_is_not_tried(pool: Pool, versions: TemplateVersions) -> None:
    """Its worker renders it anyway; mail without a template needs no trial."""
    await accepted(pool, a_note(), a_mail(send_at=NOON + HOUR), now=NOON)
    assert (await render_ahead(pool, versions, now=NOON)).total == 0


@pytest.mark.parametrize("fields", [{"variables": {}}, {"template": "missing"}], ids=["variable", "template"])
async def test_later_mail_that_cannot_be_rendered_fails_now(
    pool: Pool, versions: TemplateVersions, fields: dict[str, Any]
) -> None:
    """Long before its time, with the reason and without an attempt; its neighbours are rendered."""
    before, broken, after = await accepted(pool, a_later_note(), a_later_note(**fields), a_later_note(), now=NOON)
    batch = await render_ahead(pool, versions, now=NOON)
    assert (batch.rendered, batch.failed) == (2, 1)
    found = await service.get_delivery(pool, broken)
    assert (found.state, found.reason) == (DeliveryState.FAILED, "render_failed")
    assert {await state_of(pool, delivery) for delivery in (before, after)} == {DeliveryState.RENDERED}
    assert await attempts_of(pool, broken) == []


@pytest.mark.parametrize("to", [["ada@example.org"], ["ada@example.org", "bob@example.org"]])
async def test_later_mail_from_sql_is_tried_ahead(pool: Pool, versions: TemplateVersions, to: list[str]) -> None:
    """An application's transaction checks no variables, so the trial is the first to find a missing one."""
    sent = "SELECT send($1, p_template => 'note', p_variables => $2::jsonb, p_send_at => now() + interval '1 hour')"
    good, bad = [await pool.fetchval(sent, to, variables) for variables in ('{"name": "Ada"}', "{}")]
    await render_ahead(pool, versions)
    assert await state_of(pool, good) is DeliveryState.RENDERED
    found = await service.get_delivery(pool, bad)
    assert (found.state, found.reason, found.attempt_count) == (DeliveryState.FAILED, "render_failed", 0)


async def test_renderers_do_not_wait_for_each_other(pool: Pool, versions: TemplateVersions) -> None:
    """A renderer skips rows that another has locked, and a crash leaves them as they were."""
    ids = await accepted(pool, a_later_note(), a_later_note(), now=NOON)
    async with pool.acquire() as connection, connection.transaction():
        [held] = await store.lock_unrendered(connection, batch_limit=1)
        assert (await render_ahead(pool, versions)).rendered == 1
    states = {delivery: await state_of(pool, delivery) for delivery in ids}
    assert states == {held.id: DeliveryState.QUEUED, ids[1]: DeliveryState.RENDERED}
    assert (await render_ahead(pool, versions)).rendered == 1


async def test_a_cancelled_delivery_is_not_tried(pool: Pool, versions: TemplateVersions) -> None:
    """It has left the queue."""
    [delivery] = await accepted(pool, a_later_note(), now=NOON)
    await service.cancel(pool, delivery, actor="cli:ada")
    assert (await render_ahead(pool, versions)).total == 0


async def test_a_released_delivery_keeps_its_state(pool: Pool, versions: TemplateVersions) -> None:
    """A mail that was tried ahead is still rendered; one that was never rendered is queued."""
    hands = Hands()
    tried, _untried = await accepted(pool, a_later_note(), a_note(), now=hands())
    await render_ahead(pool, versions, now=hands())
    hands.forward(hours=1)
    for outgoing in await claimed(pool, now=hands()):
        async with pool.acquire() as connection:
            await store.release(
                connection, worker_id=1, claim_id=outgoing.claim_id, delivery_ids=[outgoing.id], now=hands()
            )
        expected = DeliveryState.RENDERED if outgoing.id == tried else DeliveryState.QUEUED
        assert await state_of(pool, outgoing.id) is expected


async def test_the_loop_tries_everything(pool: Pool, versions: TemplateVersions) -> None:
    """One turn of the loop goes on until nothing is left to try."""
    ids = await accepted(pool, *(a_later_note() for _ in range(3)), now=NOON)
    worker = RenderWorker(pool, versions, rest=timedelta(milliseconds=1))
    async with looping(worker.loop()):
        while {await state_of(pool, delivery) for delivery in ids} != {DeliveryState.RENDERED}:
            pass
    assert len(ids) == 3
