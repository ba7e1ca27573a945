"""API keys: the list, a new key, and revoking one."""

from postroom.dashboard.listing import ListColumn, PageAction, columns
from postroom.dashboard.page import PageRequest
from postroom.errors import BadInput
from postroom.http import service as keys
from postroom.http.model import ALL, SCOPES, ApiKey
from postroom.runtime.endpoint import Answer

MANAGE = "keys:manage"

_KEY = (
    ListColumn("state", "State", "state", value=lambda key: "revoked" if key.revoked_at else "active"),
    *columns(ApiKey, "name", "prefix", "scopes", "created_at", "last_used_at", prefix={"form": "code"}),
)


async def list_page(request: PageRequest) -> Answer:
    found = await keys.list_keys(request.pool, cursor=request.asked("cursor"))
    return request.listing(
        "API keys",
        _KEY,
        found,
        lead="A key's name is the source of its deliveries and stands in the audit log.",
        actions=[PageAction(label="New key", path="/keys/new", scope=MANAGE, is_link=True, is_main=True)],
        row_actions=_key_actions,
    )


def _key_actions(key: ApiKey) -> list[PageAction]:
    if key.revoked_at:
        return []
    question = f"Programs that use {key.name} are rejected within seconds. A revoked key cannot be used again."
    return [PageAction(label="Revoke", path=f"/keys/{key.id}/revoke", scope=MANAGE, question=question)]


async def new_page(request: PageRequest) -> Answer:
    return _key_form(request)


def _key_form(request: PageRequest, *, problem: str | None = None, status: int = 200) -> Answer:
    offered = [scope for scope in (*SCOPES, ALL) if request.may(scope)]
    return request.page("key_new.html", scopes=offered, given=request.form, problem=problem, status=status)


async def create_page(request: PageRequest) -> Answer:
    """Create a key within the scopes of the signed-in principal, and show it this once."""
    scopes = [scope for scope in (*SCOPES, ALL) if f"scope.{scope}" in request.form]
    keys.check_within(request.principal, scopes)
    try:
        key, row = await keys.create_key(
            request.pool, request.form.get("name", "").strip(), scopes=scopes, actor=request.actor
        )
    except BadInput as error:
        return _key_form(request, problem=str(error), status=400)
    return request.page("key_made.html", made=key, row=row)


async def revoke_page(request: PageRequest) -> Answer:
    revoked = await keys.revoke_key(request.pool, request.id("key_id"), actor=request.actor, by=request.principal)
    request.dashboard.auth.forget(revoked.id)
    return request.done("/keys", f"The key {revoked.name} is revoked.")
