"""HTTP endpoints of suppressions: responses, filters, lifting, import and export."""

import pytest
from tests.support.builders import a_mail, accepted, state_of
from tests.support.feedback import a_bounce, a_complaint, rows, sent
from tests.support.http import Browser, open_browser

from postroom.db.pool import Pool
from postroom.db.room import Room
from postroom.feedback import api
from postroom.feedback.model import Feedback
from postroom.feedback.record import record
from postroom.http.asgi import HttpApplication
from postroom.http.auth import Authenticator


@pytest.fixture
async def browser(room: Room) -> Browser:
    app = HttpApplication(room, api.ENDPOINTS, auth=Authenticator(room.pool))
    return await open_browser(room, app=app)


async def add(browser: Browser, email: str, **fields: object) -> dict[str, object]:
    answer = await browser.post("/v1/suppressions", json={"email": email, **fields})
    assert answer.status == 201
    made: dict[str, object] = answer.json
    return made


async def emails(browser: Browser, query: str = "") -> list[str]:
    return [item["email"] for item in (await browser.get(f"/v1/suppressions{query}")).json["items"]]


async def test_suppressed_address_gets_no_mail(browser: Browser, pool: Pool) -> None:
    """The address is stored in lower case with its reason, and no mail to it is accepted."""
    made = await add(browser, "Ada@Example.org", reason="hard_bounce", origin="crm", campaign_id=7, detail="moved")
    given = {name: made[name] for name in ("email", "reason", "scope", "origin", "campaign_id", "until", "detail")}
    assert given == {
        "email": "ada@example.org",
        "reason": "hard_bounce",
        "scope": "all",
        "origin": "crm",
        "campaign_id": 7,
        "until": None,
        "detail": "moved",
    }
    (delivery_id,) = await accepted(pool, a_mail("ADA@example.org"))
    assert await state_of(pool, delivery_id) == "suppressed"


@pytest.mark.parametrize("reason, scope", [("unsubscribe", "bulk"), ("complaint", "all"), ("manual", "all")])
async def test_scope_follows_the_reason(browser: Browser, reason: str, scope: str) -> None:
    """An unsubscribe blocks bulk mail, every other reason all mail."""
    assert (await add(browser, "ada@example.org", reason=reason))["scope"] == scope


async def test_second_suppression_keeps_the_more_severe_reason(browser: Browser) -> None:
    """A manual suppression never lowers the severity."""
    await add(browser, "ada@example.org", reason="complaint")
    assert (await add(browser, "ada@example.org", reason="manual"))["reason"] == "complaint"


@pytest.mark.parametrize(
    "body, field",
    [
        ({"email": "nonsense"}, "email"),
        ({"email": "ada@example.org", "reason": "because"}, "reason"),
        ({"email": "ada@example.org", "colour": "blue"}, "colour"),
        ({}, "email"),
        ({"email": "ada@example.org", "campaign_id": -1}, "campaign_id"),
    ],
)
async def test_invalid_fields_return_400(browser: Browser, body: dict[str, object], field: str) -> None:
    """The problem names each invalid field."""
    answer = await browser.post("/v1/suppressions", json=body)
    assert (answer.status, answer.fields) == (400, [field])


async def test_list_by_filters_and_pages(browser: Browser) -> None:
    """Suppressions are listed newest first, by address in any case, reason and origin, with a cursor."""
    for number, reason in enumerate(["manual", "complaint", "manual"]):
        await add(browser, f"p{number}@example.org", reason=reason, origin=f"o{number}")
    assert await emails(browser) == ["p2@example.org", "p1@example.org", "p0@example.org"]
    assert await emails(browser, "?email=P1@Example.org") == ["p1@example.org"]
    assert await emails(browser, "?reason=manual") == ["p2@example.org", "p0@example.org"]
    assert await emails(browser, "?origin=o1") == ["p1@example.org"]
    first = (await browser.get("/v1/suppressions?limit=2")).json
    assert await emails(browser, f"?limit=2&cursor={first['next_cursor']}") == ["p0@example.org"]
    assert (await browser.get("/v1/suppressions?cursor=!")).status == 400


@pytest.mark.parametrize("as_body", [True, False])
async def test_lift_is_recorded(browser: Browser, pool: Pool, *, as_body: bool) -> None:
    """Mail is accepted again; the history and the audit log keep actor and reason, the latter without the address."""
    await add(browser, "ada@example.org", reason="complaint")
    if as_body:
        answer = await browser.ask("DELETE", "/v1/suppressions", json={"email": "ADA@example.org", "note": "a mistake"})
    else:
        answer = await browser.ask("DELETE", "/v1/suppressions?email=Ada@example.org&note=a%20mistake")
    assert (answer.status, [item["reason"] for item in answer.json["items"]]) == (200, ["complaint"])
    assert await emails(browser) == []
    (delivery_id,) = await accepted(pool, a_mail())
    assert await state_of(pool, delivery_id) == "queued"
    told = (await browser.get("/v1/suppressions/Ada@example.org")).json
    assert told["items"] == []
    assert [(step["change"], step["actor"], step["note"]) for step in told["history"]] == [
        ("lifted", "key:1:tests", "a mistake"),
        ("suppressed", "key:1:tests", None),
    ]
    audit = await rows(pool, "SELECT action, actor, before::text, after::text FROM audit_log WHERE action LIKE 'supp%'")
    assert [entry[:2] for entry in audit] == [("suppression.add", "key:1:tests"), ("suppression.lift", "key:1:tests")]
    assert "ada@" not in str(audit)


async def test_lift_of_one_reason_keeps_the_other(browser: Browser) -> None:
    """Lifting a manual suppression keeps the unsubscribe."""
    await add(browser, "ada@example.org", reason="unsubscribe")
    await add(browser, "ada@example.org", reason="manual")
    await browser.ask("DELETE", "/v1/suppressions?email=ada@example.org&reason=manual")
    items = (await browser.get("/v1/suppressions")).json["items"]
    assert [item["reason"] for item in items] == ["unsubscribe"]


async def test_lift_of_unsuppressed_address_returns_404(browser: Browser) -> None:
    """A request without an address returns 400."""
    assert (await browser.ask("DELETE", "/v1/suppressions?email=ada@example.org")).json[
        "code"
    ] == "suppression_not_found"
    assert (await browser.ask("DELETE", "/v1/suppressions")).status == 400
    assert (await browser.ask("DELETE", "/v1/suppressions", content=b"{")).status == 400


async def test_import_reports_rejected_lines(browser: Browser, pool: Pool) -> None:
    """Valid lines are stored, invalid ones reported by number; the audit log has one entry."""
    text = "email,reason\nada@example.org,complaint\nnonsense,\nben@example.org,\nBEN@example.org,\n"
    answer = await browser.post("/v1/suppressions/import", content=text.encode(), headers={"content-type": "text/csv"})
    assert answer.status == 200
    assert {name: answer.json[name] for name in ("total", "imported", "refused")} == {
        "total": 4,
        "imported": 2,
        "refused": 1,
    }
    assert [error["line"] for error in answer.json["errors"]] == [3]
    assert await rows(pool, "SELECT after::text FROM audit_log WHERE action = 'suppression.import'") == [
        ('{"refused": 1, "imported": 2}',)
    ]


async def test_import_and_export_of_100000_lines(browser: Browser, pool: Pool) -> None:
    """A large file is imported in one request and exported in pages."""
    text = "email\n" + "".join(f"person{number}@example{number % 100}.org\n" for number in range(100_000))
    answer = await browser.post("/v1/suppressions/import", content=text.encode(), headers={"content-type": "text/csv"})
    assert answer.json["imported"] == 100_000
    lines, cursor = 0, ""
    while True:
        page = await browser.get(f"/v1/suppressions/export?limit=60000{cursor}")
        assert page.headers["content-type"].startswith("text/csv")
        lines += page.body.count(b"\n")
        if "x-next-cursor" not in page.headers:
            break
        cursor = f"&cursor={page.headers['x-next-cursor']}"
    assert lines == 100_001


async def test_import_must_be_csv(browser: Browser) -> None:
    """Another media type is rejected before the body is read."""
    answer = await browser.post("/v1/suppressions/import", content=b"x", headers={"content-type": "application/pdf"})
    assert answer.status == 415


async def test_reports_are_listed(browser: Browser, pool: Pool) -> None:
    """Reports are filtered by delivery, address, kind and verification."""
    delivery_id = await sent(pool)
    async with pool.acquire() as connection:
        feedback: list[Feedback] = [
            a_bounce(delivery_id=delivery_id, enhanced="5.1.1", code=550),
            a_complaint("ben@example.org"),
            a_bounce("cleo@example.org", is_verified=False),
        ]
        await record(connection, feedback)
    (item,) = (await browser.get(f"/v1/bounces?delivery_id={delivery_id}")).json["items"]
    assert (item["email"], item["classification"], item["enhanced"], item["verified"]) == (
        "ada@example.org",
        "recipient_hard",
        "5.1.1",
        True,
    )
    for query, email in (("kind=complaint", "ben"), ("verified=false", "cleo"), ("email=ADA@example.org", "ada")):
        items = (await browser.get(f"/v1/bounces?{query}")).json["items"]
        assert [each["email"] for each in items] == [f"{email}@example.org"]


def test_read_scope_cannot_change_suppressions() -> None:
    """Reading and writing have separate scopes."""
    assert {(endpoint.method == "GET", endpoint.scope) for endpoint in api.ENDPOINTS} == {
        (True, "suppressions:read"),
        (False, "suppressions:write"),
    }


async def test_key_without_scope_is_rejected(room: Room) -> None:
    """A key without the scope gets 403, and no key 401."""
    app = HttpApplication(room, api.ENDPOINTS, auth=Authenticator(room.pool))
    other = await open_browser(room, "deliveries:read", name="other", app=app)
    assert (await other.get("/v1/suppressions")).status == 403
    assert (await other.ask("DELETE", "/v1/suppressions?email=a@b.org")).status == 403
    assert (await Browser(app).get("/v1/suppressions")).status == 401
