"""The service of API keys. Only the call that creates a key returns it."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import asyncpg

from postroom.db.pool import Pool
from postroom.db.queries import Connection
from postroom.delivery.check import RESERVED_SOURCES, WAYS_IN
from postroom.errors import BadInput, FieldError, KeyNotFound, ScopeMissing
from postroom.events.audit import audited, record_audit
from postroom.http import store
from postroom.http.auth import hash_key, new_key, shown_part
from postroom.http.model import ALL, SCOPES, ApiKey, Principal
from postroom.limits.model import MailLimits, clean_limits, facts_of
from postroom.runtime.page import Found, read_page

ADMIN = "admin"
WRITE = "deliveries:write"
RESERVED_NAMES = RESERVED_SOURCES | WAYS_IN
"""Names that a key cannot have: its deliveries would look like Postroom's own."""

# A key's name becomes the source of its deliveries and stands in the audit log.
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")


async def create_key(
    pool: Pool,
    name: str,
    *,
    scopes: Sequence[str],
    actor: str,
    limits: Mapping[str, Any] | None = None,
    by: Principal | None = None,
) -> tuple[str, ApiKey]:
    """Make a key: returns it, this once, and its row. `limits` are fields of `MailLimits`.

    A key has at most the scopes and the time of `by`: `ScopeMissing` names a scope, `BadInput` the expiry.
    """
    if by is not None:
        check_within(by, scopes)
    _check(name, scopes)
    checked = _check_limits(scopes, limits or {})
    _check_expiry(by, checked)
    async with pool.acquire() as connection, connection.transaction():
        return await _insert(connection, name, scopes, actor=actor, limits=checked)


async def change_key(
    pool: Pool, key_id: int, changes: Mapping[str, Any], *, actor: str, by: Principal | None = None
) -> ApiKey:
    """Change the limits of a key that was not revoked; fields that are left out stay.

    Other processes apply them within `limiter.CACHE_S` seconds. `ScopeMissing` names a scope that `by` lacks,
    `BadInput` an expiry after its own.
    """
    async with audited(pool, actor, "key.change", f"key:{key_id}") as (connection, note):
        key = KeyNotFound.unless(await store.find_key_by_id(connection, key_id=key_id))
        if by is not None:
            check_within(by, key.scopes)
        limits = _check_limits(key.scopes, {**key.limits.columns, **changes})
        _check_expiry(by, limits)
        changed = KeyNotFound.unless(await store.change_key(connection, key_id=key_id, **limits.columns))
        note.before, note.after = _facts(key), _facts(changed)
        note.is_dropped = changed == key
    return changed


async def get_key(pool: Pool, key_id: int) -> ApiKey:
    """The key with this id, unless it was revoked. Raises `KeyNotFound`."""
    return KeyNotFound.unless(await store.find_key_by_id(pool, key_id=key_id))


async def ensure_admin_key(pool: Pool, *, actor: str) -> tuple[str | None, ApiKey]:
    """The key named `admin` with every scope: created and returned if missing, otherwise only its row."""
    async with pool.acquire() as connection, connection.transaction():
        await store.lock_keys(connection)
        existing = await store.find_key_by_name(connection, name=ADMIN)
        if existing is not None:
            return None, existing
        return await _insert(connection, ADMIN, [ALL], actor=actor)


async def get_admin_key(pool: Pool) -> ApiKey:
    """The key named `admin`. Raises `KeyNotFound`."""
    return KeyNotFound.unless(await store.find_key_by_name(pool, name=ADMIN))


async def find_key_id(pool: Pool, wanted: str) -> int:
    """The id that a person wrote, or that of the key with this name. Raises `KeyNotFound`."""
    if wanted.isascii() and wanted.isdecimal():
        return min(int(wanted), 2**63 - 1)
    return KeyNotFound.unless(await store.find_key_by_name(pool, name=wanted)).id


async def list_keys(pool: Pool, *, cursor: str | None = None, limit: int = 50) -> Found[ApiKey]:
    """A page of keys, newest first, and the cursor of the next page."""
    return await read_page(store.list_keys, pool, cursor, limit)


async def revoke_key(pool: Pool, key_id: int, *, actor: str, by: Principal | None = None) -> ApiKey:
    """Revoke a key; other processes reject it within `auth.CACHE_S` seconds.

    A key can only revoke keys within its own scopes: `ScopeMissing` names a scope that `by` lacks.
    """
    async with audited(pool, actor, "key.revoke", f"key:{key_id}") as (connection, note):
        key = KeyNotFound.unless(await store.revoke_key(connection, key_id=key_id))
        if by is not None:
            check_within(by, key.scopes)
        note.before = _facts(key)
    return key


def check_within(owner: Principal, scopes: Sequence[str]) -> None:
    """Raise `ScopeMissing` for the first scope that the owner does not have itself."""
    for scope in scopes:
        if not owner.allows(scope):
            raise ScopeMissing(scope)


def _check(name: str, scopes: Sequence[str]) -> None:
    errors = []
    if name.lower() in RESERVED_NAMES:
        errors.append(FieldError("name", f"{name} is reserved for Postroom; choose another name"))
    if not _NAME.fullmatch(name):
        errors.append(FieldError("name", "must be 1 to 63 letters, digits, dots, dashes or underscores"))
    if not scopes:
        errors.append(FieldError("scopes", "at least one is required"))
    known = ", ".join((*SCOPES, ALL))
    for index, scope in enumerate(scopes):
        if scope != ALL and scope not in SCOPES:
            errors.append(FieldError(f"scopes[{index}]", f"must be one of {known}"))
    if errors:
        raise BadInput(errors)


def _check_limits(scopes: Sequence[str], values: Mapping[str, Any]) -> MailLimits:
    """The limits in stored form. A key that could send mail past its limits cannot have any but an expiry."""
    cleaned, errors = clean_limits(dict(values))
    limits = MailLimits(**cleaned)
    beyond = [scope for scope in scopes if scope != WRITE and not scope.endswith(":read")]
    if limits.restrict_mail and beyond:
        text = f"{beyond[0]} can send mail past the limits: a key with limits has {WRITE} and scopes that only read"
        errors.append(FieldError("scopes", text))
    if errors:
        raise BadInput(errors)
    return limits


def _check_expiry(by: Principal | None, limits: MailLimits) -> None:
    """Raise `BadInput` if the limits allow a key to outlive the key that makes or changes it."""
    end = by.expires_at if isinstance(by, ApiKey) else None
    if end is not None and (limits.expires_at is None or limits.expires_at > end):
        raise BadInput.of("expires_at", f"must be at most {end.isoformat()}, when your own key expires")


async def _insert(
    connection: Connection, name: str, scopes: Sequence[str], *, actor: str, limits: MailLimits | None = None
) -> tuple[str, ApiKey]:
    key = new_key()
    try:
        row = await store.insert_key(
            connection,
            name=name,
            prefix=shown_part(key),
            scopes=sorted(set(scopes)),
            key_hash=hash_key(key),
            **(limits or MailLimits()).columns,
        )
    except asyncpg.UniqueViolationError as error:
        raise BadInput.of("name", f"another key is named {name}; revoke that key or choose another name") from error
    await record_audit(connection, actor, "key.create", f"key:{row.id}", after=_facts(row))
    return key, row


def _facts(key: ApiKey) -> dict[str, object]:
    return {"name": key.name, "prefix": key.prefix, "scopes": list(key.scopes), **facts_of(key.limits)}
