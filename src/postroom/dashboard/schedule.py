"""Schedule: the coming thirty days by zone, late and failed messages, people, and a person's next message."""

from collections import Counter
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Any
from uuid import UUID

from postroom.dashboard.chart import Chart, Series, draw_chart
from postroom.dashboard.listing import Filter, FormField, ListColumn, PageAction, columns, options_of
from postroom.dashboard.page import PageRequest, form, page
from postroom.dashboard.preview import preview
from postroom.delivery.model import DeliveryRequest
from postroom.errors import BadInput, NotFoundError, PostroomError
from postroom.mail import library
from postroom.mail.render import Rendered
from postroom.runtime.endpoint import Answer
from postroom.runtime.page import Found
from postroom.schedule import scheduled_events as agenda
from postroom.schedule import service
from postroom.schedule.kinds import KINDS
from postroom.schedule.model import ComingDay, EventFilter, Occasion, Person, ScheduledEvent, ScheduledEventStatus, User

READ, WRITE = "users:read", "users:write"
DAYS = 30
MOST_ZONES = 4
"""Zones with their own colour; the others are one series."""


def person_page(user_id: UUID) -> str:
    return f"/people/{user_id}"


def _local(event: ScheduledEvent) -> str:
    return f"{event.target_local:%a %Y-%m-%d %H:%M}"


def _late(event: ScheduledEvent) -> float | None:
    return None if event.late_by is None else event.late_by.total_seconds()


def _delivery_page(event: ScheduledEvent) -> str | None:
    return None if event.delivery_id is None else f"/deliveries/{event.delivery_id}"


def _message(event: ScheduledEvent) -> str | None:
    said = event.payload.get("message") if isinstance(event.payload, dict) else None
    return None if said is None else str(said)


_COMING = (
    ListColumn("target_utc", "Due", "when"),
    ListColumn("local", "Local time", value=_local, link=lambda event: person_page(event.user_id)),
    *columns(ScheduledEvent, "timezone", timezone={"label": "Zone", "is_minor": True}),
    ListColumn("kind", "Kind", "words", value=lambda event: event.kind.lower()),
    ListColumn("message", "Message", "clip", value=_message),
)

_EVENT = (
    *_COMING,
    ListColumn("status", "Status", "state", value=lambda event: event.status.lower()),
    ListColumn("late_by", "Late by", "span", value=_late),
    *columns(ScheduledEvent, "failure_reason", failure_reason={"form": "clip", "label": "Failure"}),
    ListColumn("delivery_id", "Delivery", "code", link=_delivery_page),
)

_ZONE = (ListColumn("zone", "Zone"), ListColumn("events", "Messages", "bar"))

_PERSON = (
    ListColumn("name", "Person", value=lambda user: user.person.name, link=lambda user: person_page(user.id)),
    ListColumn("email", "Address", value=lambda user: user.person.email or user.person.webhook_url),
    ListColumn("born", "Born", value=lambda user: f"{user.person.date_of_birth}"),
    ListColumn("timezone", "Zone", value=lambda user: user.person.timezone),
    ListColumn("created_at", "Created", "when", is_minor=True),
)

_FACTS = columns(Person, "email", "webhook_url", "timezone", "date_of_birth", "locale", "template")
_OCCASION = (
    ListColumn("kind", "Kind", "words", value=lambda occasion: occasion.kind.lower()),
    *columns(Occasion, "message", "template", message={"form": "clip"}),
    ListColumn("rule", "Rule", "clip", value=lambda occasion: ", ".join(f"{k}: {v}" for k, v in occasion.rule.items())),
)


def tabs(shown: str) -> list[tuple[str, str, bool]]:
    pages = (
        ("Coming", "/schedule"),
        ("Late", "/schedule?late=yes"),
        ("Failed", "/schedule?status=failed"),
        ("People", "/people"),
    )
    return [(name, path, path == shown) for name, path in pages]


async def list_page(request: PageRequest) -> Answer:
    asked = {name: request.asked(name) for name in ("status", "kind", "late")}
    filters = [
        Filter("status", "Status", asked["status"], [each.lower() for each in options_of(ScheduledEventStatus)]),
        Filter("kind", "Kind", asked["kind"], [kind.lower() for kind in KINDS]),
        Filter("late", "Late", asked["late"], ("yes",)),
    ]
    found = await _events(request, asked["status"], asked["kind"], asked["late"])
    counted = await service.count_coming(request.pool, until=datetime.now(UTC) + timedelta(days=DAYS))
    is_plain = not any(asked.values())
    shown = "/schedule?late=yes" if asked["late"] else "/schedule?status=failed" if asked["status"] == "failed" else ""
    return request.page(
        "schedule.html",
        tabs=tabs("/schedule" if is_plain else shown),
        backlog=await service.measure_schedule(request.pool),
        days=_draw_days(request, counted) if is_plain else None,
        is_more=any(each.is_more for each in counted),
        most=service.MOST_COUNTED,
        zones=_zones(counted) if is_plain else [],
        zone_columns=_ZONE,
        filters=filters,
        rows=request.rows(
            _COMING if is_plain else _EVENT, found, path="/schedule", filters=filters, empty="No message is planned."
        ),
    )


async def _events(
    request: PageRequest, status: str | None, kind: str | None, late: str | None
) -> Found[ScheduledEvent]:
    """Without a filter the coming messages, soonest first; otherwise the latest first."""
    chosen = EventFilter(
        status=_status(status) if status else None if late or kind else ScheduledEventStatus.PENDING,
        kind=kind.upper() if kind else None,
        is_late=True if late else None,
    )
    is_coming = chosen.status is ScheduledEventStatus.PENDING
    return await agenda.list_events(
        request.pool, chosen, is_soonest_first=is_coming, cursor=request.asked("cursor"), limit=30
    )


def _status(written: str) -> ScheduledEventStatus:
    try:
        return ScheduledEventStatus(written.upper())
    except ValueError:
        raise BadInput.of("status", f"must be one of {', '.join(ScheduledEventStatus)}") from None


def _draw_days(request: PageRequest, counted: Sequence[ComingDay]) -> Chart:
    """Messages by the day of the person, the zones with the most messages as their own series."""
    first = datetime.now(request.viewer.clock).date()
    days = [first + timedelta(days=index) for index in range(DAYS)]
    largest = [zone["zone"] for zone in _zones(counted)][:MOST_ZONES]
    amounts = Counter[tuple[date, str]]()
    for each in counted:
        amounts[max(each.day, first), each.timezone if each.timezone in largest else "other zones"] += each.events
    names = [*largest, *(["other zones"] if any(zone == "other zones" for _day, zone in amounts) else [])]
    series = [
        Series(name, f"series-{index}", [amounts[day, name] for day in days]) for index, name in enumerate(names, 1)
    ]
    moments = [datetime(day.year, day.month, day.day, 12, tzinfo=UTC) for day in days]
    return draw_chart("Messages by day", moments, series, write=lambda moment: f"{moment:%d %b}")


def _zones(counted: Sequence[ComingDay]) -> list[dict[str, Any]]:
    totals = Counter[str]()
    for each in counted:
        totals[each.timezone] += each.events
    most = max(totals.values(), default=0)
    return [{"zone": zone, "events": (count, most)} for zone, count in totals.most_common()]


# ── people ─────────────────────────────────────────────────────────────────────────────────────────────────────────


async def people_page(request: PageRequest) -> Answer:
    email = request.asked("email")
    found: Found[User] = (await service.find_users(request.pool, email), None) if email else ([], None)
    if email is None:
        found = await service.list_users(request.pool, cursor=request.asked("cursor"))
    return request.listing(
        "People",
        _PERSON,
        found,
        lead="People who get messages at their local time.",
        empty="There is no person yet.",
        filters=[Filter("email", "Address", email, placeholder="ada@example.org")],
        tabs=tabs("/people"),
    )


def _asked_person(request: PageRequest) -> UUID:
    user_id: UUID = request.call.path["user_id"]
    return user_id


async def show_page(request: PageRequest) -> Answer:
    """A person: the next message as it would be sent now, their occasions, and past messages."""
    user_id = _asked_person(request)
    user = await service.get_user(request.pool, user_id)
    coming = await agenda.preview_next(request.pool, user_id, policy=service.policy_of(request.call.room.settings))
    events = await agenda.list_user_events(request.pool, user_id, cursor=request.asked("cursor"), limit=20)
    message, problem = await _render(request, coming.request) if coming and coming.request else (None, None)
    return request.page(
        "person.html",
        user=user,
        facts=_FACTS,
        coming=coming,
        message=message,
        problem=problem,
        path=person_page(user_id),
        actions=_event_actions(coming.event) if coming else [],
        occasions=await service.list_occasions(request.pool, user_id),
        occasion_columns=_OCCASION,
        events=request.rows(
            _EVENT, events, path=person_page(user_id), empty="Nothing is planned and nothing was sent."
        ),
    )


async def _render(request: PageRequest, wanted: DeliveryRequest) -> tuple[Rendered | None, str | None]:
    """The message as it would be sent now, or the reason why it cannot be rendered."""
    if wanted.template is None:
        return Rendered(wanted.subject or "", wanted.text, None), None
    locale = wanted.locale or request.call.room.settings.default_locale
    try:
        variables = wanted.variables
        return await library.preview(request.pool, wanted.template, locale=locale, variables=variables), None
    except PostroomError as error:
        return None, str(error)


async def frame_page(request: PageRequest) -> Answer:
    """The HTML of the next message, harmless, for the frame on the person's page."""
    user_id = _asked_person(request)
    coming = await agenda.preview_next(request.pool, user_id, policy=service.policy_of(request.call.room.settings))
    message, _problem = await _render(request, coming.request) if coming and coming.request else (None, None)
    if message is None or message.html is None:
        raise NotFoundError("There is no HTML to show.")
    return preview(message.html)


def _event_actions(event: ScheduledEvent) -> list[PageAction]:
    path = f"{person_page(event.user_id)}/events/{event.id}"
    question = "It is not sent, and cannot be sent later. The occurrence after it is planned."
    fields = {"version": str(event.version)}
    return [
        PageAction(label="Move…", path=f"{path}/move", scope=WRITE, is_link=True),
        PageAction(label="Cancel this message", path=f"{path}/cancel", scope=WRITE, question=question, fields=fields),
    ]


def _asked_event(request: PageRequest) -> UUID:
    event_id: UUID = request.call.path["event_id"]
    return event_id


async def cancel_page(request: PageRequest) -> Answer:
    cancelled = await agenda.cancel_event(
        request.pool,
        _asked_event(request),
        version=_version(request),
        actor=request.actor,
        policy=service.policy_of(request.call.room.settings),
    )
    return request.done(person_page(cancelled.user_id), "The message is cancelled; the next one is planned.")


def _version(request: PageRequest) -> int:
    written = request.form.get("version", "")
    if not written.isdecimal() or len(written) > 9:  # noqa: PLR2004 - digits of an integer
        raise BadInput.of("version", "is not from the page of the person")
    return int(written)


async def ask_move_page(request: PageRequest) -> Answer:
    return _move_form(request, await agenda.get_event(request.pool, _asked_event(request)))


def _move_form(request: PageRequest, event: ScheduledEvent, problem: str | None = None) -> Answer:
    return request.form_page(
        "Move the message",
        (
            FormField("version", "Version", "hidden", str(event.version)),
            FormField(
                "at", f"Local time in {event.timezone}", "datetime-local", f"{event.target_local:%Y-%m-%dT%H:%M}"
            ),
        ),
        to=f"{person_page(event.user_id)}/events/{event.id}/move",
        button="Move it",
        lead="Only this occurrence moves; the ones after it follow their rule.",
        back=person_page(event.user_id),
        problem=problem,
    )


async def move_page(request: PageRequest) -> Answer:
    event = await agenda.get_event(request.pool, _asked_event(request))
    try:
        at = datetime.fromisoformat(request.form.get("at", ""))
        moved = await agenda.move_event(request.pool, event.id, at=at, version=_version(request), actor=request.actor)
    except (ValueError, PostroomError) as error:
        return _move_form(request, event, str(error))
    return request.done(person_page(moved.user_id), f"The message moved to {_local(moved)} in {moved.timezone}.")


async def delete_page(request: PageRequest) -> Answer:
    await service.delete_user(request.pool, _asked_person(request), actor=request.actor)
    return request.done("/people", "The person and their planned messages are deleted.")


_ONE = "/people/{user_id:uuid}"
PAGES = (
    page("/schedule", list_page, scope=READ),
    page("/people", people_page, scope=READ),
    page(_ONE, show_page, scope=READ),
    page(f"{_ONE}/preview", frame_page, scope=READ),
    form(f"{_ONE}/delete", delete_page, scope=WRITE),
    page(f"{_ONE}/events/{{event_id:uuid}}/move", ask_move_page, scope=WRITE),
    form(f"{_ONE}/events/{{event_id:uuid}}/move", move_page, scope=WRITE),
    form(f"{_ONE}/events/{{event_id:uuid}}/cancel", cancel_page, scope=WRITE),
)
