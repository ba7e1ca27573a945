"""Actions of the dashboard in Chromium: a person finds the form, fills it and clicks its button, and it is audited.

A `Step` is data: the way to the form, the values of its fields, the sentence that the page shows afterwards, a
condition in SQL that holds afterwards and did not before, and the action in the audit log. `perform` checks all of it,
and the forms and links that the same page offers to every other role.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from playwright.async_api import Browser, Locator, Page, Request, expect
from tests.support.dashboard import SECRET, Guest, Office, open_operator, open_page
from tests.support.dashboard_roles import endpoint_at, is_outside, offered, scope_of

from postroom.dashboard.endpoints import ENDPOINTS
from postroom.dashboard.session import Sessions
from postroom.dashboard.site import SESSION_COOKIE
from postroom.http.model import Role
from postroom.http.operators import add_operator

POSTS = {endpoint.path: endpoint for endpoint in ENDPOINTS if endpoint.method == "POST"}
GETS = {endpoint.path for endpoint in ENDPOINTS if endpoint.method == "GET"}
PERSON = "ada@example.org"
ACTOR = f"operator:{PERSON}"


@dataclass(slots=True)
class Walker:
    """A person with a browser, guests of the other roles, and the problems that the browser reports."""

    office: Office
    page: Page
    roles: Mapping[Role, Guest]
    values: dict[str, str] = field(default_factory=dict)  # for `{names}` in the values of fields
    problems: list[str] = field(default_factory=list)


Prepare = Callable[[Walker], Awaitable[None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One action of a person."""

    route: str  # path of the POST route in the endpoint table
    at: str  # the page where the way begins
    way: Sequence[str] = ()  # links to click: the name of a link, or a text of its row
    asked: Mapping[str, str] = field(default_factory=dict)  # fields of a form on the way, which counts or previews
    row: str | None = None  # a text of the table row that has the form
    fields: Mapping[str, str] = field(default_factory=dict)  # name → value
    shows: str | None  # a text of the page afterwards; `act` checks what it shows itself
    holds: str | None = None  # a condition in SQL
    audit: str | None  # the actions in the audit log, with spaces between
    reason: str = ""  # why nothing is stored or audited
    needs: Sequence[str] = ()  # scopes of the action besides that of its route
    actor: str = ACTOR
    before: Prepare | None = None
    act: Prepare | None = None  # in place of the click

    def __post_init__(self) -> None:
        if (self.audit is None or self.holds is None) and not self.reason:
            raise ValueError(f"{self.route} needs a reason")


@asynccontextmanager
async def open_walker(chromium: Browser, office: Office) -> AsyncIterator[Walker]:
    """A walker who is signed in as an operator with the role admin."""
    person = await add_operator(office.pool, PERSON, Role.ADMIN, actor="tests")
    others: list[Role] = [role for role in Role if role is not Role.ADMIN]
    guests = {role: await open_operator(office.room, role) for role in others}
    sessions = Sessions(SECRET, office.room.name)
    async with open_page(chromium) as page:
        walker = Walker(office, page, guests, {"url": office.url})
        watch(page, walker.problems)
        cookie: Any = {"name": SESSION_COOKIE, "value": sessions.seal(sessions.begin(person)), "url": office.url}
        await page.context.add_cookies([cookie])
        yield walker


def watch(page: Page, problems: list[str]) -> None:
    """Record console messages, errors of scripts, failed requests and answers that are errors."""
    page.on("console", lambda message: problems.append(f"{page.url}: console: {message.text}"))
    page.on("pageerror", lambda error: problems.append(f"{page.url}: script: {error}"))
    page.on("requestfailed", lambda request: problems.extend(_failure(request)))
    page.on("response", lambda answer: problems.extend([f"{answer.url}: {answer.status}"] * (answer.status >= 400)))


def _failure(request: Request) -> list[str]:
    """A request that got no answer. Chromium aborts those of a page that the person has left: they are no failures."""
    return [] if request.failure == "net::ERR_ABORTED" else [f"{request.method} {request.url}: {request.failure}"]


# ── a step ─────────────────────────────────────────────────────────────────────────────────────────────────────────


async def perform(walker: Walker, step: Step) -> None:
    """Do it as a person does, and check page, database, audit log, other roles and console."""
    if step.before is not None:
        await step.before(walker)
    page, pool = walker.page, walker.office.pool
    await page.goto(walker.office.url + step.at)
    for name in step.way:
        link = await link_to(page, name)
        async with page.expect_navigation():
            await link.click()
    if step.asked:
        await _ask(page, step)
    if step.shows is not None:
        assert step.shows not in (await page.locator("main").text_content() or ""), "the page shows it already"
    assert not await _holds(walker, step), "the condition holds before the action"
    await check_roles(walker, step)
    last = await pool.fetchval("SELECT coalesce(max(id), 0) FROM audit_log")
    # Typing into the form of a campaign posts previews too, before a slow machine gets to the button.
    async with page.expect_response(lambda answer: _is_of(answer.request, step.route)):
        await (step.act(walker) if step.act else submit(walker, step))
    if step.shows is not None:
        await expect(page.locator("main")).to_contain_text(step.shows)
    assert step.holds is None or await _holds(walker, step), f"not so: {step.holds}"
    entries = await pool.fetch("SELECT actor, action FROM audit_log WHERE id > $1", last)
    expected = [(step.actor, action) for action in (step.audit or "").split()]
    recorded = [(entry["actor"], entry["action"]) for entry in entries]
    assert recorded == expected, f"audited: {recorded}"
    assert walker.problems == []


async def _holds(walker: Walker, step: Step) -> bool:
    return bool(step.holds and await walker.office.pool.fetchval(f"SELECT coalesce(({step.holds}), false)"))


async def link_to(page: Page, name: str) -> Locator:
    """The first link with this name in the content of the page, or the first link of the row with this text."""
    main = page.locator("main")
    named = main.get_by_role("link", name=name, exact=True)
    return named.first if await named.count() else main.locator("tr", has_text=name).get_by_role("link").first


def _is_of(request: Request, route: str) -> bool:
    """Whether a request posts to this route."""
    return request.method == "POST" and endpoint_at(urlsplit(request.url).path, "POST").path == route


async def _ask(page: Page, step: Step) -> None:
    """Fill the form that counts or previews, and click its button."""
    form = page.locator("main form").filter(has=page.locator(f"[name={next(iter(step.asked))}]"))
    for name, value in step.asked.items():
        await fill(form.locator(f"[name={name}]"), value)
    async with page.expect_navigation():
        await form.get_by_role("button").click()


async def submit(walker: Walker, step: Step) -> None:
    """Unfold the form of the route, fill its fields and click its button."""
    page = walker.page
    forms = page.locator("tr", has_text=step.row).locator("form") if step.row else page.locator("form[method=post]")
    targets = await forms.evaluate_all("(all) => all.map((form) => form.getAttribute('action'))")
    found = [n for n, target in enumerate(targets) if endpoint_at(target, "POST").path == step.route]
    assert len(found) == 1, f"forms of the route: {found} of {targets}"
    form = forms.nth(found[0])
    await unfold(form)
    for name, value in step.fields.items():
        await fill(form.locator(f"[name={name!r}]"), value.format(**walker.values))
    await form.locator("button:not([type=button])").click()


async def unfold(element: Locator) -> None:
    """Open the `details` around an element by a click."""
    folded = element.locator("xpath=ancestor::details[not(@open)]")
    if await folded.count():
        await folded.locator("> summary").click()


async def fill(element: Locator, value: str) -> None:
    """Fill a field of any kind: a box is checked with `on` and unchecked with an empty value."""
    await unfold(element)
    kind = await element.evaluate("(field) => field.type")
    if kind == "checkbox":
        await element.set_checked(bool(value))
    elif kind == "select-one":
        await element.select_option(value)
    elif kind == "file":
        await element.set_input_files(value)
    else:
        await element.fill(value)


async def check_roles(walker: Walker, step: Step) -> None:
    """The page has the form for exactly the roles that may use it, and nothing else that a role may not use."""
    endpoint = POSTS[step.route]
    scope = scope_of(endpoint)
    parts = urlsplit(walker.page.url)
    if scope is None or parts.path in POSTS.keys() - GETS:  # the answer to a form, whose own step checks the roles
        return
    for role, guest in walker.roles.items():
        answer = await guest.get(parts.path + (f"?{parts.query}" if parts.query else ""))
        found = list(offered(answer.body.decode())) if answer.status == 200 else []
        has_all = all(role.allows(each) for each in (scope, *step.needs))
        assert answer.status in (200, 403), f"{role}: {answer.status}"
        assert (endpoint in found) == has_all, f"{role} may post it: {has_all}; the page has it: {endpoint in found}"
        outside = [f"{each.method} {each.path}" for each in found if is_outside(role, each)]
        assert outside == [], f"{role} is offered {outside}"
