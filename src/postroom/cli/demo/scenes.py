"""The scenes in one person's or one order's scale: sign-ups, birthdays, orders, failures."""

import base64
import re
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from postroom.accounts import service as accounts
from postroom.accounts.model import Action
from postroom.cli.demo.people import Invented
from postroom.cli.demo.story import Story
from postroom.db.queries import Connection
from postroom.events import Event, EventStore, Query
from postroom.inbox import service as inbox
from postroom.inbox.reader import read_message
from postroom.inbox.search import InboxFilter
from postroom.post.mime import Attachment
from postroom.schedule import scheduled_events
from postroom.schedule import service as schedule
from postroom.schedule.model import EventFilter, Person, ScheduledEvent, ScheduledEventStatus

_CODE = re.compile(r"^\s*(\d{5})\s*$", re.MULTILINE)  # on a line of its own; a port has five digits too
_WAIT = timedelta(seconds=60)  # a slow machine sends the mail within it
_GREETED = 3  # three mails show the schedule; more would hide the scene
_SOON = timedelta(seconds=2)  # soon enough to watch
_INVOICE = b"item,amount,price\nlamp,2,19.00\nladder,1,42.00\n"


class _RolledBack(Exception):  # noqa: N818 - the application's reason to roll back, not an error of ours
    """An order that does not go through."""


async def play_sign_ups(story: Story) -> str:
    """Accounts are rows; a trigger makes the token, a worker mails it, and half of the people enter the code."""
    people = story.people(story.size.sign_ups)
    addresses = [f"{person.first_name}.{story.run}@example.org".lower() for person in people]
    for person, address in zip(people, addresses, strict=True):
        locale = "fr" if person.number % 4 == 0 else "en"
        await accounts.sign_up(story.pool, address, f"{person.first_name.lower()}-{story.run}", locale=locale)
    activated = 0
    for address in addresses[::2]:
        message = await inbox.wait_for_message(
            story.pool, InboxFilter(recipient=address), timeout=_WAIT, sees_codes=False
        )
        code = _CODE.search(read_message(message.raw).text or "")
        if code is not None:
            await accounts.consume_code(story.pool, address, code=code[1], action=Action.ACTIVATION)
            activated += 1
    story.links.extend([("Accounts", "/accounts"), ("Sign-ups in the inbox", f"/inbox?query={story.run}")])
    return f"{len(addresses)} accounts created, {activated} activated with the code of the mail"


async def play_birthdays(story: Story) -> str:
    """Birthdays of the coming weeks at 09:00 local time; three of today, in three zones, are moved to now."""
    policy = schedule.policy_of(story.room.settings)
    today = datetime.now(UTC).date()
    people = story.people(story.size.birthdays)
    persons = [_person(each, story.run, born_on=_birthday(today, each.number - 1)) for each in people]
    users, _wrong = await schedule.create_users(story.pool, persons, policy=policy, actor="demo")
    moved = []
    for user in users[:_GREETED]:
        chosen = EventFilter(user_id=user.id, status=ScheduledEventStatus.PENDING)
        [event, *_], _cursor = await scheduled_events.list_events(story.pool, chosen)
        soon = datetime.now(UTC) + _SOON
        at = soon.astimezone(ZoneInfo(user.person.timezone)).replace(tzinfo=None)
        moved.append(
            await scheduled_events.move_event(story.pool, event.id, at=at, version=event.version, actor=story.actor)
        )
    await story.until(lambda: _greeted(story, moved), "A birthday greeting")
    story.links.append(("Birthdays", "/schedule"))
    times = ", ".join(f"{event.target_local:%H:%M} in {event.timezone}" for event in moved)
    return f"{len(users)} birthdays planned, {len(moved)} of them greeted now: {times}"


async def _greeted(story: Story, moved: Sequence[ScheduledEvent]) -> bool | None:
    states = [(await scheduled_events.get_event(story.pool, event.id)).status for event in moved]
    return True if all(state is ScheduledEventStatus.COMPLETED for state in states) else None


def _birthday(today: date, days: int) -> date:
    day = today + timedelta(days=days)
    return date(1980 + days, day.month, min(day.day, 28))


def _person(invented: Invented, run: str, *, born_on: date) -> Person:
    return Person(
        first_name=invented.first_name,
        last_name=invented.last_name,
        date_of_birth=born_on,
        timezone=invented.time_zone,
        email=f"{invented.first_name}.{run}@example.com".lower(),
        locale="fr" if invented.number % 5 == 0 else None,
    )


async def play_orders(story: Story) -> str:
    """An order, its event and its mail are one transaction: one commits, one rolls back."""
    store = EventStore(story.pool)
    kept = await _order(story, store, number=1, is_paid=True)
    lost = None
    try:
        await _order(story, store, number=2, is_paid=False)
    except _RolledBack as error:
        lost = int(str(error))
    ends = await story.until(lambda: _ended(story, [kept]), "The order's mail")
    mails = await story.ends_of([lost] if lost is not None else [])
    facts = await store.read(Query.of(tags={"order": f"{story.run}-2"}))
    story.links.append(("Order", f"/deliveries/{kept}"))
    state = next(state for _lane, state in ends)
    left = f"{len(mails)} mails and {len(facts.events)} events"
    return f"order 1 committed and its mail is {state}; order 2 rolled back and left {left}"


async def _order(story: Story, store: EventStore, *, number: int, is_paid: bool) -> int:
    async with story.pool.acquire() as connection, connection.transaction():
        fact = Event.of("OrderPlaced", {"number": number, "total": 4200}, order=f"{story.run}-{number}")
        await store.append(fact, connection=connection)
        delivery_id = await story.send(
            connection,
            to=f"Ada Lovelace <ada.{story.run}@example.org>",
            subject=f"Order {number}: thank you, Ada",
            text="Two lamps and a ladder leave our workshop tomorrow.",
            html="<h1>Thank you, Ada</h1><p>Two lamps and a ladder leave our workshop tomorrow.</p>",
            idempotency_key=f"demo-{story.run}-order-{number}",
            tags={"order": str(number)},
        )
        if not is_paid:
            raise _RolledBack(delivery_id)
    return delivery_id


async def play_shop(story: Story) -> str:
    """Everyday mail: templates in two languages, a code in its own lane, an invoice as attachment."""
    people = story.people(story.size.orders, skip=60)
    async with story.pool.acquire() as connection, connection.transaction():
        ids = [await _send_everyday(story, connection, person) for person in people]
    ends = await story.until(lambda: _ended(story, ids), "Everyday mail")
    lanes = ", ".join(f"{count} {lane}" for (lane, _state), (count, _) in sorted(ends.items()))
    return f"{len(ids)} mails sent: {lanes}"


async def _send_everyday(story: Story, connection: Connection, person: Invented) -> int:
    """A welcome, a code or an invoice, in turn."""
    kinds: tuple[dict[str, Any], ...] = (
        {
            "template": "welcome",
            "locale": "fr" if person.number % 2 else "en",
            "variables": {"name": person.first_name, "product": "Lamp and Ladder", "url": "https://shop.example.com"},
        },
        {"template": "login-code", "variables": {"code": "40213", "minutes": 10}, "lane": "auth"},
        {
            "subject": f"Invoice for order {person.number}",
            "text": f"Dear {person.first_name}, your invoice is attached.",
            "attachments": [Attachment("invoice.csv", "text/csv", base64.b64encode(_INVOICE).decode())],
        },
    )
    to = f"{person.name} <{person.first_name.lower()}.{story.run}@{person.domain}>"
    return await story.send(connection, to=to, tags={"order": str(person.number)}, **kinds[person.number % len(kinds)])


_FAILURES = {
    "bounce": ("transactional", "Your invoice"),
    "blocked": ("transactional", "Your receipt"),
    "full": ("transactional", "Your delivery note"),
    "defer": ("transactional", "Your table is booked"),
    "drop": ("transactional", "Your ticket"),
    "ambiguous": ("bulk", "Our opening hours in December"),
}


async def play_failures(story: Story) -> str:
    """The local part of an address decides how the capture transport replies."""
    ids = []
    async with story.pool.acquire() as connection, connection.transaction():
        for role, (lane, subject) in _FAILURES.items():
            address = f"{role}+{story.run}@example.org"
            ids.append(await story.send(connection, to=address, subject=subject, text="Hello.", lane=lane))
    ends = await story.until(lambda: _tried(story, ids), "The attempt of each mail")
    story.links.append(("Dead letters", "/dead-letters"))
    states = ", ".join(f"{count} {state.replace('_', ' ')}" for (_lane, state), (count, _) in sorted(ends.items()))
    return f"{len(ids)} mails to troubled addresses: {states}"


async def _tried(story: Story, ids: Sequence[int]) -> dict[tuple[str, str], tuple[int, int]] | None:
    """The ends, once three have ended and the other three wait for their retry."""
    ends = await story.ends_of(ids)
    ended = sum(count for (_lane, state), (count, _) in ends.items() if state in ("failed", "dead_letter"))
    return ends if ended == len(_FAILURES) // 2 else None


async def _ended(story: Story, ids: Sequence[int]) -> dict[tuple[str, str], tuple[int, int]] | None:
    ends = await story.ends_of(ids)
    return ends if ends and all(state not in ("queued", "rendered", "sending") for _lane, state in ends) else None
