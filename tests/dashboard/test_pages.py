"""The pages over HTTP: what they show, what they refuse, what their buttons do."""

import html
import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from urllib.parse import quote

import pytest
from tests.support.builders import NO_ANSWER, REFUSED, Recording, a_mail, a_worker, accepted, state_of
from tests.support.campaigns import a_campaign_worker, a_running_campaign
from tests.support.dashboard import (
    Guest,
    ambiguous,
    captured,
    dashboard_app,
    given_up,
    hidden_fields,
    open_guest,
    text_of,
    tried,
)
from tests.support.http import Browser
from tests.support.senders import an_account

from postroom.campaigns.worker import Feeder
from postroom.dashboard.listing import PageAction
from postroom.dashboard.service import FRESH_S, Cached, FigureReader
from postroom.dashboard.site import POLICY
from postroom.db.room import Room
from postroom.delivery import service
from postroom.delivery.listing import pages
from postroom.delivery.model import DeliveryState, Lane

RAW = b"From: a@example.org\r\nSubject: Hi\r\nContent-Type: text/html\r\n\r\n<p style='color: red'>Hello</p>"


@pytest.fixture
async def guest(room: Room) -> Guest:
    return await open_guest(room)


async def test_every_answer_is_guarded(room: Room, guest: Guest) -> None:
    """Pages, refusals and redirects carry the policy, cannot be framed or sniffed, and are not kept by caches."""
    for path in ["/", "/deliveries", "/nothing", "/deliveries/999", "/sign-out", "/deliveries?status=odd"]:
        headers = (await guest.get(path)).headers
        assert headers["content-security-policy"] == POLICY
        assert (headers["x-frame-options"], headers["x-content-type-options"]) == ("DENY", "nosniff")
        assert headers["cache-control"] == "no-store"
        assert headers["x-request-id"]
    assert "unsafe" not in POLICY
    assert POLICY.startswith("default-src 'none';")


async def test_our_own_files_are_the_only_static_ones(guest: Guest) -> None:
    """Style, script and icon are served with their types; nothing else can be reached."""
    for name, kind in [("style.css", "text/css"), ("live.js", "text/javascript"), ("icon.svg", "image/svg+xml")]:
        response = await guest.get(f"/static/{name}")
        assert response.status == 200
        assert response.headers["content-type"].startswith(kind)
    for name in ["page.py", "../page.py", "..%2fpage.py", "", "style.css/"]:
        assert (await guest.get(f"/static/{name}")).status == 404


async def test_behind_the_api_an_unknown_path_stays_a_problem(room: Room) -> None:
    """Programs that mistype a path below /v1 get a problem document; people elsewhere get a page."""
    browser = Browser(dashboard_app(room))
    response = await browser.get("/v1/nonsense")
    assert (response.status, response.headers["content-type"]) == (404, "application/problem+json")
    assert response.json["code"] == "not_found"
    page = await browser.get("/nonsense")
    assert (page.status, page.headers["content-type"]) == (404, "text/html; charset=utf-8")
    assert (await browser.get("/healthz")).status == 200


async def test_a_refused_page_keeps_the_navigation(room: Room, guest: Guest) -> None:
    """Answers to unknown paths, unknown records and missing permissions have the links that the viewer may open."""
    reader = await open_guest(room, "deliveries:read", name="reader")
    for viewer, path, status in [(guest, "/nonsense", 404), (guest, "/deliveries/999", 404), (reader, "/keys", 403)]:
        answer = await viewer.get(path)
        assert (answer.status, b'<a href="/deliveries"' in answer.body) == (status, True)
        assert (b'<a href="/keys"' in answer.body) == (viewer is guest)
    assert b"<nav" not in (await Browser(dashboard_app(room)).get("/nonsense")).body


async def test_figures_are_read_once_for_all_viewers(room: Room) -> None:
    """Within their freshness the figures are the same object; afterwards they are read again."""
    moment = [0.0]
    reader = FigureReader(room.pool, monotonic=lambda: moment[0])
    first = await reader.read()
    await accepted(room.pool, a_mail())
    moment[0] += FRESH_S / 4
    assert await reader.read() is first
    assert reader.left_s() == pytest.approx(FRESH_S * 3 / 4)  # the stream of a later viewer waits for the same moment
    moment[0] += FRESH_S * 3 / 4
    waiting = {depth.lane: depth.waiting for depth in (await reader.read()).lanes}
    assert waiting[Lane.TRANSACTIONAL] == 1


async def test_a_slow_read_is_repeated_later() -> None:
    """A count that takes a second is not repeated every second, however many pages wait for it."""
    clock, reads = [0.0], 0

    async def read() -> int:
        nonlocal reads
        reads += 1
        clock[0] += 1.0
        return reads

    cached = Cached(read, fresh_s=FRESH_S, monotonic=lambda: clock[0])
    assert await cached.get() == 1
    clock[0] += 9.9
    assert await cached.get() == 1
    clock[0] += 0.1
    assert await cached.get() == 2


async def test_deliveries_are_listed_filtered_and_paged(room: Room, guest: Guest) -> None:
    """Newest first; a filter finds its own and keeps to them on the next page; a bad one is refused by name."""
    many = await accepted(room.pool, *[a_mail(f"p{n}@example.org", source="shop") for n in range(60)])
    await tried(room.pool, a_mail("ada@example.org", source="other"), reply=REFUSED)
    first = await guest.get("/deliveries?source=other")
    assert first.body.count(b"<tr>") == 2
    assert "failed" in text_of(first)
    assert (await guest.get("/deliveries?recipient=P7%40EXAMPLE.org")).body.count(b"<tr>") == 2
    assert (await guest.get("/deliveries?status=queued")).status == 200
    page = (await guest.get("/deliveries?source=shop&status=&template=")).body.decode()
    assert page.index(f">{many[-1]}<") < page.index(f">{many[-2]}<")
    older = page.partition('rel="next" href="')[2].partition('"')[0].replace("&amp;", "&")
    assert "source=shop" in older
    rest = await guest.get(older)
    assert rest.body.count(b"<tr>") == 11
    assert "Newest" in text_of(rest)
    for query in ["status=odd", "cursor=%00", "cursor=zzz", "source=" + "x" * 1001, "recipient=%00"]:
        response = await guest.get(f"/deliveries?{query}")
        assert (query, response.status) == (query, 400)


async def test_every_filter_of_deliveries_finds_its_own(room: Room, guest: Guest) -> None:
    """Each filter of the page alone selects the one delivery that has its value."""
    [refused] = await tried(room.pool, a_mail("bob@example.org", source="other"), reply=REFUSED)
    sender = await an_account(room.pool)
    campaign = await a_running_campaign(room.pool, ["cleo@example.com"])
    await Feeder(room.pool).run_once()
    of_campaign = await room.pool.fetchval("SELECT id FROM deliveries WHERE campaign_id = $1", campaign)
    mail = a_mail("Ann.Lee@shop.example", lane=Lane.BULK, source="shop", tags={"order": "42"}, idempotency_key="k-1")
    [wanted] = await accepted(room.pool, replace(mail, headers={"Message-ID": "<own@shop.example>"}))
    attempt = await room.pool.fetchrow(
        "SELECT message_id, reason FROM attempts JOIN deliveries ON id = delivery_id WHERE id = $1", refused
    )
    await room.pool.execute(
        "UPDATE deliveries SET created_at = '2026-01-05T10:00Z'::timestamptz - ($1::bigint - id) * interval '1 day',"
        " sender_account_id = CASE id WHEN $1 THEN $2::bigint END, template_id = CASE id WHEN $1 THEN 'welcome' END",
        wanted,
        sender,
    )  # ids and times grow together
    for query, expected in (
        ("status=failed", refused),
        ("lane=bulk&source=shop", wanted),
        ("recipient=n.LEE", wanted),
        ("domain=shop.example", wanted),
        ("source=other", refused),
        ("template=welcome", wanted),
        (f"campaign={campaign}", of_campaign),
        (f"sender={sender}", wanted),
        ("tag=order%3D42", wanted),
        ("key=k-1", wanted),
        ("message_id=own%40shop.example", wanted),
        (f"message_id={quote(attempt['message_id'])}", refused),
        (f"reason={attempt['reason']}", refused),
        ("from=2026-01-05T00:00&before=2026-01-06T00:00", wanted),
    ):
        listed = re.findall(r'href="/deliveries/(\d+)"', (await guest.get(f"/deliveries?{query}")).body.decode())
        assert (query, set(listed)) == (query, {str(expected)})


async def test_an_unfinished_search_is_marked_for_the_script(
    room: Room, guest: Guest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The script follows the link of a page that found nothing so far; the last page is the end of the search."""
    monkeypatch.setattr(pages, "EXAMINED", 2)
    await accepted(room.pool, *(a_mail("bob@example.org") for _ in range(3)))
    first = (await guest.get("/deliveries?recipient=ada")).body.decode()
    [link] = re.findall(r'<a class="button" rel="next" href="([^"]+)"', first)
    last = (await guest.get(html.unescape(link))).body.decode()
    assert ("data-unfinished" in first, "data-unfinished" in last) == (True, False)


async def test_a_delivery_is_shown_with_all_its_facts(room: Room, guest: Guest) -> None:
    """Recipients with their outcomes, every attempt with what the other side said, times with their ISO form."""
    mail = a_mail("ada@example.org", cc=a_mail("bob@example.org").to, tags={"order": "4711"}, custom_data={"a": [1]})
    [delivery_id] = await tried(room.pool, mail)
    page = await guest.get(f"/deliveries/{delivery_id}")
    text = text_of(page)
    for fact in ["ada@example.org delivered 250", "cc bob@example.org", "250 2.0.0 queued as 7", "mx.example.org:25"]:
        assert fact in text
    for fact in ["TLSv1.3", "final", "order=4711", "Hello, Ada.", '"a": [']:
        assert fact in text
    finished = await room.pool.fetchval("SELECT finished_at FROM deliveries WHERE id = $1", delivery_id)
    moment = finished.astimezone(UTC)
    exact = f'datetime="{moment.isoformat().replace("+00:00", "Z")}" title="{moment:%Y-%m-%d %H:%M:%S} UTC (UTC+00:00)"'
    assert exact.encode() in page.body
    assert "UTC" in text


async def test_a_delivery_cancelled_before_its_first_attempt_is_not_pending(room: Room, guest: Guest) -> None:
    """A recipient of a cancelled delivery is not pending, whatever the row says."""
    [delivery_id] = await accepted(room.pool, a_mail())
    assert "No attempt was made yet." in text_of(await guest.get(f"/deliveries/{delivery_id}"))
    await service.cancel(room.pool, delivery_id, actor="tests")
    text = text_of(await guest.get(f"/deliveries/{delivery_id}"))
    assert "No attempt was made." in text
    assert "not delivered" in text
    assert "pending" not in text


async def test_senders_and_destinations_stand_with_the_mail(guest: Guest) -> None:
    """They are no audience: people who write campaigns find only campaigns, suppressions and statistics there."""
    mail, _, rest = (await guest.get("/")).body.decode().partition("<p>Audience</p>")
    audience = re.findall('href="([^"]+)" data-go', rest.partition("</ul>")[0])
    assert audience == ["/campaigns", "/suppressions", "/statistics"]
    assert 'href="/senders" data-go' in mail
    assert 'href="/destinations" data-go' in mail


async def test_pages_below_a_list_lead_back_to_it(guest: Guest) -> None:
    """A page of the navigation has no crumb, the pages below it begin with its name."""
    for path, above in (("/deliveries/new", "/deliveries"), ("/senders/new", "/senders"), ("/people/new", "/schedule")):
        crumb = f'<nav class="crumb" aria-label="Above this page"><a href="{above}">'
        assert crumb in (await guest.get(path)).body.decode()
    for path in ("/deliveries", "/senders", "/storage/backups"):
        assert 'class="crumb"' not in (await guest.get(path)).body.decode()


def test_actions_that_take_something_away_are_marked() -> None:
    """The last button of a deletion is red, whichever page has it."""
    labels = ("Delete", "Cancel this message", "Resume", "Add a sender")
    marks = [PageAction(label=label, path="/", scope="x").is_final for label in labels]
    assert marks == [True, True, False, False]


async def test_unknown_ids_are_not_found(guest: Guest) -> None:
    """Unknown ids, also those beyond any the database can hold, answer 404 as a page."""
    for path in ["/deliveries/999", f"/deliveries/{2**63}", "/deliveries/" + "9" * 300, "/deliveries/x", "/inbox/9"]:
        assert (path, (await guest.get(path)).status) == (path, 404)
    assert (await guest.get("/sign-out")).status == 405


async def test_one_time_codes_stay_hidden(room: Room, guest: Guest) -> None:
    """Neither list, page nor preview shows subject or body of the auth lane, as the API does not."""
    [delivery_id] = await accepted(
        room.pool, a_mail(lane=Lane.AUTH, subject="Code 424242", text="424242", html="<b>424242</b>")
    )
    for path in ["/deliveries", f"/deliveries/{delivery_id}", f"/deliveries/{delivery_id}/preview"]:
        assert b"424242" not in (await guest.get(path)).body
    assert (await guest.get(f"/deliveries/{delivery_id}/preview")).status == 404
    assert "(code, hidden)" in text_of(await guest.get("/deliveries"))
    assert "Hidden" in text_of(await guest.get(f"/deliveries/{delivery_id}"))


async def test_buttons_do_what_they_say_and_are_audited(room: Room, guest: Guest) -> None:
    """Cancel, resend and retry change the delivery, lead back to it, and name the key in the audit log."""
    later = datetime.now(UTC) + timedelta(days=1)
    [one, two] = await accepted(room.pool, a_mail(send_at=later), a_mail(send_at=later))
    done = await guest.submit(f"/deliveries/{one}", f"/deliveries/{one}/cancel")
    assert (done.status, done.headers["location"].partition("&")[0]) == (
        303,
        f"/deliveries/{one}?done=The+delivery+is+cancelled.",
    )
    assert "The delivery is cancelled." in text_of(await guest.get(done.headers["location"]))
    assert await state_of(room.pool, one) is DeliveryState.CANCELLED
    resent = await guest.submit(f"/deliveries/{one}", f"/deliveries/{one}/resend")
    clone = int(resent.headers["location"].split("/")[2].partition("?")[0])
    assert f"Resend of {one}" in text_of(await guest.get(f"/deliveries/{clone}"))
    await guest.submit(f"/deliveries/{two}", f"/deliveries/{two}/retry")
    assert await room.pool.fetchval("SELECT next_attempt_at <= now() FROM deliveries WHERE id = $1", two)
    rows = await room.pool.fetch(
        "SELECT actor, action, subject FROM audit_log WHERE action LIKE 'delivery%' ORDER BY id"
    )
    assert [tuple(row) for row in rows] == [
        ("key:1:operator", "delivery.cancel", f"delivery:{one}"),
        ("key:1:operator", "delivery.resend", f"delivery:{one}"),
        ("key:1:operator", "delivery.retry", f"delivery:{two}"),
    ]
    again = await guest.submit(f"/deliveries/{one}", f"/deliveries/{one}/cancel")
    assert again.status == 409
    assert "A delivery that is cancelled cannot be cancelled." in text_of(again)


async def test_looking_is_not_operating(room: Room) -> None:
    """With deliveries:read alone there are no buttons, forms are refused, and the inbox is closed."""
    guest = await open_guest(room, "deliveries:read", name="reader")
    [delivery_id] = await accepted(room.pool, a_mail())
    page = await guest.get(f"/deliveries/{delivery_id}")
    assert b"/cancel" not in page.body
    assert b'href="/inbox"' not in page.body
    token = {"token": await guest.token("/")}
    steps = [f"/deliveries/{delivery_id}/{verb}" for verb in ("cancel", "retry", "resend")]
    for path in [*steps, "/deliveries/mass-actions", f"/dead-letters/{delivery_id}/settle"]:
        assert (path, (await guest.post(path, token)).status) == (path, 403)
    for path in ["/deliveries/mass-actions/new?kind=retry", "/inbox", "/inbox/1", "/inbox/1/preview", "/inbox/1/raw"]:
        assert (path, (await guest.get(path)).status) == (path, 403)
    assert await state_of(room.pool, delivery_id) is DeliveryState.QUEUED


async def test_redriving_counts_first_and_moves_only_what_was_counted(room: Room, guest: Guest) -> None:
    """The dry run shows a count and changes nothing; what is given up after it stays where it is."""
    one = await given_up(room.pool, a_mail(source="shop"))
    await given_up(room.pool, a_mail(source="other"))
    [waiting] = await accepted(room.pool, a_mail(source="shop", lane=Lane.BULK))
    asked = await guest.get("/deliveries/mass-actions/new?kind=retry&status=dead_letter&source=shop&reason=&template=")
    assert "1 delivery would be made due now" in text_of(asked)
    assert await state_of(room.pool, one) is DeliveryState.DEAD_LETTER
    fields = hidden_fields(asked)
    await a_worker(room.pool, Recording(NO_ANSWER)).run_once(Lane.BULK)
    late = await given_up(room.pool, a_mail(source="shop"))
    await guest.post("/deliveries/mass-actions", fields)
    states = [await state_of(room.pool, each) for each in (one, waiting, late)]
    assert states == [DeliveryState.QUEUED, DeliveryState.DEAD_LETTER, DeliveryState.DEAD_LETTER]
    actor = await room.pool.fetchval("SELECT actor FROM audit_log WHERE action = 'delivery.mass_retry'")
    assert actor == "key:1:operator"


async def test_dead_letters_are_counted_by_reason(room: Room, guest: Guest) -> None:
    """Each group leads to its letters and to the page that counts and redrives them; readers see no button."""
    await given_up(room.pool, a_mail(subject="Your order"))
    await ambiguous(room.pool)
    page = await guest.get("/dead-letters")
    assert "ambiguous 1" in text_of(page)
    assert b'href="/deliveries/mass-actions/new?kind=retry&amp;status=dead_letter&amp;reason=ambiguous"' in page.body
    reader = await open_guest(room, "deliveries:read")
    assert "mass-actions/new" not in (await reader.get("/dead-letters")).body.decode()


async def test_an_ambiguous_letter_is_settled(room: Room, guest: Guest) -> None:
    """An operator who knows that it had arrived says so; for others there is no such button."""
    unclear, plain = await ambiguous(room.pool), await given_up(room.pool)
    listing = await guest.get("/dead-letters")
    assert f"/dead-letters/{unclear}/settle".encode() in listing.body
    assert f"/dead-letters/{plain}/settle".encode() not in listing.body
    await guest.submit(f"/deliveries/{unclear}", f"/dead-letters/{unclear}/settle")
    assert await state_of(room.pool, unclear) is DeliveryState.SENT
    assert (await guest.submit("/", f"/dead-letters/{plain}/settle")).status == 404
    assert (await guest.get("/dead-letters?reason=ambiguous")).body.count(b"<tr>") == 0
    assert (await guest.get("/dead-letters?reason=odd")).status == 400


async def test_an_ambiguous_delivery_says_what_is_known(room: Room, guest: Guest) -> None:
    """Its recipients are neither pending nor untried, and sending it again asks first, naming the risk."""
    delivery_id = await ambiguous(room.pool)
    text = text_of(await guest.get(f"/deliveries/{delivery_id}"))
    assert "ada@example.org ambiguous unknown: the content was transmitted, no reply was recorded" in text
    assert "If it had arrived, the person gets it twice." in text
    assert "pending" not in text
    assert "not delivered" not in text
    listing = text_of(await guest.get("/dead-letters"))
    assert "If it had arrived, the person gets it twice." in listing
    assert "ada@example.org Hello" in listing


async def test_campaign_mail_is_shown_with_its_subject_and_campaign(room: Room, guest: Guest) -> None:
    """The list, the page and the dead letters name the campaign and its subject, although no content is stored."""
    campaign = await a_running_campaign(room.pool, ["ada@example.org"], name="May", subject="News of May")
    await Feeder(room.pool).run_once()
    await a_campaign_worker(room.pool, Recording(NO_ANSWER)).run_once(Lane.BULK)
    [row] = await room.pool.fetch("SELECT id FROM deliveries WHERE campaign_id = $1", campaign)
    for path in ["/deliveries", f"/deliveries/{row['id']}", "/dead-letters", "/"]:
        text = text_of(await guest.get(path))
        assert ("News of May" in text, "May" in text.replace("News of May", "")) == (True, True), path


async def test_the_inbox_lists_shows_and_hands_out(room: Room, guest: Guest) -> None:
    """Captured messages by recipient, one with its headers, its preview walled in, its bytes as a file."""
    message_id = await captured(room.pool, RAW, subject="Hi")
    await captured(room.pool, RAW, subject="Else", to="bob@example.org")
    assert (await guest.get("/inbox")).body.count(b"<tr>") == 3
    assert (await guest.get("/inbox?to=BOB%40example.org")).body.count(b"<tr>") == 2
    page = await guest.get(f"/inbox/{message_id}")
    assert "Subject Hi" in text_of(await guest.get(f"/inbox/{message_id}?view=headers"))
    assert f'src="/inbox/{message_id}/preview"'.encode() in page.body
    preview = await guest.get(f"/inbox/{message_id}/preview")
    assert b'<p style="color:red">Hello</p>' in preview.body
    assert preview.headers["content-security-policy"].endswith("sandbox")
    assert preview.headers["x-frame-options"] == "SAMEORIGIN"
    raw = await guest.get(f"/inbox/{message_id}/raw")
    assert (raw.body, raw.headers["content-type"]) == (RAW, "message/rfc822")
    assert raw.headers["content-disposition"].startswith("attachment")
    assert raw.headers["x-content-type-options"] == "nosniff"


async def test_a_fault_of_ours_says_nothing_of_its_cause(room: Room, guest: Guest) -> None:
    """A page that breaks answers 500 with a reference to the log, and without a word of the database's."""
    await room.pool.execute("ALTER TABLE api_keys RENAME TO hidden_keys")
    response = await guest.get("/")
    assert response.status == 500
    assert f"Reference for the log: {response.headers['x-request-id']}" in text_of(response)
    assert "api_keys" not in text_of(response)
