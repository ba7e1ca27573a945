"""The service of operators: people who sign in to the dashboard, and their roles.

Every change is audited. Disabling and removing an operator ends all sessions, in every process, with the next request.
"""

from string import ascii_lowercase, ascii_uppercase

from postroom.accounts import service as accounts
from postroom.db.pool import Pool
from postroom.db.queries import Connection, Run
from postroom.errors import BadInput, OperatorNotFound, ScopeMissing
from postroom.events.audit import audited, record_audit
from postroom.http import store
from postroom.http.errors import IdentityMismatch
from postroom.http.model import ROLE_SCOPES, OidcIdentity, Operator, OperatorOrigin, Principal, Role, operator_actor
from postroom.post.address import normalize
from postroom.runtime.page import Found, read_page

_ASCII_LOWER = str.maketrans(ascii_uppercase, ascii_lowercase)


async def add_operator(pool: Pool, email: str, role: Role, *, actor: str, by: Principal | None = None) -> Operator:
    """Add a person. Raises `BadInput` for an invalid or taken address, and `ScopeMissing` for a role above `by`."""
    address = check_email(email)
    check_role(by, role)
    async with audited(pool, actor, "operator.add") as (connection, note):
        made = await store.insert_operator(connection, email=address, role=role, origin=OperatorOrigin.ADDED)
        if made is None:
            raise BadInput.of("email", f"{address} is an operator already; change the role instead")
        note.subject, note.after = made.actor, _facts(made)
    return made


async def change_role(pool: Pool, operator_id: int, role: Role, *, actor: str, by: Principal | None = None) -> Operator:
    """Give an operator another role. Open sessions have it from their next request on."""
    async with audited(pool, actor, "operator.role") as (connection, note):
        before = OperatorNotFound.unless(await store.find_operator(connection, operator_id=operator_id))
        for each in (before.role, role):
            check_role(by, each)
        changed = OperatorNotFound.unless(
            await store.change_operator_role(connection, operator_id=operator_id, role=role)
        )
        note.subject, note.before, note.after = changed.actor, _facts(before), _facts(changed)
        note.is_dropped = before.role is role
    return changed


async def disable_operator(pool: Pool, operator_id: int, *, actor: str, by: Principal | None = None) -> Operator:
    """Refuse an operator's sign-ins and end all sessions."""
    return await _changed(pool, operator_id, "disable", store.disable_operator, actor=actor, by=by)


async def end_sessions(pool: Pool, operator_id: int, *, actor: str, by: Principal | None = None) -> Operator:
    """End all sessions of an operator, who can sign in again."""
    return await _changed(pool, operator_id, "end_sessions", store.end_operator_sessions, actor=actor, by=by)


async def enable_operator(pool: Pool, operator_id: int, *, actor: str, by: Principal | None = None) -> Operator:
    """Let a disabled operator sign in again."""
    return await _changed(pool, operator_id, "enable", store.enable_operator, actor=actor, by=by)


async def find_addressee(connection: Connection, address: str) -> Operator | None:
    """The operator to whom a sign-in code can be mailed: added by a person and not disabled.

    An operator whom OIDC created signs in there: someone who lost that account may still have the mailbox.
    """
    found = await store.find_operator_by_email(connection, email=address)
    can_sign_in = found is not None and found.disabled_at is None and found.origin is OperatorOrigin.ADDED
    return found if can_sign_in else None


async def find_by_email(pool: Pool, email: str) -> Operator:
    """The operator with this address. Raises `OperatorNotFound`."""
    return OperatorNotFound.unless(await store.find_operator_by_email(pool, email=check_email(email)))


async def get_operator(pool: Pool, operator_id: int) -> Operator:
    """The operator with this id. Raises `OperatorNotFound`."""
    async with pool.acquire() as connection, connection.transaction():
        return OperatorNotFound.unless(await store.find_operator(connection, operator_id=operator_id))


async def list_operators(pool: Pool, *, cursor: str | None = None, limit: int = 50) -> Found[Operator]:
    """A page of operators, newest first, and the cursor of the next page."""
    return await read_page(store.list_operators, pool, cursor, limit)


async def record_sign_in(connection: Connection, operator_id: int) -> Operator | None:
    """The operator, whose sign-in is recorded; None if the operator was disabled or removed."""
    return await store.sign_in_operator(connection, operator_id=operator_id)


async def sign_in_by_oidc(pool: Pool, person: OidcIdentity, role: Role | None) -> Operator | None:
    """The operator with an address that a provider verified; None if no operator has it, or it is disabled.

    A person with a mapped role becomes an operator. The role of one who was added by a person stays. The account of
    the first sign-in is kept: `IdentityMismatch` refuses another account that has the address later.
    """
    address = check_verified_email(person.email)
    actor = operator_actor(address)
    async with pool.acquire() as connection, connection.transaction():
        found = await store.find_operator_by_email(connection, email=address)
        if found is None and role is not None:
            found = await store.insert_operator(connection, email=address, role=role, origin=OperatorOrigin.OIDC)
            if found is not None:
                await record_audit(connection, actor, "operator.add", actor, after=_facts(found))
        if found is not None and found.origin is OperatorOrigin.OIDC:
            if role is None:
                return None
            if found.role is not role:
                changed = await store.change_operator_role(connection, operator_id=found.id, role=role)
                after = None if changed is None else _facts(changed)
                await record_audit(connection, actor, "operator.role", actor, before=_facts(found), after=after)
        signed_in = None if found is None else await store.sign_in_operator(connection, operator_id=found.id)
        if signed_in is not None:
            await _keep_identity(connection, signed_in, person)
        return signed_in


async def _keep_identity(connection: Connection, operator: Operator, person: OidcIdentity) -> None:
    account = {"issuer": person.issuer, "subject": person.subject}
    if await store.keep_identity(connection, operator_id=operator.id, **account):
        await record_audit(connection, operator.actor, "operator.identity", operator.actor, after=account)
    elif not await store.has_identity(connection, operator_id=operator.id, **account):
        raise IdentityMismatch


async def remove_operator(pool: Pool, operator_id: int, *, actor: str, by: Principal | None = None) -> Operator:
    """Delete an operator and end all sessions. The audit log keeps the entries of this person."""
    async with audited(pool, actor, "operator.remove") as (connection, note):
        removed = OperatorNotFound.unless(await store.delete_operator(connection, operator_id=operator_id))
        check_role(by, removed.role)
        note.subject, note.before = removed.actor, _facts(removed)
    return removed


async def _changed(
    pool: Pool, operator_id: int, action: str, change: Run[Operator | None], *, actor: str, by: Principal | None
) -> Operator:
    async with audited(pool, actor, f"operator.{action}") as (connection, note):
        changed = OperatorNotFound.unless(await change(connection, operator_id=operator_id))
        check_role(by, changed.role)
        note.subject, note.after = changed.actor, _facts(changed)
    return changed


def check_email(email: str) -> str:
    """The address as it is stored. Raises `BadInput`."""
    return normalize(accounts.check_email(email))


def check_verified_email(email: str) -> str:
    """The address that a provider verified, as it is stored. Raises `BadInput`.

    Only ASCII letters may change their case: another letter can become one of another person's address, such as the
    Kelvin sign, which is `k` in lower case.
    """
    address = check_email(email)
    if not address.rpartition("@")[0].isascii() or address != email.translate(_ASCII_LOWER):
        raise BadInput.of("email", "has letters that sign-in does not accept; use an address in ASCII")
    return address


def check_role(by: Principal | None, role: Role) -> None:
    """Raise `ScopeMissing` if the role has a scope that `by` does not have; None is the command line, which has all."""
    for scope in ROLE_SCOPES[role]:
        if by is not None and not by.allows(scope):
            raise ScopeMissing(scope, by.name)


def _facts(operator: Operator) -> dict[str, object]:
    return {"email": operator.email, "role": operator.role.value}
