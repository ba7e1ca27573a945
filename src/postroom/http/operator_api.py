"""Operators over HTTP: list, add, change the role, disable, enable, remove."""

from functools import partial
from typing import Annotated

import msgspec

from postroom.http import operators as service
from postroom.http.auth import Authenticator
from postroom.http.model import Operator, Principal, Role
from postroom.runtime.endpoint import Answer, Call, Endpoint
from postroom.runtime.page import PageQuery, page_of
from postroom.runtime.record import Shape, answer, response
from postroom.runtime.service_endpoint import serve

MANAGE = "operators:manage"

OperatorShape = response(Operator, "OperatorShape", hide=("sessions_since",))


class NewOperator(Shape, frozen=True, kw_only=True):
    """A person who signs in to the dashboard with a code that is mailed to this address."""

    email: Annotated[str, msgspec.Meta(max_length=254)]
    role: Role


class OperatorChange(Shape, frozen=True, kw_only=True):
    """The new role. Open sessions have it from their next request on."""

    role: Role


async def add_operator(call: Call) -> Answer:
    by = await _owner(call)
    made = await service.add_operator(call.room.pool, call.body.email, call.body.role, actor=call.actor, by=by)
    return Answer(answer(OperatorShape, made), 201, headers={"location": f"/v1/operators/{made.id}"})


async def _owner(call: Call) -> Principal:
    """The key of the request: it can neither give nor take a role with a scope that it does not have."""
    return await call.tool(Authenticator).authenticate(call.headers.get("authorization"), MANAGE)


_endpoint = partial(Endpoint, scope=MANAGE, tag="operators")
_serve = partial(serve, scope=MANAGE, tag="operators")
_ONE = "/v1/operators/{operator_id:int}"

ENDPOINTS = [
    _serve(
        "GET", "/v1/operators", service.list_operators, "List operators, newest first.", query=PageQuery,
        answers={200: page_of(OperatorShape)},
    ),
    _endpoint(
        "POST", "/v1/operators", add_operator, "Add a person who signs in to the dashboard, with a role.",
        body=NewOperator, answers={201: OperatorShape},
    ),
    _serve("GET", _ONE, service.get_operator, "Show an operator.", answers={200: OperatorShape}),
    _serve(
        "PATCH", _ONE, service.change_role, "Give an operator another role; your key must have all scopes of both.",
        body=OperatorChange, answers={200: OperatorShape}, given={"by": _owner},
    ),
    _serve(
        "POST", f"{_ONE}/disable", service.disable_operator,
        "Refuse the sign-ins of an operator and end all sessions.", answers={200: OperatorShape}, given={"by": _owner},
    ),
    _serve(
        "POST", f"{_ONE}/enable", service.enable_operator, "Let a disabled operator sign in again.",
        answers={200: OperatorShape}, given={"by": _owner},
    ),
    _serve(
        "DELETE", _ONE, service.remove_operator,
        "Remove an operator and end all sessions; the audit log keeps the entries.", answers={200: OperatorShape},
        given={"by": _owner},
    ),
]  # fmt: skip
