"""Operators over HTTP: list, add, change the role, disable, enable, remove."""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Annotated

import msgspec

from postroom.http import operators as service
from postroom.http.auth import Authenticator
from postroom.http.model import Operator, Principal, Role
from postroom.runtime.endpoint import Answer, Call, Endpoint
from postroom.runtime.page import Page, PageQuery, page_of
from postroom.runtime.record import Shape, answer, response

MANAGE = "operators:manage"

OperatorShape = response(Operator, "OperatorShape", hide=("sessions_since",))


class NewOperator(Shape, frozen=True, kw_only=True):
    """A person who signs in to the dashboard with a code that is mailed to this address."""

    email: Annotated[str, msgspec.Meta(max_length=254)]
    role: Role


class OperatorChange(Shape, frozen=True, kw_only=True):
    """The new role. Open sessions have it from their next request on."""

    role: Role


async def list_operators(call: Call) -> Answer:
    found, more = await service.list_operators(call.room.pool, cursor=call.query.cursor, limit=call.query.limit)
    return Answer(Page([answer(OperatorShape, each) for each in found], more))


async def add_operator(call: Call) -> Answer:
    by = await _owner(call)
    made = await service.add_operator(call.room.pool, call.body.email, call.body.role, actor=call.actor, by=by)
    return Answer(answer(OperatorShape, made), 201, headers={"location": f"/v1/operators/{made.id}"})


async def get_operator(call: Call) -> Answer:
    return Answer(answer(OperatorShape, await service.get_operator(call.room.pool, call.path["operator_id"])))


async def change_role(call: Call) -> Answer:
    number, role, by = call.path["operator_id"], call.body.role, await _owner(call)
    changed = await service.change_role(call.room.pool, number, role, actor=call.actor, by=by)
    return Answer(answer(OperatorShape, changed))


async def disable_operator(call: Call) -> Answer:
    return await _act(service.disable_operator, call)


async def enable_operator(call: Call) -> Answer:
    return await _act(service.enable_operator, call)


async def remove_operator(call: Call) -> Answer:
    return await _act(service.remove_operator, call)


async def _act(act: Callable[..., Awaitable[Operator]], call: Call) -> Answer:
    """The operator after the action; as it was before, if it is removed."""
    by = await _owner(call)
    return Answer(answer(OperatorShape, await act(call.room.pool, call.path["operator_id"], actor=call.actor, by=by)))


async def _owner(call: Call) -> Principal:
    """The key of the request: it can neither give nor take a role with a scope that it does not have."""
    return await call.tool(Authenticator).authenticate(call.headers.get("authorization"), MANAGE)


_endpoint = partial(Endpoint, scope=MANAGE, tag="operators")
_ONE = "/v1/operators/{operator_id:int}"

ENDPOINTS = [
    _endpoint(
        "GET", "/v1/operators", list_operators, "List operators, newest first.", query=PageQuery,
        answers={200: page_of(OperatorShape)},
    ),
    _endpoint(
        "POST", "/v1/operators", add_operator, "Add a person who signs in to the dashboard, with a role.",
        body=NewOperator, answers={201: OperatorShape},
    ),
    _endpoint("GET", _ONE, get_operator, "Show an operator.", answers={200: OperatorShape}),
    _endpoint(
        "PATCH", _ONE, change_role, "Give an operator another role; your key must have all scopes of both.",
        body=OperatorChange, answers={200: OperatorShape},
    ),
    _endpoint(
        "POST", f"{_ONE}/disable", disable_operator,
        "Refuse the sign-ins of an operator and end all sessions.", answers={200: OperatorShape},
    ),
    _endpoint(
        "POST", f"{_ONE}/enable", enable_operator, "Let a disabled operator sign in again.",
        answers={200: OperatorShape},
    ),
    _endpoint(
        "DELETE", _ONE, remove_operator,
        "Remove an operator and end all sessions; the audit log keeps the entries.", answers={200: OperatorShape},
    ),
]  # fmt: skip
