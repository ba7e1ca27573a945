"""Operators: the people of the dashboard, their roles, and the end of their sessions."""

from urllib.parse import quote

from postroom.dashboard.listing import FormField, ListColumn, PageAction, options_of
from postroom.dashboard.page import PageRequest, actions, form_pages, listing
from postroom.errors import BadInput
from postroom.http import operators
from postroom.http.model import Operator, Role
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


def _actions(operator: Operator) -> list[PageAction]:
    offered = (_ENABLE, _ROLE, _REMOVE) if operator.disabled_at else (_ROLE, _DISABLE, _REMOVE)
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
    email = request.form.get("email", "").strip()
    made = await operators.add_operator(request.pool, email, _role(request), actor=request.actor, by=request.principal)
    return request.done("/operators", f"{made.email} is an operator with the role {made.role}.")


def _role(request: PageRequest) -> Role:
    with BadInput.naming("role", f"must be one of {', '.join(Role)}"):
        return Role(request.form.get("role", ""))


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
    changed = await operators.change_role(
        request.pool, request.id("operator_id"), _role(request), actor=request.actor, by=request.principal
    )
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
    *actions(_ENABLE, _DISABLE, _REMOVE),
)
