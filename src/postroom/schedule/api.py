"""People over HTTP: store, read, change and forget."""

import re
from datetime import date, datetime
from typing import Annotated
from uuid import UUID

import msgspec

from postroom.errors import BadInput
from postroom.runtime.endpoint import Answer, Call, Endpoint
from postroom.runtime.page import Cursor, Limit
from postroom.runtime.record import Shape
from postroom.schedule import service
from postroom.schedule.check import read_date
from postroom.schedule.model import Moved, Person, User, user_fields

READ = "users:read"
WRITE = "users:write"

_TAG = re.compile(r'(?:W/)?"(\d{1,9})"|(\d{1,9})')
_TEXT = Annotated[str, msgspec.Meta(max_length=2048)]
_DATE = Annotated[
    str, msgspec.Meta(max_length=10, description="Such as 1815-12-10.", extra_json_schema={"format": "date"})
]
_ZONE = Annotated[str, msgspec.Meta(max_length=100, description="An IANA time zone such as Europe/London, or UTC.")]
_LOCALE = Annotated[str, msgspec.Meta(max_length=35, description="Of mail, such as fr or pt-BR; English if left out.")]
_TEMPLATE = Annotated[
    str, msgspec.Meta(max_length=100, description="Of the birthday greeting by mail; `birthday` if left out.")
]
_VERSION = Annotated[int, msgspec.Meta(ge=1, le=2**31 - 1)]


class NewUser(Shape, frozen=True, kw_only=True):
    """A person to be greeted; `webhook_url` is used before `email`, and without both the installation's webhook."""

    first_name: _TEXT
    last_name: _TEXT
    date_of_birth: _DATE
    timezone: _ZONE
    email: _TEXT | None = None
    webhook_url: _TEXT | None = None
    locale: _LOCALE | None = None
    template: _TEMPLATE | None = None


class UserChange(Shape, frozen=True, kw_only=True):
    """What to change; what is left out stays. With `version` (or If-Match), only if nobody was faster."""

    first_name: _TEXT | msgspec.UnsetType = msgspec.UNSET
    last_name: _TEXT | msgspec.UnsetType = msgspec.UNSET
    date_of_birth: _DATE | msgspec.UnsetType = msgspec.UNSET
    timezone: _ZONE | msgspec.UnsetType = msgspec.UNSET
    email: _TEXT | msgspec.UnsetType | None = msgspec.UNSET
    webhook_url: _TEXT | msgspec.UnsetType | None = msgspec.UNSET
    locale: _LOCALE | msgspec.UnsetType | None = msgspec.UNSET
    template: _TEMPLATE | msgspec.UnsetType | None = msgspec.UNSET
    version: _VERSION | msgspec.UnsetType = msgspec.UNSET


class UserQuery(Shape, frozen=True, kw_only=True):
    """Which page."""

    cursor: Cursor | None = None
    limit: Limit = 50


class UserShape(msgspec.Struct, frozen=True, kw_only=True):
    """A person."""

    id: UUID
    first_name: str
    last_name: str
    date_of_birth: date
    timezone: str
    email: str | None
    webhook_url: str | None
    locale: str | None
    template: str | None
    version: int
    created_at: datetime
    updated_at: datetime


class ChangedUser(UserShape, frozen=True, kw_only=True):
    """A person after a change: how many planned events were moved, and how many had begun and were left alone."""

    events_moved: int
    events_skipped: int


class UserPage(msgspec.Struct, frozen=True):
    """People, newest first."""

    items: list[UserShape]
    next_cursor: str | None


async def create_user(call: Call) -> Answer:
    body: NewUser = call.body
    person = Person(
        first_name=body.first_name,
        last_name=body.last_name,
        date_of_birth=read_date(body.date_of_birth),
        timezone=body.timezone,
        email=body.email,
        webhook_url=body.webhook_url,
        locale=body.locale,
        template=body.template,
    )
    policy = service.policy_of(call.room.settings)
    user = await service.create_user(call.room.pool, person, policy=policy)
    return Answer(_shape(user), 201, headers={**_tag(user), "location": f"/v1/users/{user.id}"})


async def delete_user(call: Call) -> Answer:
    await service.delete_user(call.room.pool, call.path["user_id"], actor=call.actor)
    return Answer(b"", 204)


async def get_user(call: Call) -> Answer:
    user = await service.get_user(call.room.pool, call.path["user_id"])
    return Answer(_shape(user), headers=_tag(user))


async def list_users(call: Call) -> Answer:
    query: UserQuery = call.query
    users, cursor = await service.list_users(call.room.pool, cursor=query.cursor, limit=query.limit)
    return Answer(UserPage([_shape(user) for user in users], cursor))


async def update_user(call: Call) -> Answer:
    changes = {
        name: value for name in Person.__dataclass_fields__ if (value := getattr(call.body, name)) is not msgspec.UNSET
    }
    if "date_of_birth" in changes:
        changes["date_of_birth"] = read_date(changes["date_of_birth"])
    user, moved = await service.update_user(
        call.room.pool,
        call.path["user_id"],
        changes,
        version=_version(call),
        policy=service.policy_of(call.room.settings),
    )
    return Answer(_changed(user, moved), headers=_tag(user))


def _version(call: Call) -> int | None:
    """The version the caller has seen, from the body or from If-Match; `*` and nothing ask for none."""
    if call.body.version is not msgspec.UNSET:
        return int(call.body.version)
    given = call.headers.get("if-match", "*").strip()
    if given == "*":
        return None
    found = _TAG.fullmatch(given)
    if found is None:
        raise BadInput.of("If-Match", 'must be a version such as "3"')
    return int(found[1] or found[2])


def _tag(user: User) -> dict[str, str]:
    return {"etag": f'"{user.version}"'}


def _shape(user: User) -> UserShape:
    return UserShape(**user_fields(user))


def _changed(user: User, moved: Moved) -> ChangedUser:
    return ChangedUser(**user_fields(user), events_moved=moved.moved, events_skipped=moved.skipped)


ENDPOINTS = [
    Endpoint(
        method="GET",
        path="/v1/users",
        handler=list_users,
        summary="List people, newest first.",
        scope=READ,
        tag="users",
        query=UserQuery,
        answers={200: UserPage},
    ),
    Endpoint(
        method="POST",
        path="/v1/users",
        handler=create_user,
        summary="Store a person and plan their next birthday greeting.",
        scope=WRITE,
        tag="users",
        body=NewUser,
        answers={201: UserShape},
    ),
    Endpoint(
        method="GET",
        path="/v1/users/{user_id:uuid}",
        handler=get_user,
        summary="Read a person.",
        scope=READ,
        tag="users",
        answers={200: UserShape},
    ),
    Endpoint(
        method="PUT",
        path="/v1/users/{user_id:uuid}",
        handler=update_user,
        summary="Change a person; planned greetings move with them.",
        scope=WRITE,
        tag="users",
        body=UserChange,
        answers={200: ChangedUser},
        problems=(409,),
    ),
    Endpoint(
        method="DELETE",
        path="/v1/users/{user_id:uuid}",
        handler=delete_user,
        summary="Forget a person and everything planned for them.",
        scope=WRITE,
        tag="users",
        answers={204: None},
    ),
]
