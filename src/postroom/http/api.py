"""API keys over HTTP: list, create, revoke. The key itself is in the answer to its creation and nowhere else."""

from datetime import datetime
from typing import Annotated

import msgspec

from postroom.http import service
from postroom.http.auth import Authenticator
from postroom.http.model import ALL, SCOPES, ApiKey
from postroom.runtime.endpoint import Answer, Call, Endpoint
from postroom.runtime.page import Cursor, Limit
from postroom.runtime.record import Shape

MANAGE = "keys:manage"

_NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$"
_SCOPE = "^(" + "|".join((*SCOPES, r"\*")) + ")$"


class KeyQuery(Shape, frozen=True, kw_only=True):
    """Which page of the keys."""

    cursor: Cursor | None = None
    limit: Limit = 50


class NewKey(Shape, frozen=True, kw_only=True):
    """A key to make: its name becomes the source of its deliveries."""

    name: Annotated[str, msgspec.Meta(pattern=_NAME)]
    scopes: Annotated[
        list[Annotated[str, msgspec.Meta(pattern=_SCOPE)]], msgspec.Meta(min_length=1, max_length=len(SCOPES) + 1)
    ]


class KeyShape(msgspec.Struct, frozen=True, kw_only=True):
    """A key without the key."""

    id: int
    name: str
    prefix: str
    scopes: list[str]
    created_at: datetime
    last_used_at: datetime | None
    revoked_at: datetime | None


class CreatedKey(msgspec.Struct, frozen=True, kw_only=True):
    """A key, this once."""

    key: str
    id: int
    name: str
    prefix: str
    scopes: list[str]
    created_at: datetime


class KeyPage(msgspec.Struct, frozen=True):
    """Keys, newest first."""

    items: list[KeyShape]
    next_cursor: str | None


def _shape(key: ApiKey) -> KeyShape:
    return KeyShape(
        id=key.id,
        name=key.name,
        prefix=key.prefix,
        scopes=list(key.scopes),
        created_at=key.created_at,
        last_used_at=key.last_used_at,
        revoked_at=key.revoked_at,
    )


def _created(key: str, row: ApiKey) -> CreatedKey:
    return CreatedKey(
        key=key, id=row.id, name=row.name, prefix=row.prefix, scopes=list(row.scopes), created_at=row.created_at
    )


async def list_keys(call: Call) -> Answer:
    keys, cursor = await service.list_keys(call.room.pool, cursor=call.query.cursor, limit=call.query.limit)
    return Answer(KeyPage([_shape(key) for key in keys], cursor))


_LISTING = Endpoint(
    method="GET",
    path="/v1/keys",
    handler=list_keys,
    summary="List API keys, newest first, the revoked ones too.",
    scope=MANAGE,
    tag="keys",
    query=KeyQuery,
    answers={200: KeyPage},
)


def endpoints(auth: Authenticator) -> list[Endpoint]:
    """The endpoints; the authenticator is told of revocations, so that they hold here at once."""

    async def create_key(call: Call) -> Answer:
        owner = await auth.authenticate(call.headers.get("authorization"), MANAGE)
        service.check_within(owner, call.body.scopes)  # a key cannot give what it does not have
        key, row = await service.create_key(call.room.pool, call.body.name, scopes=call.body.scopes, actor=call.actor)
        return Answer(_created(key, row), 201, headers={"cache-control": "no-store"})

    async def revoke_key(call: Call) -> Answer:
        owner = await auth.authenticate(call.headers.get("authorization"), MANAGE)
        key = await service.revoke_key(call.room.pool, call.path["key_id"], actor=call.actor, by=owner)
        auth.forget(key.id)
        return Answer(_shape(key))

    return [
        _LISTING,
        Endpoint(
            method="POST",
            path="/v1/keys",
            handler=create_key,
            summary=f"Make an API key and show it once. Scopes: {', '.join(SCOPES)}, or {ALL} for all.",
            scope=MANAGE,
            tag="keys",
            body=NewKey,
            answers={201: CreatedKey},
        ),
        Endpoint(
            method="DELETE",
            path="/v1/keys/{key_id:int}",
            handler=revoke_key,
            summary="Revoke an API key for good, if it has no scope that yours lacks.",
            scope=MANAGE,
            tag="keys",
            answers={200: KeyShape},
            problems=(404,),
        ),
    ]
