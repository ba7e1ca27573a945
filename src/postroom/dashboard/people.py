"""People: the list, one person with their next message, and forms to create and change people and their occasions."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from postroom.dashboard.listing import Filter, FormField, ListColumn, PageAction, columns
from postroom.dashboard.page import PageRequest, actions, form, form_pages, page
from postroom.dashboard.preferences import zones
from postroom.dashboard.preview import preview
from postroom.dashboard.schedule import EVENT, READ, local_time, person_page, tabs
from postroom.delivery.model import DeliveryRequest
from postroom.errors import BadInput, NotFoundError, PostroomError
from postroom.mail import library
from postroom.mail.render import Rendered
from postroom.runtime.endpoint import Answer
from postroom.runtime.page import Found
from postroom.schedule import scheduled_events as agenda
from postroom.schedule import service
from postroom.schedule.check import read_date
from postroom.schedule.kinds import OCCASIONS
from postroom.schedule.model import Occasion, Person, ScheduledEvent, User, person_fields

WRITE = "users:write"
_LARGEST_VERSION = 2**31 - 1  # integer


def _rule(occasion: Occasion) -> str:
    """The rule in words: `every week, start 2026-11-16, weekdays mon thu`."""
    written = {name: " ".join(value) if isinstance(value, list) else value for name, value in occasion.rule.items()}
    return ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in written.items())


_PERSON = (
    ListColumn("name", "Person", value=lambda user: user.person.name, link=lambda user: person_page(user.id)),
    ListColumn("email", "Address", value=lambda user: user.person.email or user.person.webhook_url),
    ListColumn("born", "Born", value=lambda user: f"{user.person.date_of_birth}"),
    ListColumn("timezone", "Time zone", value=lambda user: user.person.timezone),
    ListColumn("created_at", "Created", "when", is_minor=True),
)

_FACTS = columns(
    Person, "email", "webhook_url", "timezone", "date_of_birth", "locale", "template", timezone={"label": "Time zone"}
)
_OCCASION = (
    ListColumn("kind", "Kind", "words", value=lambda occasion: occasion.kind.lower()),
    *columns(Occasion, "message", "template", message={"form": "clip"}),
    ListColumn("rule", "Rule", "clip", value=_rule),
)

_ONE = "/people/{user_id:uuid}"
_EDIT = PageAction("Edit", f"{_ONE}/edit", WRITE, is_link=True)
_DELETE = PageAction(
    "Delete", f"{_ONE}/delete", WRITE, service.delete_user, "The person and their planned messages are deleted.",
    to="/people",
    question="The person, their occasions and planned messages are deleted, and queued greetings are cancelled.",
)  # fmt: skip
_MOVE = PageAction("Move…", f"{_ONE}/events/{{event_id:uuid}}/move", WRITE, is_link=True)
_CANCEL = PageAction(
    "Cancel this message", f"{_ONE}/events/{{event_id:uuid}}/cancel", WRITE,
    question="It is not sent, and cannot be sent later. The occurrence after it is planned.",
)  # fmt: skip
_REMOVE = PageAction(
    "Remove", f"{_ONE}/occasions/{{occasion_id:uuid}}/remove", WRITE, service.remove_occasion,
    "The occasion and its planned messages are deleted.", to="/people/{user_id}",
    question="The occasion and its planned messages are deleted.",
)  # fmt: skip
_TEMPLATE = "Empty: the message is subject and text"
_WORDS = (
    FormField("message", "Message", "lines", hint="Empty: a text of the kind"),
    FormField("template", "Mail template", hint=_TEMPLATE),
)
_RULES: dict[str, tuple[FormField, ...]] = {
    "ANNIVERSARY": (
        FormField("date", "Day", "date", hint="Every year on this day", is_required=True),
        FormField("days_before", "Days before it", "number", "0"),
    ),
    "REMINDER": (FormField("at", "Local time", "datetime-local", is_required=True),),
    "RECURRING": (
        FormField("every", "Every", options=("day", "week", "month")),
        FormField("start", "From", "date", is_required=True),
        FormField("until", "Until", "date", hint="Empty: without an end"),
        FormField("at", "Local time", "time", hint="Empty: the time of the settings"),
        FormField("weekdays", "Weekdays", hint="For a week: mon, thu. Empty: the weekday of the first day"),
        FormField("day", "Day of the month", "number", hint="For a month. Empty: the day of the first day"),
    ),
}
"""The fields of the rule of each kind; their names are those of the API."""


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
        filters=[Filter("email", "Address", placeholder="ada@example.org")],
        tabs=tabs("/people"),
        actions=[PageAction("New person", "/people/new", WRITE, is_link=True, is_main=True)],
    )


async def show_page(request: PageRequest) -> Answer:
    """A person: the next message as it would be sent now, their occasions, and past messages."""
    user_id = request.id("user_id")
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
        edit=_EDIT.at(user_id),
        delete=_DELETE.at(user_id),
        actions=_event_actions(coming.event) if coming else [],
        occasions=await service.list_occasions(request.pool, user_id),
        occasion_columns=_OCCASION,
        occasion_actions=lambda occasion: [_REMOVE.at(occasion.user_id, occasion.id)],
        events=request.rows(EVENT, events, path=person_page(user_id), empty="Nothing is planned and nothing was sent."),
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
    user_id = request.id("user_id")
    coming = await agenda.preview_next(request.pool, user_id, policy=service.policy_of(request.call.room.settings))
    message, _problem = await _render(request, coming.request) if coming and coming.request else (None, None)
    if message is None or message.html is None:
        raise NotFoundError("There is no HTML to show.")
    return await preview(message.html)


def _event_actions(event: ScheduledEvent) -> list[PageAction]:
    place = (event.user_id, event.id)
    return [_MOVE.at(*place), _CANCEL.at(*place, fields={"version": str(event.version)})]


async def cancel_page(request: PageRequest) -> Answer:
    cancelled = await agenda.cancel_event(
        request.pool,
        request.id("event_id"),
        version=_version(request),
        actor=request.actor,
        policy=service.policy_of(request.call.room.settings),
    )
    return request.done(person_page(cancelled.user_id), "The message is cancelled; the next one is planned.")


def _version(request: PageRequest) -> int:
    version = request.number("version", most=_LARGEST_VERSION)
    if version is None:
        raise BadInput.of("version", "is not from the page of the person")
    return version


async def ask_move_page(request: PageRequest) -> Answer:
    event = await agenda.get_event(request.pool, request.id("event_id"))
    return request.form_page(
        "Move the message",
        (
            FormField("version", "Version", "hidden", str(event.version)),
            FormField(
                "at", f"Local time in {event.timezone}", "datetime-local", f"{event.target_local:%Y-%m-%dT%H:%M}"
            ),
        ),
        button="Move it",
        lead="Only this occurrence moves; the ones after it follow their rule.",
        back=person_page(event.user_id),
    )


async def move_page(request: PageRequest) -> Answer:
    with BadInput.naming("at"):
        at = datetime.fromisoformat(request.form.get("at", ""))
    event_id, version = request.id("event_id"), _version(request)
    moved = await agenda.move_event(request.pool, event_id, at=at, version=version, actor=request.actor)
    return request.done(person_page(moved.user_id), f"The message moved to {local_time(moved)} in {moved.timezone}.")


# ── forms ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def _person_fields(person: Person | None) -> Sequence[FormField]:
    known = {} if person is None else {name: str(value or "") for name, value in person_fields(person).items()}
    fields = (
        FormField("first_name", "First name", is_required=True),
        FormField("last_name", "Last name", is_required=True),
        FormField("date_of_birth", "Date of birth", "date", is_required=True),
        FormField("timezone", "Time zone", hint="Such as Europe/London", is_required=True, suggestions="zones"),
        FormField("email", "Address", "email"),
        FormField("webhook_url", "Webhook", "url", hint="Messages go there instead of to the address"),
        FormField("locale", "Language of mail", hint="Such as fr or pt-BR. Empty: the default"),
        FormField("template", "Template of the birthday mail", hint="Empty: birthday"),
    )
    return [replace(each, value=known.get(each.name, "")) for each in fields]


def _read_person(form: Mapping[str, str]) -> dict[str, Any]:
    """The fields of the form; an empty optional one removes the value."""
    given: dict[str, Any] = {each.name: form.get(each.name, "").strip() for each in _person_fields(None)}
    optional = {name: given[name] or None for name in ("email", "webhook_url", "locale", "template")}
    return {**given, **optional, "date_of_birth": read_date(given["date_of_birth"])}


async def new_page(request: PageRequest) -> Answer:
    return request.form_page(
        "New person",
        _person_fields(None),
        button="Create the person",
        lead="Their next birthday greeting is planned at once. Applications write people by POST /v1/users.",
        back="/people",
        suggestions={"zones": zones()},
    )


async def create_page(request: PageRequest) -> Answer:
    policy, person = service.policy_of(request.call.room.settings), Person(**_read_person(request.form))
    made = await service.create_user(request.pool, person, policy=policy, actor=request.actor)
    return request.done(person_page(made.id), "The person is created, and their next greeting is planned.")


async def edit_page(request: PageRequest) -> Answer:
    user = await service.get_user(request.pool, request.id("user_id"))
    return request.form_page(
        f"Edit {user.person.name}",
        [FormField("version", "Version", "hidden", str(user.version)), *_person_fields(user.person)],
        button="Save",
        lead="Planned messages move to the new date of birth and time zone.",
        back=person_page(user.id),
        suggestions={"zones": zones()},
    )


async def update_page(request: PageRequest) -> Answer:
    user = await service.get_user(request.pool, request.id("user_id"))
    known = person_fields(user.person)
    _changed, moved = await service.update_user(
        request.pool,
        user.id,
        {name: value for name, value in _read_person(request.form).items() if value != known[name]},
        policy=service.policy_of(request.call.room.settings),
        version=_version(request),
        actor=request.actor,
    )
    events = "1 planned message moved" if moved.moved == 1 else f"{moved.moved} planned messages moved"
    return request.done(person_page(user.id), f"The person is saved; {events}.")


def _kind(request: PageRequest) -> str:
    written = (request.asked("kind") or "reminder").upper()
    if written not in OCCASIONS:
        raise BadInput.of("kind", f"must be one of {', '.join(OCCASIONS).lower()}")
    return written


async def new_occasion_page(request: PageRequest) -> Answer:
    kind = _kind(request)
    user = await service.get_user(request.pool, request.id("user_id"))
    path = f"{person_page(user.id)}/occasions/new"
    return request.form_page(
        f"New occasion of {user.person.name}",
        [FormField("kind", "Kind", "hidden", kind.lower()), *_RULES[kind], *_WORDS],
        button="Add it",
        lead=f"Times are local times in {user.person.timezone}.",
        back=person_page(user.id),
        tabs=[(each.lower(), f"{path}?kind={each.lower()}", each == kind) for each in sorted(OCCASIONS)],
    )


async def add_occasion_page(request: PageRequest) -> Answer:
    kind = _kind(request)
    await service.add_occasion(
        request.pool,
        request.id("user_id"),
        kind,
        rule=_read_rule(kind, request.form),
        message=request.form.get("message", "").replace("\r\n", "\n"),
        template=request.form.get("template", "").strip() or None,
        policy=service.policy_of(request.call.room.settings),
        actor=request.actor,
    )
    return request.done(person_page(request.id("user_id")), "The occasion is added, and its first message is planned.")


def _read_rule(kind: str, form: Mapping[str, str]) -> dict[str, Any]:
    """The rule as the API takes it, of the fields that are not empty."""
    given: dict[str, Any] = {each.name: form.get(each.name, "").strip() for each in _RULES[kind]}
    rule = {name: value for name, value in given.items() if value}
    numbers = {name: int(rule[name]) for name in ("days_before", "day") if rule.get(name, "").isdecimal()}
    if "weekdays" in rule:
        rule["weekdays"] = rule["weekdays"].lower().replace(",", " ").split()
    return {**rule, **numbers}


PAGES = (
    page("/people", people_page, scope=READ),
    *form_pages("/people/new", new_page, create_page, scope=WRITE),
    page(_ONE, show_page, scope=READ),
    page(f"{_ONE}/preview", frame_page, scope=READ),
    *form_pages(f"{_ONE}/edit", edit_page, update_page, scope=WRITE),
    *form_pages(f"{_ONE}/occasions/new", new_occasion_page, add_occasion_page, scope=WRITE),
    *form_pages(f"{_ONE}/events/{{event_id:uuid}}/move", ask_move_page, move_page, scope=WRITE),
    form(f"{_ONE}/events/{{event_id:uuid}}/cancel", cancel_page, scope=WRITE),
    *actions(_DELETE, _REMOVE),
)
