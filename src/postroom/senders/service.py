"""Services of sender accounts, their keys and the limits of destinations."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import asyncpg
import msgspec
from msgspec.structs import replace

from postroom.db.pool import Pool, Session
from postroom.errors import BadInput
from postroom.events.audit import audited, record_audit
from postroom.runtime.page import Found, read_page
from postroom.senders import store
from postroom.senders.check import SenderRequest, check_domain, check_same_connection, check_sender
from postroom.senders.credentials import AccessKey, check_gmail, open_credentials
from postroom.senders.errors import DomainNotFound, SenderExists, SenderNotFound
from postroom.senders.factory import TransportFactory, host_guard
from postroom.senders.model import AuthType, DestinationLimits, SealedAccount, SenderAccount, SenderId, SenderStatus
from postroom.senders.seal import Sealer, purpose_of
from postroom.senders.trial import Trial, TrialStep, run_trial
from postroom.transports.guard import AddressForbidden
from postroom.transports.smtp.relay import is_loopback

SLOWEST, FASTEST = 0.001, 100_000
"""Bounds of the messages per second of a destination."""


@dataclass(frozen=True, slots=True)
class Tools:
    """The sealer of secrets and the factory of transports."""

    sealer: Sealer
    factory: TransportFactory
    allow_private: bool = False  # accounts may name servers on loopback and in private networks
    gmail_base_url: str | None = None

    def check(self, request: SenderRequest) -> None:
        """Raise `BadInput` if an account names a forbidden server."""
        host = "127.0.0.1" if is_loopback(request.smtp_host or "") else request.smtp_host
        try:
            host_guard(allow_private=self.allow_private).check_host(host or "")
        except AddressForbidden as error:
            raise BadInput.of("smtp_host", str(error)) from error
        if request.gmail_credentials is not None:
            check_gmail(request.gmail_credentials, base_url=self.gmail_base_url)


async def create_sender(pool: Pool, tools: Tools, request: SenderRequest, *, actor: str) -> SenderAccount:
    """Create an account. Raises `BadInput`, `SenderExists` and `SecretKeyMissing`."""
    check_sender(request)
    tools.check(request)
    reserved = await store.reserve_id(pool)
    secret = await _seal(request, tools.sealer, reserved)
    async with audited(pool, actor, "sender.create") as (connection, note):
        try:
            made = await store.insert_sender(
                connection,
                id=reserved,
                **_columns(request),
                **secret,
                **_warmup(request.warmup_limits, 1 if request.warmup else 0),
                auth_type=request.auth_type.value,
                status=(SenderStatus.WARMING_UP if request.warmup else SenderStatus.ACTIVE).value,
            )
        except asyncpg.UniqueViolationError as error:
            raise SenderExists from error
        note.subject = f"sender:{made}"
        note.after = {"email": request.email, "auth_type": request.auth_type.value, "daily_limit": request.daily_limit}
    return await get_sender(pool, made)


async def change_sender(
    pool: Pool, tools: Tools, sender_id: int, changes: Mapping[str, Any], *, actor: str
) -> SenderAccount:
    """Set these fields and keep the others. The type cannot change. Raises like `create_sender`."""
    described = replace(request_of(await get_sender(pool, sender_id)), **changes)
    tools.check(described)
    given = await _seal(described, tools.sealer, sender_id)
    async with audited(pool, actor, "sender.change", f"sender:{sender_id}") as (connection, note):
        old = await _locked(connection, sender_id)
        asked = replace(request_of(old.account), **changes)
        check_sender(asked, has_secret=old.secret is not None)
        secret = given if given["credentials_key_id"] is not None else _kept_secret(old, asked)
        if given["credentials_key_id"] is None and secret["credentials_key_id"] is not None:
            check_same_connection(request_of(old.account), asked)
        try:
            await store.change_sender(
                connection, id=sender_id, **secret, **_columns(asked), **_standing(old.account, asked)
            )
        except asyncpg.UniqueViolationError as error:
            raise SenderExists from error
        note.before, after = _differences(old.account, asked)
        note.after = after | ({} if given["credentials_key_id"] is None else {"credentials": "changed"})
    return await get_sender(pool, sender_id)


async def delete_sender(pool: Pool, sender_id: int, *, actor: str) -> None:
    """Delete an account and its secret. Mail it has claimed is requeued at its turn."""
    async with audited(pool, actor, "sender.delete", f"sender:{sender_id}") as (connection, note):
        email = SenderNotFound.unless(await store.delete_sender(connection, id=sender_id))
        note.before = {"email": email}


async def get_sender(pool: Pool, sender_id: int) -> SenderAccount:
    return (await _get(pool, sender_id)).account


async def list_senders(pool: Pool, *, cursor: str | None = None, limit: int = 50) -> Found[SenderAccount]:
    """A page of accounts, oldest first, and the cursor of the next page."""
    found, more = await read_page(store.list_senders, pool, cursor, limit, order={"after_id": ("account.id", int)})
    return [sealed.account for sealed in found], more


async def pause_sender(pool: Pool, sender_id: int, *, reason: str | None = None, actor: str) -> SenderAccount:
    """Pause an account until a person resumes it. Idempotent."""
    before = await get_sender(pool, sender_id)
    after = {"status": "paused", "reason": reason}
    async with audited(pool, actor, "sender.pause", f"sender:{sender_id}", after=after) as (connection, note):
        note.before = {"status": before.status.value}
        note.is_dropped = not await store.pause_sender(connection, id=sender_id, reason=reason)
    return await get_sender(pool, sender_id)


async def resume_sender(pool: Pool, sender_id: int, *, actor: str) -> SenderAccount:
    """Resume a paused or suspended account and clear its error record. Idempotent."""
    before = await get_sender(pool, sender_id)
    async with audited(pool, actor, "sender.resume", f"sender:{sender_id}") as (connection, note):
        note.before = {"status": before.status.value, "reason": before.status_reason}
        note.is_dropped = not await store.resume_sender(connection, id=sender_id)
    return await get_sender(pool, sender_id)


async def rotate_keys(pool: Pool, sealer: Sealer, *, actor: str) -> int:
    """Reseal every secret with the current key; returns their number.

    Each secret has its own transaction, so the rotation can be interrupted and run again.
    """
    waiting = await store.list_sealed(pool)
    for sender_id in waiting:
        async with pool.acquire() as connection, connection.transaction():
            if await store.lock_sender(connection, id=sender_id):  # else it was deleted meanwhile
                await _seal_again(connection, sender_id, sealer, actor=actor)
    return len(waiting)


async def _seal_again(connection: Session, sender_id: SenderId, sealer: Sealer, *, actor: str) -> None:
    old = await store.find_sender(connection, id=sender_id)
    if old is None or old.secret is None:
        return
    purpose = purpose_of(old.account.auth_type, sender_id)
    key_id, text = await sealer.seal(await sealer.open(old.secret, purpose=purpose), purpose=purpose)
    await store.replace_secret(connection, id=sender_id, secret=text, key_id=key_id)
    await record_audit(
        connection, actor, "sender.rotate_key", f"sender:{sender_id}", before={"key": old.key_id}, after={"key": key_id}
    )


async def try_sender(pool: Pool, tools: Tools, sender_id: int, *, actor: str) -> Trial:
    """Connect, log in and send a mail from the account to itself; the account is not changed."""
    sealed = await _get(pool, sender_id)
    try:
        transport = tools.factory(sealed.account, await open_credentials(sealed, tools.sealer))
    except (msgspec.MsgspecError, ValueError) as error:
        return Trial(ok=False, steps=(TrialStep("credentials", ok=False, detail=str(error)),))
    trial = await run_trial(sealed.account, transport)
    await record_audit(pool, actor, "sender.test", f"sender:{sender_id}", after={"ok": trial.ok})
    return Trial(trial.ok, (TrialStep("credentials", ok=True), *trial.steps))


# ── destinations ──────────────────────────────────────────────────────────────────────────────────────────────────────


async def delete_domain(pool: Pool, domain: str, *, actor: str) -> None:
    name = check_domain(domain)
    async with audited(pool, actor, "domain.delete", f"domain:{name}") as (connection, _note):
        if not await store.delete_domain(connection, domain=name):
            raise DomainNotFound


async def list_domains(pool: Pool, *, cursor: str | None = None, limit: int = 50) -> Found[DestinationLimits]:
    """A page of destinations with limits or a pause, by name, and the cursor of the next page."""
    return await read_page(store.list_domains, pool, cursor, limit, order={"after_domain": ("domain", str)})


async def put_domain(
    pool: Pool, domain: str, *, max_connections: int | None, messages_per_second: float | None, actor: str
) -> DestinationLimits:
    """Set the limits of a destination. Raises `BadInput`."""
    name = check_domain(domain)
    if messages_per_second is not None and not SLOWEST <= messages_per_second <= FASTEST:
        raise BadInput.of("messages_per_second", f"must be between {SLOWEST} and {FASTEST}")
    if max_connections is None and messages_per_second is None:
        raise BadInput.of("max_connections", "give max_connections, messages_per_second or both")
    limits: dict[str, Any] = {"max_connections": max_connections, "messages_per_second": messages_per_second}
    async with audited(pool, actor, "domain.put", f"domain:{name}", after=limits) as (connection, _note):
        return await store.put_domain(connection, domain=name, **limits)


# ── columns ───────────────────────────────────────────────────────────────────────────────────────────────────────────

_SAME = (
    "email", "display_name", "smtp_host", "smtp_port", "smtp_username", "smtp_use_tls", "gmail_subject_email",
    "ses_region", "daily_limit", "batch_size", "send_delay_ms", "lanes", "warmup_limits", "warmup_days_per_stage",
    "notes",
)  # fmt: skip
"""Fields that a request and an account share."""


def request_of(account: SenderAccount) -> SenderRequest:
    """The request that would create this account, without its secret."""
    shared = {name: getattr(account, name) for name in _SAME}
    return SenderRequest(auth_type=account.auth_type, warmup=account.warmup_stage > 0, **shared)


def _columns(request: SenderRequest) -> dict[str, Any]:
    columns = {name: getattr(request, name) for name in _SAME}
    lists = {"lanes": list(request.served_lanes), "warmup_limits": list(request.warmup_limits)}
    return {**columns, **lists, "send_delay_ms": request.delay_ms}


def _warmup(limits: tuple[int, ...], stage: int) -> dict[str, Any]:
    return {"warmup_stage": stage, "warmup_current_limit": limits[stage - 1] if stage else None}


def _standing(account: SenderAccount, asked: SenderRequest) -> dict[str, Any]:
    """The status after a change: warm-ups start and end, and a raised limit resumes the account."""
    stage = min(account.warmup_stage, len(asked.warmup_limits)) if asked.warmup else 0
    begins = asked.warmup and stage == 0
    stage = 1 if begins else stage
    fields = _warmup(asked.warmup_limits, stage)
    limit = min(asked.daily_limit, fields["warmup_current_limit"] or asked.daily_limit)
    going = SenderStatus.WARMING_UP if stage else SenderStatus.ACTIVE
    status, resume = account.status, None
    if status in (SenderStatus.ACTIVE, SenderStatus.WARMING_UP, SenderStatus.PAUSED_LIMIT_REACHED):
        reached = account.daily_sent >= limit
        status, resume = (SenderStatus.PAUSED_LIMIT_REACHED, going.value) if reached else (going, None)
    days = account.warmup_days if stage == account.warmup_stage else 0
    return {**fields, "warmup_days": days, "status": status.value, "resume_status": resume}


def _differences(account: SenderAccount, asked: SenderRequest) -> tuple[dict[str, Any], dict[str, Any]]:
    """The changed fields, before and after. None of them is a secret."""
    old, new = _columns(request_of(account)), _columns(asked)
    changed = [name for name in new if old[name] != new[name]]
    return {name: old[name] for name in changed}, {name: new[name] for name in changed}


async def _seal(request: SenderRequest, sealer: Sealer, sender_id: int) -> dict[str, str | None]:
    """The columns of the given secret; all empty without one."""
    secret = _secret(request)
    key_id = text = None
    if secret is not None:
        key_id, text = await sealer.seal(secret, purpose=purpose_of(request.auth_type, sender_id))
    return _secret_columns(request.auth_type, key_id, text)


def _secret(request: SenderRequest) -> bytes | None:
    if request.smtp_password is not None:
        return request.smtp_password.encode()
    if request.gmail_credentials is not None:
        return request.gmail_credentials.encode()
    if request.ses_access_key_id is not None:
        return msgspec.json.encode(AccessKey(request.ses_access_key_id, request.ses_secret_access_key or ""))
    return None


def _kept_secret(old: SealedAccount, asked: SenderRequest) -> dict[str, str | None]:
    """The stored secret; None if its login was removed."""
    if asked.auth_type is AuthType.SMTP and asked.smtp_username is None:
        return _secret_columns(AuthType.SMTP, None, None)
    return _secret_columns(asked.auth_type, old.key_id, old.secret)


def _secret_columns(kind: AuthType, key_id: str | None, text: str | None) -> dict[str, str | None]:
    is_smtp = kind is AuthType.SMTP
    return {
        "smtp_password_encrypted": text if is_smtp else None,
        "credentials_encrypted": None if is_smtp else text,
        "credentials_key_id": key_id,
    }


async def _get(pool: Pool, sender_id: int) -> SealedAccount:
    return SenderNotFound.unless(await store.find_sender(pool, id=SenderId(sender_id)))


async def _locked(connection: Session, sender_id: int) -> SealedAccount:
    """Return an account, locked until the transaction ends."""
    if not await store.lock_sender(connection, id=sender_id):
        raise SenderNotFound
    found = await store.find_sender(connection, id=sender_id)
    assert found is not None
    return found
