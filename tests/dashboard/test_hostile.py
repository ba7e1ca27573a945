"""Hostile content in a real browser: nothing of it runs, nothing of it reaches the network."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace

import msgspec
import pytest
from playwright.async_api import Browser, Page
from tests.support.builders import DELIVERED, a_mail
from tests.support.dashboard import Office, ambiguous, captured, open_page, signed_in, tried
from tests.support.http import served
from tests.support.senders import an_account

from postroom.dashboard import preview, site
from postroom.events.audit import record_audit
from postroom.feedback.model import NewSuppression
from postroom.feedback.service import suppress
from postroom.post.address import Address
from postroom.runtime.endpoint import ASGIApp, Receive, Scope, Send

ATTACKS = [
    "<script>top.pwned = 1; document.title = 'pwned'; new Image().src = '{canary}/script'</script>",
    "<img src=x onerror=\"top.pwned = 1; fetch('{canary}/onerror')\">",
    '"><svg onload="top.pwned = 1"><script>alert(1)</script></svg>',
    "'-alert(1)-'\"}}{{{{7*7}}}}{{% raw %}}",
    '<a href="javascript:top.pwned=1" autofocus onfocus="top.pwned=1">x</a>',
    '<iframe srcdoc="<script>top.pwned = 1</script>"></iframe><iframe src="{canary}/frame"></iframe>',
    '<img src="{canary}/pixel.gif"><link rel=stylesheet href="{canary}/style.css"><base href="{canary}/">',
    '<style>@import "{canary}/import.css"; * {{ background: url({canary}/css) !important }}</style>',
    '<p style="background: url({canary}/inline); b\\61 ckground-image: u\\72l({canary}/escaped)">x</p>',
    '</title></style></script><body onload="top.pwned=1"><meta http-equiv=refresh content="0;{canary}/meta">',
    '<form action="{canary}/form"><button autofocus>x</button></form><object data="{canary}/object"></object>',
    "</span>\u202e gnihsihp \u2066 <math><mtext><table><mglyph><style><img src=x onerror=top.pwned=1>",
]


def answer_with(html: str, headers: dict[str, str]) -> ASGIApp:
    """An application that answers every request with this document."""

    async def answer(_scope: Scope, _receive: Receive, send: Send) -> None:
        sent = {"content-type": "text/html; charset=utf-8", **headers}
        raw = [(name.encode(), value.encode()) for name, value in sent.items()]
        await send({"type": "http.response.start", "status": 200, "headers": raw})
        await send({"type": "http.response.body", "body": html.encode()})

    return answer


@dataclass(slots=True)
class Canary:
    """A server that must get no request; it records them."""

    url: str = ""
    heard: list[str] = field(default_factory=list)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            self.heard.append(scope["path"])
            await answer_with("", {"access-control-allow-origin": "*"})(scope, receive, send)

    def attacks(self) -> list[str]:
        return [attack.format(canary=self.url) for attack in ATTACKS]


@pytest.fixture
async def canary() -> AsyncIterator[Canary]:
    bird = Canary()
    async with served(_without_lifespan(bird)) as url:
        bird.url = url
        yield bird


def _without_lifespan(app: ASGIApp) -> ASGIApp:
    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "lifespan":
            await app(scope, receive, send)
            return
        for _ in range(2):
            message = await receive()
            await send({"type": f"{message['type']}.complete"})

    return answer


@asynccontextmanager
async def watched(page: Page, canary: Canary) -> AsyncIterator[None]:
    """Fail if a dialog opens, a script ran, the page was taken elsewhere, or the canary was asked."""
    dialogs: list[str] = []

    async def dismiss(dialog: object) -> None:
        dialogs.append(str(dialog))
        await dialog.dismiss()  # type: ignore[attr-defined] # playwright's Dialog

    page.on("dialog", dismiss)
    yield
    assert dialogs == []
    assert canary.heard == []


async def calm(page: Page, url: str) -> None:
    """Load a page with everything in it, and look whether anything of a stranger ran."""
    await page.goto(url, wait_until="load")
    assert await page.evaluate("window.pwned === undefined && document.title !== 'pwned'")
    assert page.url == url


async def test_hostile_words_are_words(chromium: Browser, office: Office, canary: Canary) -> None:
    """Wherever a stranger's text is shown, it is text: subjects, names, replies, tags, headers, hosts, files."""
    hostile = " ".join(canary.attacks())
    mail = a_mail(
        text=hostile,
        html=hostile,
        source=canary.attacks()[0][:60],
        tags={"a": hostile, hostile[:50]: "b"},
        custom_data={"x": hostile},
        sender=Address("post@example.org", hostile[:200]),
    )
    mail = replace(mail, to=(Address("ada@example.org", hostile[:200]),))
    [delivery_id] = await tried(
        office.pool, mail, reply=msgspec.structs.replace(DELIVERED, text=hostile, remote_host=hostile[:200])
    )
    dead = await ambiguous(office.pool)
    await office.pool.execute("UPDATE delivery_payloads SET subject = $1", hostile)
    await office.pool.execute("UPDATE dead_letters SET detail = $1", hostile)
    await office.pool.execute("UPDATE deliveries SET detail = $1", hostile)
    await office.pool.execute("INSERT INTO workers (pid, host) VALUES (1, $1)", hostile)
    headers = "".join(f"X-A: {attack}\r\n" for attack in canary.attacks()).encode()
    raw = headers + b"Content-Type: text/html; charset=utf-8\r\n\r\n" + hostile.encode()
    message_id = await captured(office.pool, raw, subject=hostile, to=hostile)
    paths = ["/", "/deliveries", f"/deliveries/{delivery_id}", f"/deliveries/{dead}", "/dead-letters", "/inbox"]
    async with office.pool.acquire() as connection:
        await record_audit(connection, actor=hostile, action=hostile, subject=hostile, after={hostile: hostile})
    sender = await an_account(
        office.pool, hostile, display_name=hostile, status="suspended", status_reason=hostile, notes=hostile
    )
    await suppress(office.pool, NewSuppression(email="x@example.org", detail=hostile[:400]), actor=hostile)
    await office.pool.execute("UPDATE suppressions SET address = lower($1), origin = $1, detail = $1", hostile)
    await office.pool.execute(
        "INSERT INTO stat_deltas (hour, campaign_id, sender_account_id, domain, tags, metric, amount)"
        " VALUES (date_trunc('hour', now()), 0, 0, $1, ARRAY[$1], 'sent', 1)",
        hostile,
    )
    paths += ["/workers", "/audit", "/senders", f"/senders/{sender}", "/suppressions"]
    paths += ["/suppressions/address?email=x@example.org", "/statistics?by=domain", "/statistics?by=tag"]
    paths += [f"/inbox/{message_id}", f"/deliveries/{delivery_id}/preview", f"/inbox/{message_id}/preview"]
    async with signed_in(chromium, office) as page, watched(page, canary):
        for path in paths:
            await calm(page, office.url + path)
        await page.goto(office.url)
        await page.wait_for_selector("[data-state=live]")  # drawn once more, by the script
        assert await page.evaluate("window.pwned === undefined")
        assert "<script>" in await page.locator("#live-workers").inner_text()


@pytest.mark.parametrize("policy", [preview.POLICY, site.POLICY], ids=["preview", "page"])
async def test_the_policy_holds_by_itself(chromium: Browser, canary: Canary, policy: str) -> None:
    """Should the cleaner or a template ever let something through, the policy alone still stops it."""
    bare = [attack for attack in canary.attacks() if "refresh" not in attack]  # no policy governs where a page goes
    page_of = answer_with("<!doctype html><title>x</title>" + "\n".join(bare), {"content-security-policy": policy})
    async with open_page(chromium) as page, served(_without_lifespan(page_of)) as url, watched(page, canary):
        await page.goto(url, wait_until="load")
        assert await page.title() == "x"


async def test_the_canary_sings_without_a_policy(chromium: Browser, canary: Canary) -> None:
    """The attacks are real: without any wall they run and reach the network."""
    bare = _without_lifespan(answer_with(canary.attacks()[0] + canary.attacks()[1], {}))
    async with open_page(chromium) as page, served(bare) as url:
        page.on("dialog", lambda dialog: dialog.dismiss())
        async with page.expect_response(f"{canary.url}/script"), page.expect_response(f"{canary.url}/onerror"):
            await page.goto(url)
        assert await page.title() == "pwned"
    assert {"/script", "/onerror"} <= set(canary.heard)
