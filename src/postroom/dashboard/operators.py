"""Operators: the people of the dashboard, their roles, and the end of their sessions."""

from urllib.parse import quote

from postroom.dashboard.entry import notify_of
from postroom.dashboard.listing import FormField, ListColumn, PageAction, options_of
from postroom.dashboard.page import PageRequest, actions, form, form_pages, listing
from postroom.errors import BadInput
from postroom.http import operators
from postroom.http.model import Operator, Role
from postroom.http.second_factor import remove_second_factor
from postroom.runtime.endpoint import Answer

MANAGE = "operators:manage"

_ABOUT = "admin: everything. operator: all but keys and operators. support: search and retry mail, suppressions. "
_ABOUT += "read-only: look, the system pages too."

_OPERATOR = (
    ListColumn("email", "Address", link=lambda each: f"/audit?person={quote(each.email, safe='')}"),
    ListColumn("state", "Status", "state", value=lambda each: "disabled" if each.disabled_at else "active"),
    ListColumn("role", "Role"),
    ListColumn("origin", "Origin", "words"),
    ListColumn("last_sign_in_at", "Signed in", "when"),
    ListColumn("second_factor_since", "Second factor", "when", is_minor=True),
)


_ONE = "/operators/{operator_id:int}"
_ROLE = PageAction("Change role", f"{_ONE}/role", MANAGE, is_link=True)
_ENABLE = PageAction(
    "Enable", f"{_ONE}/enable", MANAGE, operators.enable_operator, "{0.email} can sign in again.", to="/operators",
)  # fmt: skip
_DISABLE = PageAction(
    "Disable", f"{_ONE}/disable", MANAGE, operators.disable_operator,
    "{0.email} is disabled, and all sessions have ended.", to="/operators",
    question="All sessions of {email} end, and {email} cannot sign in until enabled.",
)  # fmt: skip
_REMOVE = PageAction(
    "Remove", f"{_ONE}/remove", MANAGE, operators.remove_operator,
    "{0.email} is removed, and all sessions have ended.", to="/operators",
    question="All sessions of {email} end, and the address can be added again. The audit log keeps its entries.",
)  # fmt: skip
_END_SESSIONS = PageAction(
    "End sessions", f"{_ONE}/end-sessions", MANAGE, operators.end_sessions, "All sessions of {0.email} have ended.",
    to="/operators", question="{email} has to sign in again in every browser.",
)  # fmt: skip
_REMOVE_FACTOR = PageAction(
    "Remove second factor", f"{_ONE}/remove-second-factor", MANAGE,
    question="{email} signs in without a code of an authenticator app, and gets a mail about it.",
)  # fmt: skip


def _actions(operator: Operator) -> list[PageAction]:
    offered = [_ENABLE, _ROLE, _REMOVE] if operator.disabled_at else [_ROLE, _END_SESSIONS, _DISABLE, _REMOVE]
    offered += [_REMOVE_FACTOR] if operator.second_factor_since else []
    return [each.at(operator.id, email=operator.email) for each in offered]


async def new_page(request: PageRequest) -> Answer:
    return request.form_page(
        "Add an operator",
        (FormField("email", "Address", "email", is_required=True), _role_field(Role.SUPPORT)),
        button="Add the operator",
        lead="The person signs in with a code that is mailed to this address.",
        back="/operators",
    )


def _role_field(role: Role) -> FormField:
    return FormField("role", "Role", options=options_of(Role), value=role.value, hint=_ABOUT)


async def add_page(request: PageRequest) -> Answer:
    email, role = request.form.get("email", "").strip(), _role(request)
    _need_fresh(request, role, "/operators/new")
    made = await operators.add_operator(request.pool, email, role, actor=request.actor, by=request.principal)
    return request.done("/operators", f"{made.email} is an operator with the role {made.role}.")


def _role(request: PageRequest) -> Role:
    with BadInput.naming("role", f"must be one of {', '.join(Role)}"):
        return Role(request.form.get("role", ""))


def _need_fresh(request: PageRequest, role: Role, to: str) -> None:
    """An admin has every scope, like a key with `*`."""
    if role is Role.ADMIN:
        request.need_fresh(to)


async def remove_factor_page(request: PageRequest) -> Answer:
    request.need_fresh("/operators")
    changed = await remove_second_factor(
        request.pool,
        request.id("operator_id"),
        actor=request.actor,
        by=request.principal,
        notify=notify_of(request.call),
    )
    return request.done("/operators", f"{changed.email} signs in without a second factor.")


async def role_page(request: PageRequest) -> Answer:
    operator = await operators.get_operator(request.pool, request.id("operator_id"))
    return request.form_page(
        f"Role of {operator.email}",
        (_role_field(operator.role),),
        button="Change the role",
        lead="Open sessions have the new role from their next request on.",
        back="/operators",
    )


async def change_role_page(request: PageRequest) -> Answer:
    operator_id, role = request.id("operator_id"), _role(request)
    _need_fresh(request, role, f"/operators/{operator_id}/role")
    changed = await operators.change_role(request.pool, operator_id, role, actor=request.actor, by=request.principal)
    return request.done("/operators", f"{changed.email} has the role {changed.role}.")


PAGES = (
    listing(
        "/operators",
        "Operators",
        _OPERATOR,
        operators.list_operators,
        scope=MANAGE,
        lead="People who sign in as themselves. An address leads to the actions of this person in the audit log.",
        empty="No operator was added. People sign in with API keys, which the audit log names instead of a person.",
        actions=[PageAction("Add an operator", "/operators/new", MANAGE, is_link=True, is_main=True)],
        row_actions=_actions,
    ),
    *form_pages("/operators/new", new_page, add_page, scope=MANAGE),
    *form_pages(f"{_ONE}/role", role_page, change_role_page, scope=MANAGE),
    form(f"{_ONE}/remove-second-factor", remove_factor_page, scope=MANAGE),
    *actions(_ENABLE, _END_SESSIONS, _DISABLE, _REMOVE),
)
