"""Unsubscribing: RFC 8058, the page, the preferences, and what they leave in the database."""

import aiohttp
import pytest
from tests.support.tracking import ADA, FIREFOX, Desk

from postroom.tracking import service
from postroom.tracking.model import LinkSubject, Origin, Visitor

ONE_CLICK = {"List-Unsubscribe": "One-Click"}
HOSTILE = LinkSubject(None, 9, '"<script>alert(1)</script>"@example.org')
STANDING = "SELECT reason::text FROM suppressions WHERE address = 'ada@example.org' AND scope = 'bulk'"


def multipart() -> aiohttp.FormData:
    form = aiohttp.FormData(default_to_multipart=True)
    form.add_field("List-Unsubscribe", "One-Click")
    return form


@pytest.mark.parametrize("encoding", ["urlencoded", "multipart", "nothing", "json", "large"])
async def test_a_post_unsubscribes_at_once(desk: Desk, encoding: str) -> None:
    """200 without redirect or cookie, whatever a mail program posts; the bulk lane is closed, and only that."""
    bodies = {"urlencoded": ONE_CLICK, "multipart": multipart(), "nothing": b"", "json": b"{}", "large": b"x" * 100_000}
    answer = await desk.post(desk.signer.unsubscribe_url(ADA), data=bodies[encoding])
    assert answer.status == 200
    assert not {"location", "set-cookie"} & set(answer.headers)
    assert "You are unsubscribed" in answer.body.decode()
    [row] = await desk.rows("SELECT address, scope::text, reason::text, origin, until, campaign_id FROM suppressions")
    assert tuple(row) == ("ada@example.org", "bulk", "unsubscribe", "one-click", None, 7)


async def test_the_evidence_is_kept(desk: Desk) -> None:
    """Who, when, from where, with what, by which mail: once, however often the link is used."""
    for _ in range(3):
        await desk.post(desk.signer.unsubscribe_url(ADA), data=ONE_CLICK)
    [row] = await desk.rows(
        "SELECT email, delivery_id, campaign_id, host(ip_address), user_agent, origin, resubscribed_at"
        " FROM unsubscriptions"
    )
    assert tuple(row) == ("ada@example.org", 41, 7, "127.0.0.1", FIREFOX, "one-click", None)
    assert await desk.figures() == {"unsubscribed": 1}


async def test_the_page_asks_for_a_reason_and_keeps_it(desk: Desk) -> None:
    """The question comes after the unsubscription; the answer is what `unsubscribe_list` and the suppression show."""
    url = desk.signer.unsubscribe_url(ADA)
    done = await desk.post(url, data={"from": "page"})
    assert 'name="reason" value="too_often"' in done.body.decode()
    thanks = await desk.post(url, data={"reason": "too_often"})
    assert "Your answer was stored" in thanks.body.decode()
    [row] = await desk.rows("SELECT email, unsubscribe_reason FROM unsubscribe_list")
    assert tuple(row) == ("ada@example.org", "too_often")
    assert await desk.value("SELECT detail FROM suppressions") == "too_often"
    assert await desk.figures() == {"unsubscribed": 1}


async def test_an_unknown_reason_is_not_stored(desk: Desk) -> None:
    """Whatever stands in the form, the person is unsubscribed."""
    await desk.post(desk.signer.unsubscribe_url(ADA), data={"reason": "<b>because</b>"})
    assert await desk.value("SELECT unsubscribe_reason FROM unsubscribe_list") == "one-click"


async def test_it_is_a_fact_that_names_no_person(desk: Desk) -> None:
    """One event, tagged with the delivery."""
    await desk.post(desk.signer.unsubscribe_url(ADA), data=ONE_CLICK)
    [row] = await desk.rows("SELECT tags, data::text AS data FROM events WHERE type = 'RecipientUnsubscribed'")
    assert row["tags"] == ["postroom.delivery=41"]
    assert "ada" not in row["data"].lower()


async def test_facts_can_be_switched_off(desk: Desk) -> None:
    """Where the fact is not recorded, unsubscribing works all the same."""
    await desk.pool.execute("DELETE FROM recorded_facts WHERE type = 'RecipientUnsubscribed'")
    assert (await desk.post(desk.signer.unsubscribe_url(ADA))).status == 200
    assert await desk.value("SELECT count(*) FROM events WHERE type = 'RecipientUnsubscribed'") == 0


@pytest.mark.parametrize("method", ["GET", "HEAD"])
async def test_opening_the_link_changes_nothing(desk: Desk, method: str) -> None:
    """A scanner that opens it unsubscribes nobody."""
    answer = await desk.ask(method, desk.signer.unsubscribe_url(ADA))
    assert answer.status == 200
    assert (b"<button" in answer.body) == (method == "GET")
    assert await desk.value("SELECT count(*) FROM suppressions") == 0


async def test_the_button_unsubscribes(desk: Desk) -> None:
    """What the page posts is told apart from a mail program's post."""
    await desk.post(desk.signer.unsubscribe_url(ADA), data={"from": "page"})
    assert await desk.value("SELECT origin FROM unsubscriptions") == "page"


@pytest.mark.parametrize("path", ["/unsubscribe/", "/unsubscribe/x/{}", "/unsubscribe/{}x", "/preferences/{}x"])
@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_a_forged_token_is_refused(desk: Desk, path: str, method: str) -> None:
    """404, and nobody is unsubscribed; a pixel's token is as good as a forged one."""
    token = desk.signer.unsubscribe_url(ADA).rpartition("/")[2]
    answer = await desk.ask(method, path.format(token))
    opening = await desk.ask(
        method, "/unsubscribe/" + desk.signer.open_url(ADA).rpartition("/")[2].removesuffix(".gif")
    )
    assert (answer.status, opening.status) == (404, 404)
    assert await desk.value("SELECT count(*) FROM suppressions") == 0


@pytest.mark.parametrize("path", ["/unsubscribe/", "/preferences/"])
async def test_other_methods_are_refused(desk: Desk, path: str) -> None:
    """405 with the methods that are allowed."""
    answer = await desk.ask("DELETE", path + desk.signer.unsubscribe_url(ADA).rpartition("/")[2])
    assert (answer.status, answer.headers["allow"]) == (405, "GET, HEAD, POST")


async def test_pages_hold_nothing_that_runs_or_loads(desk: Desk) -> None:
    """An address is shown as text, and the policy allows nothing but the page itself."""
    for url in (desk.signer.unsubscribe_url(HOSTILE), desk.signer.preferences_url(HOSTILE), "/track/click/<script>"):
        answer = await desk.get(url)
        assert b"<script" not in answer.body
        assert answer.headers["content-security-policy"].startswith(
            "default-src 'none'; style-src 'unsafe-inline'; form-"
        )
        assert (answer.headers["referrer-policy"], answer.headers["cache-control"]) == ("no-referrer", "no-store")


@pytest.mark.parametrize(
    "accept, lang",
    [
        ("", "en"),
        ("de", "de"),
        ("de-AT,en;q=0.5", "de"),
        ("en;q=0.5,de;q=0.9", "de"),
        ("fr,de;q=0.2", "de"),
        ("fr", "en"),
        ("de;q=0", "en"),
        ("de;q=nonsense", "en"),
    ],
)
async def test_pages_speak_the_visitor_s_language(desk: Desk, accept: str, lang: str) -> None:
    """German to who prefers it to English, English to everybody else."""
    answer = await desk.get(desk.signer.unsubscribe_url(ADA), headers={"Accept-Language": accept})
    assert f'<html lang="{lang}">' in answer.body.decode()


async def test_a_person_may_come_back(desk: Desk) -> None:
    """The preferences show how one stands and undo the unsubscription; the evidence of both stays."""
    url = desk.signer.preferences_url(ADA)
    assert "gets our mailings" in (await desk.get(url)).body.decode()
    assert "gets no mailings" in (await desk.post(url, data={"mailings": "off"})).body.decode()
    assert await desk.value(STANDING) == "unsubscribe"
    assert "gets our mailings" in (await desk.post(url, data={"mailings": "on"})).body.decode()
    assert await desk.value(STANDING) is None
    assert await desk.value("SELECT count(*) FROM unsubscriptions WHERE resubscribed_at IS NOT NULL") == 1
    [row] = await desk.rows("SELECT actor, action, subject FROM audit_log")
    assert tuple(row) == ("recipient", "suppression.undo", "delivery:41")
    await desk.post(url, data={"mailings": "off"})
    assert await desk.value("SELECT count(*) FROM unsubscriptions") == 2


async def test_a_form_that_says_nothing_changes_nothing(desk: Desk) -> None:
    """Posting to the preferences without a choice only shows them."""
    assert (await desk.post(desk.signer.preferences_url(ADA), data={"x": "y"})).status == 200
    assert await desk.value(STANDING) is None


@pytest.mark.parametrize("reason", ["manual", "hard_bounce", "complaint"])
async def test_coming_back_undoes_only_the_unsubscription(desk: Desk, reason: str) -> None:
    """An address that is closed for another reason stays closed, and the page says so."""
    await desk.pool.execute(
        "INSERT INTO suppressions (address, scope, reason) VALUES ('ada@example.org', 'all', $1::suppression_reason)",
        reason,
    )
    await desk.post(desk.signer.unsubscribe_url(ADA))
    answer = await desk.post(desk.signer.preferences_url(ADA), data={"mailings": "on"})
    assert "only we can change that" in answer.body.decode()
    assert await desk.value("SELECT reason::text FROM suppressions WHERE scope = 'all'") == reason
    assert await desk.value(STANDING) is None


async def test_unsubscribing_ends_a_temporary_suppression_for_good(desk: Desk) -> None:
    """What would have ended by itself next week does not end any more."""
    await desk.pool.execute(
        "INSERT INTO suppressions (address, scope, reason, until)"
        " VALUES ('ada@example.org', 'bulk', 'manual', now() + interval '7 days')"
    )
    visitor = Visitor(None, None)
    assert await service.unsubscribe(desk.pool, ADA, origin=Origin.PAGE, visitor=visitor) is True
    assert await service.unsubscribe(desk.pool, ADA, origin=Origin.PAGE, visitor=visitor) is False
    assert await desk.value("SELECT until IS NULL FROM suppressions") is True
