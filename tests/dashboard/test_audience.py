"""Senders, destinations, suppressions and statistics: lists, actions, and that every action is audited."""

import json
import re
from datetime import UTC, datetime, timedelta

import pytest
from tests.support.builders import a_mail
from tests.support.dashboard import Guest, a_full_day, open_guest, text_of, tried
from tests.support.senders import account_of, an_account

from postroom.db.room import Room
from postroom.feedback.model import NewSuppression, SuppressionReason
from postroom.feedback.service import find_suppressions, suppress
from postroom.senders.model import SenderStatus


@pytest.fixture
async def guest(room: Room) -> Guest:
    return await open_guest(room)


async def actions_of(room: Room, group: str) -> list[str]:
    rows = await room.pool.fetch("SELECT action FROM audit_log WHERE action LIKE $1 ORDER BY id", f"{group}.%")
    return [row["action"] for row in rows]


async def test_senders_show_their_quota_and_why_they_rest(room: Room, guest: Guest) -> None:
    """The list has the quota of today and the stage of the warm-up; one account has all its facts, but no secret."""
    warm = await an_account(
        room.pool, "news@shop.example", status="warming_up", warmup_stage=3, warmup_current_limit=250, daily_sent=214
    )
    await an_account(
        room.pool, "bills@shop.example", status="paused", paused_by="health", status_reason="12 of 90 mails bounced"
    )
    listing = text_of(await guest.get("/senders"))
    assert "news@shop.example warming up" in listing
    assert "214 of 250" in listing
    assert "stage 3 of 6" in listing
    assert "12 of 90 mails bounced" in listing
    page = text_of(await guest.get(f"/senders/{warm}"))
    assert "50 a day 100 a day 250 a day" in page
    assert "SMTP host 127.0.0.1" in page


async def test_a_sender_is_paused_resumed_tested_and_deleted(room: Room, guest: Guest) -> None:
    """Each button changes the account and is audited; a failed test shows the step that failed."""
    sender = await an_account(room.pool, smtp_port=1)
    path = f"/senders/{sender}"
    done = await guest.submit(path, f"{path}/pause")
    assert "one@example.org is paused." in text_of(await guest.get(done.headers["location"]))
    assert (await account_of(room.pool, sender)).status is SenderStatus.PAUSED
    await guest.submit(path, f"{path}/resume")
    assert (await account_of(room.pool, sender)).status is SenderStatus.ACTIVE
    tried_out = text_of(await guest.submit(path, f"{path}/test"))
    assert "The test failed; the account is unchanged." in tried_out
    await guest.submit(path, f"{path}/delete")
    assert (await guest.get(path)).status == 404
    assert await actions_of(room, "sender") == ["sender.pause", "sender.resume", "sender.test", "sender.delete"]


async def test_a_sender_is_added_by_a_form_of_its_type(room: Room, guest: Guest) -> None:
    """Wrong fields come back with the form and its values, without the password; right ones make the account."""
    assert b'name="smtp_password"' in (await guest.get("/senders/new")).body
    assert b'name="ses_region"' in (await guest.get("/senders/new?type=ses")).body
    assert (await guest.get("/senders/new?type=pigeon")).status == 400
    fields = {"auth_type": "smtp", "email": "new@shop.example", "smtp_host": "smtp.shop.example", "smtp_port": "99999"}
    wrong = await guest.submit("/senders/new", "/senders/new", **fields, smtp_password="hunter2")
    assert wrong.status == 400
    assert b'value="smtp.shop.example"' in wrong.body
    assert b"hunter2" not in wrong.body
    assert b'name="smtp_use_tls" checked' in (await guest.get("/senders/new")).body
    assert b'name="smtp_use_tls" checked' not in wrong.body  # as it was posted
    more = {"smtp_port": "587", "smtp_use_tls": "on", "warmup": "on", "lanes": "bulk  auth"}
    assert (await guest.submit("/senders/new", "/senders/new", **{**fields, **more, "lanes": "pigeon"})).status == 400
    made = await guest.submit("/senders/new", "/senders/new", **{**fields, **more})
    assert "new@shop.example is added." in text_of(await guest.get(made.headers["location"]))
    assert await actions_of(room, "sender") == ["sender.create"]
    row = await room.pool.fetchrow("SELECT smtp_use_tls, lanes FROM sender_accounts")
    assert tuple(row) == (True, ["bulk", "auth"])


async def test_destinations_get_limits_and_lose_them(room: Room, guest: Guest) -> None:
    """A limit is set by a form and removed by a button; an invalid one is explained."""
    given = {"domain": "Example.ORG", "max_connections": "2", "messages_per_second": "0.5"}
    await guest.submit("/destinations/new", "/destinations/new", **given)
    assert "example.org active 2 0.5" in text_of(await guest.get("/destinations"))
    for wrong in [{"max_connections": "many"}, {"max_connections": "-1"}, {"max_connections": ""}]:
        answer = await guest.submit("/destinations/new", "/destinations/new", domain="x.example", **wrong)
        assert (wrong, answer.status) == (wrong, 400)
    await guest.submit("/destinations", "/destinations/delete", domain="example.org")
    assert "No domain has a limit or a pause." in text_of(await guest.get("/destinations"))
    assert await actions_of(room, "domain") == ["domain.put", "domain.delete"]


@pytest.mark.parametrize(
    "path, purpose, button",
    [
        ("/senders", "Add a sender for each mailbox that mail should leave by", "/senders/new"),
        ("/destinations", "Set a limit if a mailbox provider asks for slower mail", "/destinations/new"),
        ("/erasures", "Erase a person who asks for it", "/erasures/new"),
    ],
)
async def test_an_empty_page_says_what_it_is_for(guest: Guest, path: str, purpose: str, button: str) -> None:
    """The text is for people who do not know the settings, and one button begins."""
    page = await guest.get(path)
    assert purpose in text_of(page)
    assert "POSTROOM_" not in text_of(page)
    assert page.body.count(f'href="{button}"'.encode()) == 1


async def test_suppressions_are_searched_added_and_lifted(room: Room, guest: Guest) -> None:
    """The history of an address stays after it was lifted, and names who did it."""
    await suppress(
        room.pool, NewSuppression(email="bob@example.org", reason=SuppressionReason.COMPLAINT), actor="tests"
    )
    done = await guest.submit("/suppressions/new", "/suppressions/new", email="Ada@Example.org", detail="by phone")
    address = await guest.get(done.headers["location"])
    assert "This address gets no mail." in text_of(address)
    assert "ada@example.org" in text_of(await guest.get("/suppressions?email=ADA%40example.org")).lower()
    assert "bob@example.org" not in text_of(await guest.get("/suppressions?reason=manual"))
    assert (await guest.get("/suppressions?reason=odd")).status == 400
    await guest.submit("/suppressions/new", "/suppressions/lift", email="ada@example.org")
    assert await find_suppressions(room.pool, "ada@example.org") == []
    after = text_of(await guest.get("/suppressions/address?email=ada@example.org"))
    assert "This address is not suppressed." in after
    assert "lifted manual all" in after
    assert "key:1:operator" in after
    assert (await guest.submit("/suppressions/new", "/suppressions/new", email="nonsense")).status == 400
    assert await actions_of(room, "suppression") == ["suppression.add", "suppression.add", "suppression.lift"]


async def test_a_list_of_suppressions_goes_in_and_comes_out(room: Room, guest: Guest) -> None:
    """A pasted list is imported; rejected lines are named; the export can be imported again."""
    pasted = "email,reason\nada@example.org,complaint\nnonsense,manual\nbob@example.org,hard_bounce\n"
    page = text_of(await guest.submit("/suppressions/import", "/suppressions/import", list=pasted))
    assert "2 addresses were written, 1 line was rejected." in page
    assert "3 email:" in page
    exported = await guest.get("/suppressions/export")
    assert exported.headers["content-type"].startswith("text/csv")
    assert b"ada@example.org,complaint" in exported.body
    again = await guest.submit("/suppressions/import", "/suppressions/import", list=exported.body.decode())
    assert "0 lines were rejected" in text_of(again)
    assert await actions_of(room, "suppression") == ["suppression.import", "suppression.import"]


async def test_a_page_with_many_domains_stays_small(room: Room, guest: Guest) -> None:
    """The table shows the first rows and says how many are only in the CSV."""
    await room.pool.execute(
        "INSERT INTO stat_deltas (hour, campaign_id, sender_account_id, domain, metric, amount)"
        " SELECT date_trunc('hour', now(), 'UTC'), 0, 0, 'shop-' || n || '.example.org', 'sent', n"
        " FROM generate_series(1, 300) AS n"
    )
    page = await guest.get("/statistics?by=domain")
    assert "180 more rows are in the CSV." in text_of(page)
    assert len(page.body) < 100_000
    assert len((await guest.get("/statistics.csv?by=domain")).body.decode().splitlines()) == 301


async def test_statistics_compare_periods_and_are_exported(room: Room, guest: Guest) -> None:
    """By hour, day and domain; the CSV has every metric; wrong questions are refused by name."""
    await a_full_day(room.pool)
    await tried(room.pool, a_mail("ada@shop.example"))
    day = await guest.get("/statistics?days=1")
    assert "against" in text_of(day)
    assert day.body.count(b'<rect class="touch"') == 24
    one = (await guest.get("/statistics?days=1&by=day")).body.decode()
    assert re.search(r'<path class="bars is-now" d="M', one)  # a line through one point would be nothing
    assert (one.count('<rect class="touch"'), 'class="lines' in one) == (2, False)
    by_domain = text_of(await guest.get("/statistics?by=domain&metric=deferred"))
    assert "example.org" in by_domain
    assert "Domain Deferred Period before Sent Bounced" in by_domain  # accepted before the domain is known
    assert "none 0" not in by_domain
    csv = (await guest.get("/statistics.csv?by=domain")).body.decode().splitlines()
    assert csv[0].startswith("domain,accepted,sent,")
    assert any(line.startswith("example.org,") for line in csv)
    for query in [
        "by=moon",
        "template=order&domain=shop.example",
        "by=hour&days=30",
        "days=2",
        "metric=luck",
        "campaign=x",
        "sender=99999999999999999999",
        "until=yesterday",
        "other_until=0001-01-01",
    ]:
        assert (query, (await guest.get(f"/statistics?{query}")).status) == (query, 400)


async def test_statistics_compare_any_two_periods(room: Room, guest: Guest) -> None:
    """Each period ends with a chosen day, so that a week of this year stands beside one of the year before."""
    await a_full_day(room.pool)
    await tried(room.pool, a_mail("ada@shop.example"))
    today = datetime.now(UTC).date()
    swapped = f"/statistics?days=1&until={today - timedelta(days=400)}&other_until={today}"
    page = text_of(await guest.get(f"{swapped}&by=domain"))
    assert f"in the period to {today}" in page
    assert "Nothing was counted in this period." in page
    chart = (await guest.get(swapped)).body.decode()
    assert f"the period to {today}" in chart
    assert "against" in text_of(await guest.get(swapped))


async def test_statistics_by_template_and_tag(room: Room, guest: Guest) -> None:
    """Each row leads to its deliveries and has the amount of the period before; the total counts a mail once."""
    await room.pool.execute(
        "INSERT INTO stat_deltas (hour, template_id, tags, metric, amount)"
        " SELECT date_trunc('hour', now(), 'UTC') - days * interval '1 day', 'order', '{kind=receipt,shop=*}', 'sent',"
        "     sent"
        " FROM (VALUES (0, 40), (8, 70)) AS counted(days, sent)"
    )
    page = await guest.get("/statistics?by=tag")
    assert "Sent 40 -42.9 % against 70" in text_of(page)
    assert "kind=receipt 40 70" in text_of(page)
    assert "A mail with several tags counts for each of them" in text_of(page)
    assert b'href="/deliveries?tag=kind%3Dreceipt"' in page.body
    assert b"shop%3D" not in page.body
    page = await guest.get("/statistics?by=template&template=order")
    assert "order 40 70" in text_of(page)
    assert b'href="/deliveries?template=order"' in page.body
    for query, cells in {"by=tag&tag=shop%3D*": "shop=*,0,40,", "by=template": "order,0,40,"}.items():
        csv = (await guest.get(f"/statistics.csv?{query}")).body.decode().splitlines()
        assert [line.startswith(cells) for line in csv[1:]] == [True]
    week = await guest.get("/statistics?tag=kind%3Dreceipt&days=7&by=hour")
    assert week.body.count(b'<rect class="touch"') == 168
    assert len(week.body) < 100_000


async def test_pages_and_actions_need_their_scopes(room: Room) -> None:
    """A key that only reads sees no button of these pages, and cannot act by a forged form."""
    guest = await open_guest(room, "deliveries:read", "senders:read", "suppressions:read", name="reader")
    sender = await an_account(room.pool)
    await suppress(room.pool, NewSuppression(email="ada@example.org"), actor="tests")
    for path in ["/senders", f"/senders/{sender}", "/suppressions", "/suppressions/address?email=ada@example.org"]:
        page = await guest.get(path)
        assert (path, page.status, page.body.count(b"<form")) == (path, 200, 1 + page.body.count(b"data-search") + 1)
    token = {"token": await guest.token("/")}
    posts = [f"/senders/{sender}/{verb}" for verb in ("pause", "resume", "test", "delete")]
    posts += ["/senders/new", "/destinations/new", "/destinations/delete"]
    posts += ["/suppressions/new", "/suppressions/lift", "/suppressions/import"]
    for path in posts:
        assert (path, (await guest.post(path, token)).status) == (path, 403)
    for path in ["/statistics", "/statistics.csv", "/senders/new", "/suppressions/import"]:
        assert (path, (await guest.get(path)).status) == (path, 403)


async def test_a_sender_is_changed_by_a_form(room: Room, guest: Guest) -> None:
    """Only changed fields are written and audited; the secret is neither shown nor lost; wrong values come back."""
    sender = await an_account(
        room.pool, "one@example.org", smtp_host="smtp.shop.example", display_name="Shop", notes="old"
    )
    path = f"/senders/{sender}/edit"
    body = (await guest.get(path)).body.decode()
    values = dict(re.findall(r'<input name="(\w+)" type="\w+"(?: step="any")?(?: value="([^"]*)")?', body))
    assert (values["email"], values["smtp_password"]) == ("one@example.org", "")
    fields = {**values, "notes": "new", "daily_limit": "77"}
    assert (await guest.submit(path, path, **{**fields, "daily_limit": "0"})).status == 400
    assert (await guest.post(path, {**fields, "token": "x"})).status == 403
    done = await guest.submit(path, path, **fields)
    assert done.status == 303, text_of(done)
    assert "one@example.org is changed." in text_of(await guest.get(done.headers["location"]))
    account = await account_of(room.pool, sender)
    assert (account.daily_limit, account.notes, account.display_name) == (77, "new", "Shop")
    [entry] = await room.pool.fetch("SELECT after::text FROM audit_log WHERE action = 'sender.change'")
    assert json.loads(entry["after"]) == {"daily_limit": 77, "notes": "new"}
    reader = await open_guest(room, "deliveries:read", "senders:read")
    assert (await reader.get(path)).status == 403
