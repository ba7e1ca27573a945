"""API keys: the list, a new key, the limits of a key with their use, and revoking one."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from postroom.dashboard.listing import FormField, ListColumn, PageAction, columns
from postroom.dashboard.page import PageRequest, form, form_pages, page
from postroom.http import service as keys
from postroom.http.model import ALL, SCOPES, ApiKey
from postroom.limits.model import ROOM, MailLimits, Use
from postroom.limits.service import get_room_limits, read_use
from postroom.runtime.endpoint import Answer

MANAGE = "keys:manage"
EXPIRES_SOON = timedelta(days=14)  # time to replace a key in every program that uses it

_FIELDS = (
    FormField("expires_at", "Expires", hint="2030-01-31 or 2030-01-31T18:00 in your time zone; empty: never"),
    FormField("rate_per_minute", "Mails per minute", "number", hint="Empty: any number"),
    FormField("daily_quota", "Mails per UTC day", "number", hint="One per recipient; empty: any number"),
    FormField("from_domains", "From domains", "lines", hint="One per line; empty: any"),
)


def state_of(key: ApiKey) -> str:
    if key.revoked_at:
        return "revoked"
    if key.expires_at is None:
        return "active"
    left = key.expires_at - datetime.now(UTC)
    return "expired" if left <= timedelta() else "expires_soon" if left < EXPIRES_SOON else "active"


def _columns(uses: dict[str, Use]) -> Sequence[ListColumn]:
    def used(key: ApiKey) -> tuple[int, int] | None:
        return None if key.daily_quota is None else (uses[f"key:{key.id}"].day_used, key.daily_quota)

    return (
        ListColumn("name", "Name", link=lambda key: None if key.revoked_at else f"/keys/{key.id}"),
        ListColumn("state", "Status", "state", value=state_of),
        *columns(ApiKey, "prefix", "scopes", prefix={"form": "code"}),
        ListColumn("today", "Used today", "meter", value=used),
        *columns(ApiKey, "expires_at", "created_at", "last_used_at", created_at={"is_minor": True}),
    )


async def list_page(request: PageRequest) -> Answer:
    found, cursor = await keys.list_keys(request.pool, cursor=request.asked("cursor"))
    uses = await read_use(request.pool, [f"key:{key.id}" for key in found])
    return request.listing(
        "API keys",
        _columns(uses),
        (found, cursor),
        lead="A key's name is the source of its deliveries and stands in the audit log."
        + await _room_sentence(request),
        actions=[PageAction("New key", "/keys/new", MANAGE, is_link=True, is_main=True)],
        row_actions=_key_actions,
    )


async def _room_sentence(request: PageRequest) -> str:
    """The daily quota that all keys share, if the room has one."""
    limits = await get_room_limits(request.pool)
    if limits.daily_quota is None:
        return ""
    use = (await read_use(request.pool, [ROOM]))[ROOM]
    return f" All keys of this room have {limits.daily_quota} mails per UTC day; {use.day_used} are used."


_REVOKE = PageAction(
    "Revoke", "/keys/{key_id:int}/revoke", MANAGE,
    question="Programs that use {name} are rejected within seconds. A revoked key cannot be used again.",
)  # fmt: skip


def _key_actions(key: ApiKey) -> list[PageAction]:
    return [] if key.revoked_at else [_REVOKE.at(key.id, name=key.name)]


async def new_page(request: PageRequest) -> Answer:
    offered = [scope for scope in (*SCOPES, ALL) if request.may(scope)]
    return request.page(
        "key_new.html", is_fresh=request.is_fresh, scopes=offered, given=request.form, fields=request.filled(_FIELDS)
    )


async def create_page(request: PageRequest) -> Answer:
    """Create a key within the scopes of the signed-in principal, and show it this once."""
    scopes = [scope for scope in (*SCOPES, ALL) if f"scope.{scope}" in request.form]
    if ALL in scopes:
        request.need_fresh("/keys/new")
    name, limits = request.form.get("name", "").strip(), _limits_of(request)
    key, row = await keys.create_key(
        request.pool, name, scopes=scopes, actor=request.actor, limits=limits, by=request.principal
    )
    return request.secret_page(f"The key {row.name}", key, about=f"Scopes: {', '.join(row.scopes)}", back="/keys")


async def show_page(request: PageRequest) -> Answer:
    """The limits of a key: bars of their use, and the form that changes them."""
    key = await keys.get_key(request.pool, request.id("key_id"))
    holder = f"key:{key.id}"
    use = (await read_use(request.pool, [holder]))[holder]
    return request.page(
        "key.html",
        key=key,
        state=state_of(key),
        use=use,
        facts=columns(ApiKey, "prefix", "scopes", "created_at", "last_used_at", prefix={"form": "code"}),
        fields=request.filled([_with_value(each, key.limits, request) for each in _FIELDS]),
        actions=_key_actions(key),
    )


async def change_page(request: PageRequest) -> Answer:
    changed = await keys.change_key(
        request.pool, request.id("key_id"), _limits_of(request), actor=request.actor, by=request.principal
    )
    request.dashboard.auth.forget(changed.id)
    return request.done(
        f"/keys/{changed.id}", f"The limits of {changed.name} are saved. Servers apply them in seconds."
    )


async def revoke_page(request: PageRequest) -> Answer:
    revoked = await keys.revoke_key(request.pool, request.id("key_id"), actor=request.actor, by=request.principal)
    request.dashboard.auth.forget(revoked.id)
    return request.done("/keys", f"The key {revoked.name} is revoked.")


def _with_value(field: FormField, limits: MailLimits, request: PageRequest) -> FormField:
    value: Any = limits.columns[field.name]
    if isinstance(value, datetime):
        value = request.viewer.local(value).replace(tzinfo=None).isoformat(timespec="minutes")
    written = "\n".join(value) if isinstance(value, tuple) else "" if value is None else str(value)
    return FormField(field.name, field.label, field.kind, written, hint=field.hint)


def _limits_of(request: PageRequest) -> dict[str, Any]:
    """The limits in the form. Raises `BadInput`."""
    numbers = {name: request.number(name) for name in ("rate_per_minute", "daily_quota")}
    domains = tuple(filter(None, map(str.strip, request.form.get("from_domains", "").splitlines())))
    return {**numbers, "expires_at": request.moment("expires_at"), "from_domains": domains}


PAGES = (
    page("/keys", list_page, scope=MANAGE),
    *form_pages("/keys/new", new_page, create_page, scope=MANAGE),
    *form_pages("/keys/{key_id:int}", show_page, change_page, scope=MANAGE),
    form("/keys/{key_id:int}/revoke", revoke_page, scope=MANAGE),
)
