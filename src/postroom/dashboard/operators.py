"""Operators: the people of the dashboard, their roles, and the end of their sessions."""

from urllib.parse import quote

from postroom.dashboard.listing import FormField, ListColumn, PageAction, options_of
from postroom.dashboard.page import PageRequest, form, page
from postroom.errors import BadInput
from postroom.http import operators
from postroom.http.model import Operator, Role
from postroom.runtime.endpoint import Answer

MANAGE = "operators:manage"

_ABOUT = "admin: everything. operator: all but keys and operators. support: search and retry mail, suppressions. "
_ABOUT += "read-only: look, the system pages too."

_OPERATOR = (
    ListColumn("email", "Address", link=lambda each: f"/audit?person={quote(each.email, safe='')}"),
    ListColumn("state", "State", "state", value=lambda each: "disabled" if each.disabled_at else "active"),
    ListColumn("role", "Role"),
    ListColumn("origin", "Origin", "words"),
    ListColumn("last_sign_in_at", "Signed in", "when"),
)


async def list_page(request: PageRequest) -> Answer:
    found = await operators.list_operators(request.pool, cursor=request.asked("cursor"))
    return request.listing(
        "Operators",
        _OPERATOR,
        found,
        lead="People who sign in as themselves. An address leads to the actions of this person in the audit log.",
        empty="No operator was added. People sign in with API keys, which the audit log names instead of a person.",
        actions=[PageAction(label="Add an operator", path="/operators/new", scope=MANAGE, is_link=True, is_main=True)],
        row_actions=_actions,
    )


def _actions(operator: Operator) -> list[PageAction]:
    path, email = f"/operators/{operator.id}", operator.email
    role = PageAction(label="Change role", path=f"{path}/role", scope=MANAGE, is_link=True)
    question = f"All sessions of {email} end, and the address can be added again. The audit log keeps its entries."
    remove = PageAction(label="Remove", path=f"{path}/remove", scope=MANAGE, question=question)
    if operator.disabled_at:
        return [PageAction(label="Enable", path=f"{path}/enable", scope=MANAGE), role, remove]
    question = f"All sessions of {email} end, and {email} cannot sign in until enabled."
    return [role, PageAction(label="Disable", path=f"{path}/disable", scope=MANAGE, question=question), remove]


async def new_page(request: PageRequest) -> Answer:
    return _add_form(request)


def _add_form(request: PageRequest, problem: str | None = None) -> Answer:
    return request.form_page(
        "Add an operator",
        (FormField("email", "Address", "email", is_required=True), _role_field(Role.SUPPORT)),
        to="/operators/new",
        button="Add the operator",
        lead="The person signs in with a code that is mailed to this address.",
        back="/operators",
        problem=problem,
    )


def _role_field(role: Role) -> FormField:
    return FormField("role", "Role", options=options_of(Role), value=role.value, hint=_ABOUT)


async def add_page(request: PageRequest) -> Answer:
    email = request.form.get("email", "").strip()
    try:
        made = await operators.add_operator(
            request.pool, email, _role(request), actor=request.actor, by=request.principal
        )
    except BadInput as error:
        return _add_form(request, error.message)
    return request.done("/operators", f"{made.email} is an operator with the role {made.role}.")


def _role(request: PageRequest) -> Role:
    try:
        return Role(request.form.get("role", ""))
    except ValueError:
        raise BadInput.of("role", f"must be one of {', '.join(Role)}") from None


async def role_page(request: PageRequest) -> Answer:
    operator = await operators.get_operator(request.pool, request.id("operator_id"))
    return request.form_page(
        f"Role of {operator.email}",
        (_role_field(operator.role),),
        to=f"/operators/{operator.id}/role",
        button="Change the role",
        lead="Open sessions have the new role from their next request on.",
        back="/operators",
    )


async def change_role_page(request: PageRequest) -> Answer:
    changed = await operators.change_role(
        request.pool, request.id("operator_id"), _role(request), actor=request.actor, by=request.principal
    )
    return request.done("/operators", f"{changed.email} has the role {changed.role}.")


async def disable_page(request: PageRequest) -> Answer:
    number = request.id("operator_id")
    disabled = await operators.disable_operator(request.pool, number, actor=request.actor, by=request.principal)
    return request.done("/operators", f"{disabled.email} is disabled, and all sessions have ended.")


async def enable_page(request: PageRequest) -> Answer:
    number = request.id("operator_id")
    enabled = await operators.enable_operator(request.pool, number, actor=request.actor, by=request.principal)
    return request.done("/operators", f"{enabled.email} can sign in again.")


async def remove_page(request: PageRequest) -> Answer:
    number = request.id("operator_id")
    removed = await operators.remove_operator(request.pool, number, actor=request.actor, by=request.principal)
    return request.done("/operators", f"{removed.email} is removed, and all sessions have ended.")


PAGES = (
    page("/operators", list_page, scope=MANAGE),
    page("/operators/new", new_page, scope=MANAGE),
    form("/operators/new", add_page, scope=MANAGE),
    page("/operators/{operator_id:int}/role", role_page, scope=MANAGE),
    form("/operators/{operator_id:int}/role", change_role_page, scope=MANAGE),
    form("/operators/{operator_id:int}/disable", disable_page, scope=MANAGE),
    form("/operators/{operator_id:int}/enable", enable_page, scope=MANAGE),
    form("/operators/{operator_id:int}/remove", remove_page, scope=MANAGE),
)
