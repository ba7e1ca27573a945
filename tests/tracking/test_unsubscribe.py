"""Unsubscribes: RFC 8058, the page, the preferences, and their rows."""

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
async def test_post_unsubscribes_at_once(desk: Desk, encoding: str) -> None:
    """The response is 200 without redirect or cookie for any body; only bulk mail is suppressed."""
    bodies = {"urlencoded": ONE_CLICK, "multipart": multipart(), "nothing": b"", "json": b"{}", "large": b"x" * 100_000}
    answer = await desk.post(desk.signer.unsubscribe_url(ADA), data=bodies[encoding])
    assert answer.status == 200
    assert not {"location", "set-cookie"} & set(answer.headers)
    assert "You are unsubscribed" in answer.body.decode()
    [row] = await desk.rows("SELECT address, scope::text, reason::text, origin, until, campaign_id FROM suppressions")
    assert tuple(row) == ("ada@example.org", "bulk", "unsubscribe", "one-click", None, 7)


async def test_evidence_is_stored(desk: Desk) -> None:
    """Address, time, origin, agent and delivery are stored once, however often the link is used."""
    for _ in range(3):
        await desk.post(desk.signer.unsubscribe_url(ADA), data=ONE_CLICK)
    [row] = await desk.rows(
        "SELECT email, delivery_id, campaign_id, host(ip_address), user_agent, origin, resubscribed_at"
        " FROM unsubscriptions"
    )
    assert tuple(row) == ("ada@example.org", 41, 7, "127.0.0.1", FIREFOX, "one-click", None)
    assert await desk.figures() == {"unsubscribed": 1}


async def test_page_asks_for_a_reason_and_stores_it(desk: Desk) -> None:
    """The question follows the unsubscribe; `unsubscribe_list` and the suppression show the answer."""
    url = desk.signer.unsubscribe_url(ADA)
    done = await desk.post(url, data={"from": "page"})
    assert 'name="reason" value="too_often"' in done.body.decode()
    thanks = await desk.post(url, data={"reason": "too_often"})
    assert "Your answer was stored" in thanks.body.decode()
    [row] = await desk.rows("SELECT email, unsubscribe_reason FROM unsubscribe_list")
    assert tuple(row) == ("ada@example.org", "too_often")
    assert await desk.value("SELECT detail FROM suppressions") == "too_often"
    assert await desk.figures() == {"unsubscribed": 1}


async def test_unknown_reason_is_not_stored(desk: Desk) -> None:
    """The person is unsubscribed whatever the form contains."""
    await desk.post(desk.signer.unsubscribe_url(ADA), data={"reason": "<b>because</b>"})
    assert await desk.value("SELECT unsubscribe_reason FROM unsubscribe_list") == "one-click"


async def test_unsubscribe_fact_contains_no_address(desk: Desk) -> None:
    """One event is recorded, tagged with the delivery."""
    await desk.post(desk.signer.unsubscribe_url(ADA), data=ONE_CLICK)
    [row] = await desk.rows("SELECT tags, data::text AS data FROM events WHERE type = 'RecipientUnsubscribed'")
    assert row["tags"] == ["postroom.delivery=41"]
    assert "ada" not in row["data"].lower()


async def test_unsubscribe_fact_can_be_disabled(desk: Desk) -> None:
    """Without the recorded fact, unsubscribing still works."""
    await desk.pool.execute("DELETE FROM recorded_facts WHERE type = 'RecipientUnsubscribed'")
    assert (await desk.post(desk.signer.unsubscribe_url(ADA))).status == 200
    assert await desk.value("SELECT count(*) FROM events WHERE type = 'RecipientUnsubscribed'") == 0


@pytest.mark.parametrize("method", ["GET", "HEAD"])
async def test_get_does_not_unsubscribe(desk: Desk, method: str) -> None:
    """A scanner that opens the link unsubscribes no address."""
    answer = await desk.ask(method, desk.signer.unsubscribe_url(ADA))
    assert answer.status == 200
    assert (b"<button" in answer.body) == (method == "GET")
    assert await desk.value("SELECT count(*) FROM suppressions") == 0


async def test_button_unsubscribes(desk: Desk) -> None:
    """The origin distinguishes the page's button from a mail client's POST."""
    await desk.post(desk.signer.unsubscribe_url(ADA), data={"from": "page"})
    assert await desk.value("SELECT origin FROM unsubscriptions") == "page"


@pytest.mark.parametrize("path", ["/unsubscribe/", "/unsubscribe/x/{}", "/unsubscribe/{}x", "/preferences/{}x"])
@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_forged_token_is_rejected(desk: Desk, path: str, method: str) -> None:
    """A forged token or a pixel token gets 404 and unsubscribes no address."""
    token = desk.signer.unsubscribe_url(ADA).rpartition("/")[2]
    answer = await desk.ask(method, path.format(token))
    opening = await desk.ask(
        method, "/unsubscribe/" + desk.signer.open_url(ADA).rpartition("/")[2].removesuffix(".gif")
    )
    assert (answer.status, opening.status) == (404, 404)
    assert await desk.value("SELECT count(*) FROM suppressions") == 0


@pytest.mark.parametrize("path", ["/unsubscribe/", "/preferences/"])
async def test_other_methods_are_rejected(desk: Desk, path: str) -> None:
    """Other methods get 405 with the allowed ones."""
    answer = await desk.ask("DELETE", path + desk.signer.unsubscribe_url(ADA).rpartition("/")[2])
    assert (answer.status, answer.headers["allow"]) == (405, "GET, HEAD, POST")


async def test_pages_run_and_load_nothing(desk: Desk) -> None:
    """An address is shown as text, and the content security policy blocks all resources."""
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
async def test_pages_use_the_visitors_language(desk: Desk, accept: str, lang: str) -> None:
    """Visitors who prefer German get German, all others English."""
    answer = await desk.get(desk.signer.unsubscribe_url(ADA), headers={"Accept-Language": accept})
    assert f'<html lang="{lang}">' in answer.body.decode()


async def test_person_can_resubscribe(desk: Desk) -> None:
    """The preferences show the status and undo the unsubscribe; the evidence of both stays."""
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


async def test_form_without_a_choice_changes_nothing(desk: Desk) -> None:
    """A POST to the preferences without a choice only shows them."""
    assert (await desk.post(desk.signer.preferences_url(ADA), data={"x": "y"})).status == 200
    assert await desk.value(STANDING) is None


@pytest.mark.parametrize("reason", ["manual", "hard_bounce", "complaint"])
async def test_resubscribe_undoes_only_the_unsubscribe(desk: Desk, reason: str) -> None:
    """An address that is suppressed for another reason stays suppressed, and the page says so."""
    await desk.pool.execute(
        "INSERT INTO suppressions (address, scope, reason) VALUES ('ada@example.org', 'all', $1::suppression_reason)",
        reason,
    )
    await desk.post(desk.signer.unsubscribe_url(ADA))
    answer = await desk.post(desk.signer.preferences_url(ADA), data={"mailings": "on"})
    assert "only we can change that" in answer.body.decode()
    assert await desk.value("SELECT reason::text FROM suppressions WHERE scope = 'all'") == reason
    assert await desk.value(STANDING) is None


async def test_unsubscribe_makes_a_temporary_suppression_permanent(desk: Desk) -> None:
    """A suppression with an end becomes permanent by an unsubscribe."""
    await desk.pool.execute(
        "INSERT INTO suppressions (address, scope, reason, until)"
        " VALUES ('ada@example.org', 'bulk', 'manual', now() + interval '7 days')"
    )
    visitor = Visitor(None, None)
    assert await service.unsubscribe(desk.pool, ADA, origin=Origin.PAGE, visitor=visitor) is True
    assert await service.unsubscribe(desk.pool, ADA, origin=Origin.PAGE, visitor=visitor) is False
    assert await desk.value("SELECT until IS NULL FROM suppressions") is True
