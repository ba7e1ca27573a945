"""Campaigns in the dashboard: lists and results, every action, and that every action is audited."""

import asyncio
import csv
import re
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import msgspec
import pytest
from tests.support.builders import NOON
from tests.support.campaigns import HTML, SECRET, a_campaign, a_running_campaign, upload
from tests.support.dashboard import Guest, dashboard_app, open_guest, text_of
from tests.support.http import served
from tests.support.played_campaign import a_sent_campaign, people_csv
from tests.support.senders import an_account
from tests.support.templates import published

from postroom.campaigns import report as reports
from postroom.campaigns import service
from postroom.campaigns.model import CampaignStatus, PersonResult
from postroom.db.room import Room, open_room
from postroom.mail.catalog import BUILTIN_TEMPLATES, Catalog
from postroom.mail.publishing import publish
from postroom.settings import Settings

VIEWS = ("", "/people", "/content", "/links")
NEWS = {"name": "Autumn", "subject": "Leaves for {{ first_name }}", "html": HTML, "from": "News <news@example.org>"}
ATTACKS = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "</textarea><svg onload=alert(1)>",
    "{{ '{{' }}7*7}}<b>",
)


@pytest.fixture
async def room(database_url: str) -> AsyncIterator[Room]:
    """A room with a secret key, which signs the links of campaigns."""
    async with open_room(Settings(database_url=database_url, secret_key=SECRET)) as opened:
        yield opened


@pytest.fixture
async def guest(room: Room) -> Guest:
    return await open_guest(room)


async def actions_of(room: Room) -> list[str]:
    rows = await room.pool.fetch(
        "SELECT action FROM audit_log WHERE action LIKE 'campaign.%' AND actor <> 'tests' ORDER BY id"
    )
    return [row["action"].removeprefix("campaign.") for row in rows]


async def test_results_are_shown_as_funnel_charts_and_lists(room: Room, guest: Guest) -> None:
    """A sent campaign has its progress, funnel, charts, links and domains; the people have their results."""
    campaign = await a_sent_campaign(room.pool, 60)
    path = f"/campaigns/{campaign}"
    pages = {view: await guest.get(path + view) for view in VIEWS}
    assert {view: (page.status, len(page.body) < 100_000) for view, page in pages.items()} == dict.fromkeys(
        VIEWS, (200, True)
    )
    figures = (await service.measure(room.pool, [await service.get_campaign(room.pool, campaign)]))[campaign]
    overview = text_of(pages[""])
    assert "100 % 60 of 60 recipients" in overview
    assert f"Recipients 60 Sent {figures.counts.sent}" in overview
    # in the bar and in the losses, under one name
    assert all(f"{word} {figures.counts.bounced}" in overview for word in ("bounced", "Bounced"))
    assert pages[""].body.count(b'class="chart"') == 2
    assert "https://shop.example/spring" in overview
    domains = await reports.list_domains(room.pool, campaign)
    assert sum(domain.bounced for domain in domains) == figures.counts.bounced
    assert f"{domains[0].domain} {domains[0].sent} {domains[0].bounced}" in overview
    delivery = await room.pool.fetchval("SELECT min(id) FROM deliveries WHERE campaign_id = $1", campaign)
    shown = (await guest.get(f"/deliveries/{delivery}")).body
    assert f'<a href="{path}">'.encode() in shown
    assert f'src="/deliveries/{delivery}/preview"'.encode() in shown
    listed = text_of(await guest.get(f"/deliveries?campaign={campaign}"))
    assert "Spring is here, " in listed
    assert "first_name" not in listed
    assert "https://shop.example/stores" in text_of(pages["/links"])
    csv = await guest.get(f"{path}/links.csv")
    assert f'href="{path}/links.csv"'.encode() in pages["/links"].body
    assert csv.body.decode().startswith("url,")
    assert "https://shop.example/stores," in csv.body.decode()
    assert "Spring is here, Edsger" in text_of(await guest.get(f"{path}/preview"))
    listed = text_of(await guest.get("/campaigns"))
    subject = "Spring is here, Edsger"  # for the first recipient
    assert f"Spring collection {subject} completed 60 of 60 60 of 60 {figures.counts.sent}" in listed
    opened, _more = await reports.list_people(room.pool, campaign, result=PersonResult.OPENED, limit=100)
    assert 0 < figures.opens.unique == len(opened) < figures.opens.total
    assert f"Opened {len(opened)} " in overview
    assert f"of 60 {figures.counts.sent} {figures.counts.bounced} {figures.counts.failed} {len(opened)} " in listed
    assert "No campaign matches this filter." in text_of(await guest.get("/campaigns?status=draft"))
    assert "Spring collection" in text_of(await guest.get("/campaigns?name=COLLECT"))
    assert "No campaign matches this filter." in text_of(await guest.get("/campaigns?name=winter"))
    assert [(await guest.get(f"/campaigns{ending}")).status for ending in ("?status=odd", "/99")] == [400, 404]


async def test_people_are_found_by_result_and_address(
    room: Room, guest: Guest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each result selects its people; a search reads a bounded number of rows and continues on the next page."""
    campaign = await a_sent_campaign(room.pool, 60)
    path = f"/campaigns/{campaign}/people"
    everyone, more = await reports.list_people(room.pool, campaign, limit=100)
    assert (len(everyone), more) == (60, None)
    expected = {
        PersonResult.SENT: [each.id for each in everyone if each.result is PersonResult.SENT],
        PersonResult.FAILED: [each.id for each in everyone if each.result is PersonResult.FAILED],
        PersonResult.OPENED: [each.id for each in everyone if each.opened_at],
        PersonResult.BOUNCED: [each.id for each in everyone if each.bounced_at],
    }
    monkeypatch.setattr(reports, "SCANNED", 7)
    for result, ids in expected.items():
        found, cursor = await reports.list_people(room.pool, campaign, result=result, limit=3)
        while cursor:
            page, cursor = await reports.list_people(room.pool, campaign, result=result, limit=3, cursor=cursor)
            found += page
        assert (result, [each.id for each in found]) == (result, ids)
        assert ids
    one = everyone[17]
    shown = text_of(await guest.get(f"{path}?email={one.email.upper()}"))
    assert one.email in shown
    assert everyone[18].email not in shown
    assert "Nothing matches these filters." in text_of(await guest.get(f"{path}?email=x@example.org"))
    assert "The next page continues the search." in text_of(await guest.get(f"{path}?result=dead_letter"))
    assert (await guest.get(f"{path}?result=odd")).status == 400


async def test_people_are_exported_with_the_reply_of_the_server(
    room: Room, guest: Guest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The CSV has all people whom the filter chooses, of all pages, and the reply that refused or returned the mail."""
    monkeypatch.setattr(reports, "EXPORTED_PAGE", 7)
    campaign = await a_sent_campaign(room.pool, 60)
    path = f"/campaigns/{campaign}/people"
    await room.pool.execute(
        "UPDATE bounces AS b SET text = E'=550 no such\\nmailbox' FROM deliveries AS d"
        " WHERE d.id = b.delivery_id AND d.state = 'sent'"
    )
    everyone = await _exported(guest, f"{path}.csv")
    assert len(everyone) == len({row["Address"] for row in everyone}) == 60
    assert {row["Reason"] for row in everyone if row["Result"] == "sent" and not row["Bounced"]} == {""}
    for result in (PersonResult.FAILED, PersonResult.BOUNCED):
        people, _more = await reports.list_people(room.pool, campaign, result=result, limit=100)
        assert f'href="{path}.csv?result={result}"'.encode() in (await guest.get(f"{path}?result={result}")).body
        chosen = await _exported(guest, f"{path}.csv?result={result}")
        assert [row["Address"] for row in chosen] == [each.email for each in people]
    # The first was returned after it was sent: no spreadsheet runs it as a formula. The other was refused at once.
    assert {row["Reason"] for row in everyone if row["Bounced"]} == {"'=550 no such mailbox", "said so"}


async def _exported(guest: Guest, path: str) -> list[dict[str, str]]:
    """The records of a CSV file that a real server streams."""
    async with (
        served(guest.app) as url,
        aiohttp.ClientSession(headers={"cookie": guest.cookie or ""}) as client,
        asyncio.timeout(60),
        client.get(url + path) as response,
    ):
        assert response.status == 200
        return list(csv.DictReader((await response.text()).splitlines()))


async def test_a_draft_is_written_changed_copied_and_deleted(room: Room, guest: Guest) -> None:
    """An invalid form comes back with its values; each change is audited; a started campaign refuses changes."""
    wrong = await guest.submit("/campaigns/new", "/campaigns/new", **{**NEWS, "subject": "{{ oops"})
    assert wrong.status == 400
    assert b'value="{{ oops"' in wrong.body
    assert b'value="Autumn"' in wrong.body
    times = {"start_at": "2030-01-31T09:00", "local_time": "08:30", "time_zone": "Europe/Paris", "tracking": "on"}
    for field, value in {"start_at": "soon", "local_time": "99:00", "time_zone": "Moon", "from": "nobody"}.items():
        answer = await guest.submit("/campaigns/new", "/campaigns/new", **{**NEWS, **times, field: value})
        assert (field, answer.status) == (field, 400)
    made = await guest.submit("/campaigns/new", "/campaigns/new", **NEWS, **times)
    assert "The draft is saved." in text_of(await guest.get(made.headers["location"]))
    campaign = await service.get_campaign(room.pool, 1)
    assert campaign.plan.start_at is not None
    assert (campaign.plan.start_at.isoformat(), campaign.plan.time_zone) == (
        "2030-01-31T09:00:00+00:00",
        "Europe/Paris",
    )
    edit = (await guest.get("/campaigns/1/edit")).body
    assert b'value="2030-01-31T09:00"' in edit
    assert b'value="08:30"' in edit
    await guest.submit("/campaigns/1/edit", "/campaigns/1/edit", **{**NEWS, "html": "<p>one\r\ntwo</p>"})
    changed = (await service.get_campaign(room.pool, 1)).plan
    assert (changed.letter.html, changed.letter.is_tracked, changed.start_at) == ("<p>one\ntwo</p>", False, None)
    assert (await guest.submit("/campaigns/1/edit", "/campaigns/1/edit", **{**NEWS, "name": " "})).status == 400
    assert b'value="Autumn (copy)"' in (await guest.get("/campaigns/new?from=1")).body
    gone = await guest.submit("/campaigns/1", "/campaigns/1/delete")
    assert "The draft is deleted." in text_of(await guest.get(gone.headers["location"]))
    assert await actions_of(room) == ["create", "update", "delete"]
    running = await a_running_campaign(room.pool, 1)
    frozen = await guest.submit("/campaigns", f"/campaigns/{running}/edit", **NEWS)
    assert (frozen.status, "can no longer be changed" in text_of(frozen)) == (409, True)


async def test_the_list_shows_subjects_for_the_first_person(room: Room, guest: Guest) -> None:
    """Without people a merge field shows its name; a subject that cannot be rendered is shown as it was written."""
    for subject in ("Hi {{ first_name|default('friend', true) }}", "Dear {{ country }}", "Plain"):
        await guest.submit("/campaigns/new", "/campaigns/new", **{**NEWS, "name": subject[:4], "subject": subject})
    assert "Dear [country]" in text_of(await guest.get("/campaigns"))
    for campaign in (1, 2):
        await upload(room.pool, campaign, people_csv(3))
    listed = text_of(await guest.get("/campaigns"))
    assert "{{ first_name" not in listed
    assert "Dear {{ country }}" in listed  # no recipient has this field
    assert "Plai Plain draft" in listed


async def test_a_draft_begins_with_the_content_of_a_template(room: Room, guest: Guest, tmp_path: Path) -> None:
    """The parts of a locale are copied, MJML as HTML; a template that uses shared files cannot be copied."""
    files = {
        "plain/en/subject": "Hello {{ name }}\n",
        "plain/en/html": "<p>{{ name }}</p>",
        "plain/fr/subject": "Bonjour",
        "plain/fr/html.mjml": "<mjml><mj-body><mj-text>Salut {{ name }}</mj-text></mj-body></mjml>",
        "framed/en/subject": "Hi",
        "framed/en/html": '{% extends "_layouts/base.html" %}',
        "_layouts/base.html": "<p>x</p>",
    }
    await publish(room.pool, Catalog.load(BUILTIN_TEMPLATES), actor="cli:tests")
    assert b'name="template"' not in (await guest.get("/campaigns/new")).body
    await published(room.pool, tmp_path, files)
    blank = (await guest.get("/campaigns/new")).body.decode()
    offered = re.findall("<option[^>]*>([^<]*)</option>", blank.partition("</select>")[0])
    assert offered == ["empty", "framed/en", "plain/en", "plain/fr"]  # none of the templates of sign-ins and accounts
    assert (await guest.get("/campaigns/new?template=")).status == 200
    copied = (await guest.get("/campaigns/new?template=plain/en")).body.decode()
    assert 'value="Hello {{ name }}"' in copied
    assert "&lt;p&gt;{{ name }}&lt;/p&gt;</textarea>" in copied
    assert "Salut {{ name }}" in (await guest.get("/campaigns/new?template=plain/fr")).body.decode()
    refused = await guest.get("/campaigns/new?template=framed/en")
    assert (refused.status, "_layouts/base.html" in text_of(refused)) == (400, True)
    assert (await guest.get("/campaigns/new?template=plain/de")).status == 400
    assert (await guest.get("/campaigns/new?template=none/en")).status == 404


async def test_a_draft_names_the_accounts_that_send_it(room: Room, guest: Guest) -> None:
    """The accounts of the lane bulk are named, with the time that they need."""
    await a_campaign(room.pool, 3)
    assert "POSTROOM_TRANSPORT handles it" in text_of(await guest.get("/campaigns/1"))
    await an_account(room.pool, "news@shop.example", send_delay_ms=60_000)
    await an_account(room.pool, "codes@shop.example", lanes=["auth"])
    page = text_of(await guest.get("/campaigns/1"))
    assert "through 1 account: news@shop.example ; done about 3 min after a start now" in page


async def test_a_campaign_starts_pauses_resumes_and_is_cancelled(room: Room, guest: Guest) -> None:
    """The start is asked with its warnings; each step is audited; a step that the status forbids changes nothing."""
    await a_campaign(room.pool)
    asked = await guest.get("/campaigns/1/start")
    assert "The campaign has no recipients. Upload them first." in text_of(asked)
    assert b"Start the campaign" not in asked.body
    assert (await guest.submit("/campaigns/1", "/campaigns/1/start")).status == 400
    campaign = (await a_campaign(room.pool, 3)).id
    path = f"/campaigns/{campaign}"
    assert "3 people Content" in text_of(await guest.get(path)).replace(" Upload more ok", "").replace(
        " Upload more warn", ""
    )
    asked = await guest.get(f"{path}/start")
    assert "3 people get the mail, to everybody at once." in text_of(asked)
    assert "Text is missing; Postroom derives the text part" in text_of(asked)
    started = await guest.submit(path, f"{path}/start")
    assert "The campaign is started: 3 mails" in text_of(await guest.get(started.headers["location"]))
    assert "The campaign is active already." in text_of(await guest.get(f"{path}/start"))
    for step, button in (("pause", "Resume"), ("resume", "Pause"), ("cancel", "Duplicate")):
        done = await guest.submit(path, f"{path}/{step}")
        assert button in text_of(await guest.get(done.headers["location"]))
        assert (step, (await guest.submit(path, f"{path}/{step}")).status) == (step, 409)
    assert (await guest.submit(path, f"{path}/delete")).status == 409
    assert await actions_of(room) == ["start", "pause", "resume", "cancel"]


async def test_without_a_secret_key_no_campaign_starts(database_url: str) -> None:
    """The pages say which setting is missing, and a posted start is refused."""
    async with open_room(Settings(database_url=database_url)) as room:
        guest = await open_guest(room)
        await a_campaign(room.pool, 1)
        for path in ("/campaigns/1", "/campaigns/1/start"):
            assert "POSTROOM_SECRET_KEY is not set" in text_of(await guest.get(path))
        assert (await guest.submit("/campaigns/1", "/campaigns/1/start")).status == 409


async def test_a_test_mail_is_sent_to_addresses(room: Room, guest: Guest) -> None:
    """The test has the fields of the chosen person; a wrong address or person is explained."""
    await a_campaign(room.pool, 3)
    page = "/campaigns/1/content"
    done = await guest.submit(page, "/campaigns/1/test", to="me@example.org, you@example.org", person="p2@example.org")
    assert "A test mail is on its way to me@example.org, you@example.org." in text_of(
        await guest.get(done.headers["location"])
    )
    subjects = await room.pool.fetch("SELECT subject FROM delivery_payloads JOIN deliveries ON id = delivery_id")
    assert [row["subject"] for row in subjects] == ["[Test] News for Name2"] * 2
    wrong = await guest.submit(page, "/campaigns/1/test", to="nobody")
    assert (wrong.status, b'value="nobody"' in wrong.body) == (400, True)
    assert (await guest.submit(page, "/campaigns/1/test", to="me@example.org", person="x@example.org")).status == 404
    assert await actions_of(room) == ["test"]


async def test_the_preview_shows_the_form_as_it_stands(room: Room, guest: Guest) -> None:
    """The frame renders unsaved content for a person, lists warnings, and is a sandboxed document of its own."""
    await a_campaign(room.pool, 3)
    token = {"token": await guest.token("/campaigns/new")}
    blank = await guest.post("/campaigns/preview", {**token, **NEWS})
    assert "Leaves for [first_name]" in text_of(blank)
    assert "sandbox" in blank.headers["content-security-policy"]
    assert blank.headers["x-frame-options"] == "SAMEORIGIN"
    person = {**token, "campaign": "1", "person": "p1@example.org"}
    shown = await guest.post("/campaigns/preview", {**NEWS, **person, "html": "<script>x()</script><p>{{ city }}</p>"})
    assert "city" in text_of(shown)  # the field that is missing
    shown = await guest.post("/campaigns/preview", {**NEWS, **person, "html": "<script>x()</script><p>Hi</p>"})
    assert "Leaves for Name1" in text_of(shown)
    assert b"x()" not in shown.body
    assert "no unsubscribe link" in text_of(shown)
    for wrong in ({"subject": "{{ oops"}, {"from": "nobody"}, {"person": "x@example.org"}):
        answer = await guest.post("/campaigns/preview", {**NEWS, **person, **wrong})
        assert (wrong, answer.status, b'class="problem"' in answer.body) == (wrong, 200, True)
    [only], _more = await service.list_campaigns(room.pool)
    assert only.plan.name == "Spring"  # nothing was stored


async def test_unstorable_values_are_refused_by_name(room: Room, guest: Guest) -> None:
    """NUL characters and numbers beyond 64 bits are errors of the form, on every page that takes them."""
    await a_campaign(room.pool, 1)
    token = {"token": await guest.token("/")}
    for field in (*NEWS, "text", "reply_to", "start_at", "local_time", "time_zone"):
        given = {**token, **NEWS, field: "a\x00b"}
        assert (field, (await guest.post("/campaigns/new", given)).status) == (field, 400)
        assert (field, (await guest.post("/campaigns/1/edit", given)).status) == (field, 400)
        assert (field, (await guest.post("/campaigns/preview", given)).status) == (field, 200)
    for field, value in {"person": "a\x00b", "campaign": "9" * 30}.items():
        answer = await guest.post("/campaigns/preview", {**token, **NEWS, field: value})
        assert (field, answer.status, b'class="problem"' in answer.body) == (field, 200, True)
    for field in ("to", "person"):
        given = {**token, "to": "me@example.org", field: "a\x00b"}
        assert (field, (await guest.post("/campaigns/1/test", given)).status) == (field, 400)
    for path in ("/campaigns/1/people?email=%00", "/campaigns?name=%00", "/campaigns/1/content?person=%00"):
        assert (path, (await guest.get(path)).status) == (path, 400)
    for path in (f"/campaigns/{'9' * 30}", "/campaigns/1/people?cursor=x", "/campaigns/1/links?cursor=x"):
        assert (path, (await guest.get(path)).status in (400, 404)) == (path, True)


async def test_strangers_words_are_words_on_every_page(room: Room, guest: Guest) -> None:
    """Name, subject, sender, recipient, merge fields, links and rejected lines are escaped wherever they are shown."""
    hostile = " ".join(ATTACKS)
    fields = {"name": hostile[:190], "subject": hostile, "html": f"<p>{hostile}</p>", "from": NEWS["from"]}
    made = await guest.submit("/campaigns/new", "/campaigns/new", **fields)
    assert made.status == 303
    await room.pool.execute(
        "INSERT INTO campaign_recipients (campaign_id, email, name) VALUES (1, $1, $2)",
        f"{hostile}@example.org",
        hostile,
    )
    await room.pool.execute("INSERT INTO campaign_zones (campaign_id, time_zone) VALUES (1, '')")
    await room.pool.execute(
        "INSERT INTO click_events (email_queue_id, campaign_id, clicked_at, is_machine, recipient_email, link_url)"
        " VALUES (1, 1, now(), false, 'a@example.org', $1)",
        f"https://x.example/{hostile}",
    )
    await room.pool.execute(
        "INSERT INTO stat_deltas (hour, campaign_id, domain, metric) VALUES ('2030-06-01 10:00Z', 1, $1, 'bounced')",
        hostile,
    )
    paths = [f"/campaigns/1{view}" for view in (*VIEWS, "/edit", "/upload", "/start", "/preview")]
    paths += ["/campaigns", "/campaigns/new?from=1", "/campaigns/1/content?person=" + "%22%3E%3Cscript%3E"]
    bodies = {path: (await guest.get(path)).body.decode() for path in paths}
    await room.pool.execute("UPDATE campaigns SET status = 'active', started_at = now(), total_count = 1")
    bodies["started"] = (await guest.get("/campaigns/1")).body.decode()
    bodies["asked"] = (
        await guest.post("/campaigns/preview", {"token": await guest.token("/"), **fields})
    ).body.decode()
    for path, body in bodies.items():
        assert (
            path,
            [word for word in ("<script>alert", "<img src=x", "<svg onload", '"><script>') if word in body],
        ) == (
            path,
            [],
        )


async def test_pages_and_actions_need_their_scopes(room: Room) -> None:
    """A key that only reads sees no button and no form, and cannot act by a forged form; other keys see no page."""
    guest = await open_guest(room, "deliveries:read", "campaigns:read", name="reader")
    await a_campaign(room.pool, 1)
    campaign = await a_running_campaign(room.pool, 1)
    for path in ("/campaigns", "/campaigns/1", f"/campaigns/{campaign}", "/campaigns/1/people", "/campaigns/1/content"):
        page = await guest.get(path)
        assert (path, page.status, page.body.count(b'method="post"')) == (path, 200, 1)  # sign out
        assert b"/campaigns/new" not in page.body
    token = {"token": await guest.token("/")}
    steps = ("edit", "start", "pause", "resume", "cancel", "delete", "test")
    for path in ("/campaigns/new", "/campaigns/preview", *(f"/campaigns/1/{step}" for step in steps)):
        assert (path, (await guest.post(path, {**token, **NEWS})).status) == (path, 403)
    for path in ("/campaigns/new", "/campaigns/1/edit", "/campaigns/1/upload", "/campaigns/1/start"):
        assert (path, (await guest.get(path)).status) == (path, 403)
    stranger = await open_guest(room, "deliveries:read", name="stranger")
    assert (await stranger.get("/campaigns")).status == 403
    assert b'href="/campaigns"' not in (await stranger.get("/")).body


async def test_every_action_needs_the_token_of_the_session(room: Room, guest: Guest) -> None:
    """Without the token, or from another site, nothing happens."""
    await a_campaign(room.pool, 1)
    steps = ("edit", "start", "pause", "resume", "cancel", "delete", "test")
    token = {"token": await guest.token("/")}
    for path in ("/campaigns/new", "/campaigns/preview", *(f"/campaigns/1/{step}" for step in steps)):
        assert (path, (await guest.post(path, NEWS)).status) == (path, 403)
        assert (path, (await guest.post(path, {**NEWS, **token}, sec_fetch_site="cross-site")).status) == (path, 403)
    assert await actions_of(room) == []


async def test_the_streams_begin_with_every_part(room: Room) -> None:
    """The list and one campaign send their parts at once, and again when something changed."""
    stop = asyncio.Event()
    app = dashboard_app(room, stop=stop)
    guest = await open_guest(room, app=app)
    campaign = await a_running_campaign(room.pool, 2)
    async with (
        served(app) as url,
        aiohttp.ClientSession(headers={"cookie": guest.cookie or ""}) as client,
        asyncio.timeout(60),
        client.get(f"{url}/campaigns/live") as listed,
        client.get(f"{url}/campaigns/{campaign}/live") as one,
    ):
        assert tuple(await event_of(listed)) == ("list",)
        assert tuple(await event_of(one)) == ("head", "figures", "charts", "lists")
        await service.pause_campaign(room.pool, campaign, actor="tests")
        assert "Resume" in (await event_of(one))["head"]
        assert "paused" in (await event_of(listed))["list"]
        stop.set()


async def test_a_stream_ends_with_its_campaign(room: Room, guest: Guest) -> None:
    """The stream of a campaign that is deleted ends, and that of an unknown one is not found."""
    campaign = (await a_campaign(room.pool, 1)).id
    async with (
        served(guest.app) as url,
        aiohttp.ClientSession(headers={"cookie": guest.cookie or ""}) as client,
        asyncio.timeout(60),
        client.get(f"{url}/campaigns/{campaign}/live") as response,
    ):
        await event_of(response)
        await service.delete_campaign(room.pool, campaign, actor="tests")
        await response.content.read()  # to its end
    assert (await guest.get(f"/campaigns/{campaign}/live")).status == 404


async def event_of(response: aiohttp.ClientResponse) -> dict[str, str]:
    while True:
        line = await response.content.readline()
        if line.startswith(b"data: "):
            return msgspec.json.decode(line.removeprefix(b"data: "), type=dict[str, str])


async def test_a_start_whose_mail_fails_asks_for_a_tick_and_a_start_can_be_undone(room: Room, guest: Guest) -> None:
    """The page counts the mails that would fail; a scheduled campaign goes back to a draft before its first mail."""
    campaign = await a_campaign(room.pool, 3, html="<p>{{ city }}</p>", start_at=NOON)
    page = f"/campaigns/{campaign.id}"
    asked = await guest.get(f"{page}/start")
    assert "Start although 3 of 3 mails will fail" in text_of(asked)
    refused = await guest.submit(f"{page}/start", f"{page}/start")
    assert "would fail" in text_of(refused)
    await guest.submit(f"{page}/start", f"{page}/start", accept="on")
    assert (await service.get_campaign(room.pool, campaign.id)).status is CampaignStatus.ACTIVE
    assert "Back to draft" in text_of(await guest.get(page))
    await guest.submit(page, f"{page}/reopen")
    assert (await service.get_campaign(room.pool, campaign.id)).status is CampaignStatus.DRAFT
