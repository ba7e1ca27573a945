"""A walk over every page of the dashboard: the endpoint table names the kinds of pages, links lead to the others."""

import re
from collections.abc import Awaitable, Callable, Iterable, Iterator

from msgspec.structs import replace
from tests.support.accounts import sign_up
from tests.support.builders import REFUSED, a_mail, accepted
from tests.support.campaigns import a_campaign
from tests.support.dashboard import LONG, RAW, a_full_day, ambiguous, captured, given_up, tried
from tests.support.intake import entries, raw
from tests.support.schedule import POSTING, person
from tests.support.senders import an_account

from postroom.accounts.service import create_account
from postroom.dashboard.endpoints import ENDPOINTS
from postroom.db.pool import Pool
from postroom.delivery.filter import DeliveryFilter
from postroom.delivery.mass.model import MassKind
from postroom.delivery.mass.service import start
from postroom.delivery.model import Lane
from postroom.feedback.model import NewSuppression
from postroom.feedback.service import suppress
from postroom.http.model import Role
from postroom.http.operators import add_operator
from postroom.intake.service import accept_commands
from postroom.outbox.model import Topic
from postroom.outbox.topics import create_topic
from postroom.outbox.webhooks.service import register
from postroom.runtime.secrets import SecretBox
from postroom.schedule.service import create_user

BOX = SecretBox([bytes(32)])

NOT_PAGES = (
    "/static/",
    "/live",
    "/sign-in",
    ".csv",
    "/export",
    "/raw",
    "/preview",
    "/attachments/",
    "/frame",
)
"""Parts of paths that answer with files, streams or the content of frames."""

MORE = (
    "/deliveries/mass-actions/new?kind=cancel",
    "/suppressions/address?email=x@example.org",
    "/statistics",
    "/statistics?by=domain&metric=bounced",
    "/statistics?by=hour&days=1",
    "/senders/new",
    "/senders/new?type=gmail",
    "/outbox/topics/orders",
    "/outbox/orders/webhook",
)
"""Pages that need a query or differ by it, and pages whose path another one looks like."""

Look = Callable[[str], Awaitable[Iterable[str]]]
"""Looks at the page of a path and returns the targets of its links."""


def patterns() -> Iterator[re.Pattern[str]]:
    """The path of every page, as a pattern."""
    for endpoint in ENDPOINTS:
        if endpoint.method == "GET" and not any(part in endpoint.path for part in NOT_PAGES):
            yield re.compile(re.sub(r"\{(\w+)(:\w+)?\}", _parameter, endpoint.path.replace(".", r"\.")))


def _parameter(found: re.Match[str]) -> str:
    return r"\d+" if found[2] == ":int" else "[^/?]+"


async def walk(look: Look, *, each: int = 1) -> set[str]:
    """Look at up to `each` pages of every kind, along the links of the pages seen; the kinds that no link led to.

    With `each` above one, a page without a parameter in its path is looked at with two other queries as well.
    """
    wanted = {pattern.pattern: pattern for pattern in patterns()}
    plain = {name for name in wanted if "+" not in name}
    queue = [*sorted(plain - {path.partition("?")[0] for path in MORE}), *MORE]
    left = {kind: min(each - 1, 2) if kind in plain else each for kind in wanted}
    seen = set(queue)
    while queue:
        for link in await look(queue.pop(0)):
            path = link.partition("#")[0]
            kind = next((name for name, pattern in wanted.items() if pattern.fullmatch(path.partition("?")[0])), None)
            if kind is not None and left[kind] and path not in seen:
                queue.append(path)
                seen.add(path)
                left[kind] -= 1
    return {kind for kind in wanted.keys() - plain if left[kind] == each}


async def fill(pool: Pool) -> None:
    """Data of every kind, with values as long as they may be."""
    await a_full_day(pool)
    mail = a_mail(subject=LONG, text=LONG, html=f"<p>{LONG}</p>", source=LONG[:60], tags={LONG: LONG})
    await tried(pool, mail, reply=replace(REFUSED, text=LONG, remote_host=LONG, tls=LONG))
    await given_up(pool, a_mail(subject="Your order 4711"))
    await ambiguous(pool)
    await accepted(pool, a_mail(lane=Lane.AUTH), a_mail("ada@example.org", subject="Welcome, Ada"))
    await captured(pool, RAW, subject=LONG)
    await an_account(pool, f"{LONG[:60]}@{LONG[:60]}.example", display_name=LONG, notes=LONG)
    await an_account(pool, "two@example.org", status="paused", paused_by="health", status_reason=LONG)
    await pool.execute("INSERT INTO destination_domains (domain, max_connections) VALUES ($1, 3)", LONG[:200])
    await suppress(pool, NewSuppression(email="x@example.org", detail=LONG), actor=LONG[:100])
    await add_operator(pool, f"{'ada' * 20}@{'sub.' * 40}example.org", Role.SUPPORT, actor="tests")
    await a_campaign(pool, 3, name=LONG[:80])
    await accept_commands(pool, entries(LONG.encode(), raw(payload_mode=LONG)))
    await create_account(pool, f"ada@{LONG[:60]}.example", LONG[:60], actor="tests")
    await create_user(pool, person(first_name=LONG[:60]), policy=POSTING, actor="tests")
    await create_topic(pool, Topic(name=LONG[:60]), publishers=["log"], actor="tests")
    await create_topic(pool, Topic(name="orders"), publishers=["log", "webhook"], actor="tests")
    await register(pool, BOX, url=f"https://shop.example/{LONG}", topics=["orders"], actor="tests")
    await sign_up(pool)
    await start(pool, MassKind.RETRY, DeliveryFilter(source=LONG[:60]), actor="tests")
