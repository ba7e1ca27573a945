"""API keys and operators over HTTP. Only the response to the creation of a key contains the key itself."""

from functools import partial
from typing import Annotated

import msgspec

from postroom.http import operators, service, sessions
from postroom.http.auth import Authenticator
from postroom.http.model import ALL, SCOPES, ApiKey, OpenSession, Operator, Role
from postroom.http.notices import Notify, notifier
from postroom.http.second_factor import remove_second_factor
from postroom.limits.model import LARGEST, MOST_DOMAINS
from postroom.runtime.endpoint import Answer, Call, Endpoint
from postroom.runtime.page import Page, PageQuery, page_of
from postroom.runtime.record import Moment, Shape, Text, answer, change, given, response
from postroom.runtime.service_endpoint import serve

MANAGE, OPERATORS = "keys:manage", "operators:manage"

_NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$"
_SCOPE = "^(" + "|".join((*SCOPES, r"\*")) + ")$"


Count = Annotated[int, msgspec.Meta(ge=1, le=LARGEST)]
Domains = Annotated[list[Text], msgspec.Meta(max_length=MOST_DOMAINS)]


class KeyLimits(Shape, frozen=True, kw_only=True):
    """Limits of a key. Each recipient in To, Cc and Bcc is one mail; a day is a UTC day."""

    expires_at: Moment | None = None
    rate_per_minute: Count | None = None
    daily_quota: Count | None = None
    from_domains: Domains = msgspec.field(default_factory=list)


class NewKey(KeyLimits, frozen=True, kw_only=True):
    """A key to make: its name becomes the source of its deliveries."""

    name: Annotated[str, msgspec.Meta(pattern=_NAME)]
    scopes: Annotated[
        list[Annotated[str, msgspec.Meta(pattern=_SCOPE)]], msgspec.Meta(min_length=1, max_length=len(SCOPES) + 1)
    ]


KeyChange = change(KeyLimits, "KeyChange", never_null=("from_domains",))
CreatedKey = response(ApiKey, "CreatedKey", hide=("last_used_at", "revoked_at"), extra={"key": str})


async def create_key(call: Call) -> Answer:
    owner = await _owner(call)  # a key cannot give what it does not have
    limits = {name: getattr(call.body, name) for name in KeyLimits.__struct_fields__}
    key, row = await service.create_key(
        call.room.pool, call.body.name, scopes=call.body.scopes, actor=call.actor, limits=limits, by=owner
    )
    return Answer(answer(CreatedKey, row, key=key), 201, headers={"cache-control": "no-store"})


async def change_key(call: Call) -> Answer:
    owner = await _owner(call)
    key = await service.change_key(call.room.pool, call.path["key_id"], given(call.body), actor=call.actor, by=owner)
    call.tool(Authenticator).forget(key.id)
    return Answer(key)


async def revoke_key(call: Call) -> Answer:
    owner = await _owner(call)
    key = await service.revoke_key(call.room.pool, call.path["key_id"], actor=call.actor, by=owner)
    call.tool(Authenticator).forget(key.id)  # from its cache, so that the revocation takes effect here at once
    return Answer(key)


async def _owner(call: Call, scope: str = MANAGE) -> ApiKey:
    """The key of the request."""
    return await call.tool(Authenticator).authenticate(call.headers.get("authorization"), scope)


_endpoint = partial(Endpoint, scope=MANAGE, tag="keys")
_serve = partial(serve, scope=MANAGE, tag="keys")

KEY_ENDPOINTS = [
    _serve(
        "GET", "/v1/keys", service.list_keys, "List API keys, newest first, the revoked ones too.", query=PageQuery,
        answers={200: Page[ApiKey]},
    ),
    _endpoint(
        "POST", "/v1/keys", create_key,
        f"Create an API key and show it once. Scopes: {', '.join(SCOPES)}, or {ALL} for all.", body=NewKey,
        answers={201: CreatedKey},
    ),
    _endpoint(
        "PATCH", "/v1/keys/{key_id:int}", change_key,
        "Change the limits of an API key; your key must have all its scopes.", body=KeyChange, answers={200: ApiKey},
        problems=(404,),
    ),
    _endpoint(
        "DELETE", "/v1/keys/{key_id:int}", revoke_key,
        "Revoke an API key permanently; your key must have all its scopes.", answers={200: ApiKey}, problems=(404,),
    ),
]  # fmt: skip


# ── operators ────────────────────────────────────────────────────────────────────────────────────────────────────────

OperatorShape = response(Operator, "OperatorShape", hide=("sessions_since",))


class NewOperator(Shape, frozen=True, kw_only=True):
    """A person who signs in to the dashboard with a code that is mailed to this address."""

    email: Annotated[str, msgspec.Meta(max_length=254)]
    role: Role


class OperatorChange(Shape, frozen=True, kw_only=True):
    """The new role. Open sessions have it from their next request on."""

    role: Role


async def add_operator(call: Call) -> Answer:
    by = await _giver(call)
    made = await operators.add_operator(call.room.pool, call.body.email, call.body.role, actor=call.actor, by=by)
    return Answer(answer(OperatorShape, made), 201, headers={"location": f"/v1/operators/{made.id}"})


async def _giver(call: Call) -> ApiKey:
    """The key of the request: it can neither give nor take a role with a scope that it does not have."""
    return await _owner(call, OPERATORS)


SessionShape = response(OpenSession, "SessionShape", hide=("nonce",))


def _notify(call: Call) -> Notify:
    return notifier(call.room.settings, client=call.client, agent=call.headers.get("user-agent", ""))


_operators = partial(serve, scope=OPERATORS, tag="operators")
_ONE = "/v1/operators/{operator_id:int}"

ENDPOINTS = [
    *KEY_ENDPOINTS,
    _operators(
        "GET", "/v1/operators", operators.list_operators, "List operators, newest first.", query=PageQuery,
        answers={200: page_of(OperatorShape)},
    ),
    Endpoint(
        "POST", "/v1/operators", add_operator, "Add a person who signs in to the dashboard, with a role.",
        scope=OPERATORS, tag="operators", body=NewOperator, answers={201: OperatorShape},
    ),
    _operators("GET", _ONE, operators.get_operator, "Show an operator.", answers={200: OperatorShape}),
    _operators(
        "PATCH", _ONE, operators.change_role, "Give an operator another role; your key must have all scopes of both.",
        body=OperatorChange, answers={200: OperatorShape}, given={"by": _giver},
    ),
    _operators(
        "POST", f"{_ONE}/disable", operators.disable_operator,
        "Refuse the sign-ins of an operator and end all sessions.", answers={200: OperatorShape}, given={"by": _giver},
    ),
    _operators(
        "POST", f"{_ONE}/enable", operators.enable_operator, "Let a disabled operator sign in again.",
        answers={200: OperatorShape}, given={"by": _giver},
    ),
    _operators(
        "GET", f"{_ONE}/sessions", sessions.list_operator_sessions,
        "List the open sessions of an operator, newest first.", answers={200: page_of(SessionShape)},
    ),
    _operators(
        "POST", f"{_ONE}/end-sessions", operators.end_sessions, "End all sessions of an operator.",
        answers={200: OperatorShape}, given={"by": _giver},
    ),
    _operators(
        "POST", f"{_ONE}/remove-second-factor", remove_second_factor,
        "Remove the second factor of an operator, for example after the loss of the phone.",
        answers={200: OperatorShape}, given={"by": _giver, "notify": _notify},
    ),
    _operators(
        "DELETE", _ONE, operators.remove_operator,
        "Remove an operator and end all sessions; the audit log keeps the entries.", answers={200: OperatorShape},
        given={"by": _giver},
    ),
]  # fmt: skip
