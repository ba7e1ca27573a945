"""People over HTTP: create, read, change and delete; and their occasions, messages besides the birthday greeting."""

import re
from datetime import datetime
from functools import partial
from typing import Annotated, Any
from uuid import UUID

import msgspec
from msgspec.structs import asdict

from postroom.errors import BadInput
from postroom.runtime.endpoint import Answer, Call, Endpoint
from postroom.runtime.page import PageQuery, page_of
from postroom.runtime.record import Shape, answer, change, given, many, request, response
from postroom.runtime.service_endpoint import serve
from postroom.schedule import service
from postroom.schedule.check import read_date
from postroom.schedule.model import Occasion, Person, SchedulePolicy, User

READ = "users:read"
WRITE = "users:write"

_TAG = re.compile(r'(?:W/)?"(\d{1,9})"|(\d{1,9})')
_DATE = Annotated[
    str,
    msgspec.Meta(max_length=10, description="Date of birth, such as 1815-12-10.", extra_json_schema={"format": "date"}),
]
_VERSION = Annotated[int, msgspec.Meta(ge=1, le=2**31 - 1)]


NewUser = request(
    Person,
    "NewUser",
    types={"date_of_birth": _DATE},
    doc="A person to greet; `webhook_url` is used before `email`, and without both the installation's webhook.",
)
UserChange = change(NewUser, "UserChange", extra={"version": _VERSION})
_KNOWN = {"id": UUID, "version": int, "created_at": datetime, "updated_at": datetime}
UserShape = response(Person, "UserShape", extra=_KNOWN)
ChangedUser = response(Person, "ChangedUser", extra={**_KNOWN, "events_moved": int, "events_skipped": int})


def policy(call: Call) -> SchedulePolicy:
    return service.policy_of(call.room.settings)


async def create_user(call: Call) -> Answer:
    person = Person(**{**asdict(call.body), "date_of_birth": read_date(call.body.date_of_birth)})
    user = await service.create_user(call.room.pool, person, policy=policy(call), actor=call.actor)
    return Answer(answer(UserShape, user, user.person), 201, headers={**_tag(user), "location": f"/v1/users/{user.id}"})


async def get_user(call: Call) -> Answer:
    user = await service.get_user(call.room.pool, call.path["user_id"])
    return Answer(answer(UserShape, user, user.person), headers=_tag(user))


async def update_user(call: Call) -> Answer:
    changes = {name: value for name, value in given(call.body).items() if name != "version"}
    if "date_of_birth" in changes:
        changes["date_of_birth"] = read_date(changes["date_of_birth"])
    user, moved = await service.update_user(
        call.room.pool,
        call.path["user_id"],
        changes,
        version=_version(call),
        policy=policy(call),
        actor=call.actor,
    )
    changed = answer(ChangedUser, user, user.person, events_moved=moved.moved, events_skipped=moved.skipped)
    return Answer(changed, headers=_tag(user))


def _version(call: Call) -> int | None:
    """The version the caller has read, from the body or If-Match; None for `*` or without either."""
    if call.body.version is not msgspec.UNSET:
        return int(call.body.version)
    tag = call.headers.get("if-match", "*").strip()
    if tag == "*":
        return None
    found = _TAG.fullmatch(tag)
    if found is None:
        raise BadInput.of("If-Match", 'must be a version such as "3"')
    return int(found[1] or found[2])


def _tag(user: User) -> dict[str, str]:
    return {"etag": f'"{user.version}"'}


# ── occasions ────────────────────────────────────────────────────────────────────────────────────────────────────────

_OCCASIONS = "/v1/users/{user_id:uuid}/occasions"
_RULE = Annotated[
    dict[str, Any],
    msgspec.Meta(
        description="ANNIVERSARY: date, days_before. REMINDER: at, a local time. "
        "RECURRING: every (day, week or month), start, until, at, weekdays, day."
    ),
]


class NewOccasion(Shape, frozen=True, kw_only=True):
    """An anniversary, a reminder or a recurring message, at the person's local time."""

    kind: Annotated[str, msgspec.Meta(max_length=50, description="ANNIVERSARY, REMINDER or RECURRING.")]
    rule: _RULE
    message: Annotated[str, msgspec.Meta(max_length=service.LONGEST_MESSAGE)] = ""
    template: Annotated[
        str | None, msgspec.Meta(description="Mail template; by default the message is subject and text.")
    ] = None


OccasionShape = response(Occasion, "OccasionShape", hide=("user_id", "created_at"))


class OccasionPage(msgspec.Struct, frozen=True):
    """All occasions of a person."""

    items: many(OccasionShape)  # type: ignore[valid-type]  # made by `response`


async def list_occasions(call: Call) -> Answer:
    found = await service.list_occasions(call.room.pool, call.path["user_id"])
    return Answer(OccasionPage([answer(OccasionShape, occasion) for occasion in found]))


# ── endpoints ────────────────────────────────────────────────────────────────────────────────────────────────────────

_endpoint = partial(Endpoint, tag="users")
_serve = partial(serve, tag="users")

ENDPOINTS = [
    _serve(
        "GET", "/v1/users", service.list_users, "List people, newest first.", scope=READ, query=PageQuery,
        from_replica=True, answers={200: page_of(UserShape)}, shape=lambda user: answer(UserShape, user, user.person),
    ),
    _endpoint(
        "POST", "/v1/users", create_user, "Create a person and plan their next birthday greeting.", scope=WRITE,
        body=NewUser, answers={201: UserShape},
    ),
    _endpoint("GET", "/v1/users/{user_id:uuid}", get_user, "Read a person.", scope=READ, answers={200: UserShape}),
    _endpoint(
        "PUT", "/v1/users/{user_id:uuid}", update_user, "Change a person and move their planned greetings accordingly.",
        scope=WRITE, body=UserChange, answers={200: ChangedUser}, problems=(409,),
    ),
    _serve(
        "DELETE", "/v1/users/{user_id:uuid}", service.delete_user, "Delete a person and everything planned for them.",
        scope=WRITE, answers={204: None},
    ),
    _endpoint(
        "GET", _OCCASIONS, list_occasions, "List the occasions of a person: messages besides the birthday greeting.",
        scope=READ, answers={200: OccasionPage},
    ),
    _serve(
        "POST", _OCCASIONS, service.add_occasion, "Add an anniversary, a reminder or a recurring message, and plan it.",
        scope=WRITE, body=NewOccasion, answers={201: OccasionShape}, given={"policy": policy},
    ),
    _serve(
        "DELETE", _OCCASIONS + "/{occasion_id:uuid}", service.remove_occasion,
        "Delete an occasion and its planned events.", scope=WRITE, answers={204: None},
    ),
]  # fmt: skip
