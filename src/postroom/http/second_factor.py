"""Second factors of operators: an authenticator app, and recovery codes for the day on which it is lost.

The secret of the app is sealed; recovery codes are stored as hashes. A code of the app and a recovery code work once.
After `MOST_TRIES` wrong codes within an hour no code is accepted: only someone with the first factor can cause that.
"""

import base64
import hashlib
import secrets
import time

from postroom.db.pool import Pool
from postroom.errors import BadInput, OperatorNotFound
from postroom.events.audit import audited, record_audit
from postroom.http import store
from postroom.http.errors import SecondFactorTooOften
from postroom.http.model import Operator, Principal
from postroom.http.notices import Notify, OperatorNotice
from postroom.http.operators import check_role
from postroom.http.totp import find_step
from postroom.runtime.secrets import SecretBox

MOST_TRIES = 10  # per operator and hour: a guess of six digits hits once in 300,000
RECOVERY_CODES = 10  # as most services give

_RECOVERY_BYTES = 10  # 80 bits: a hash of them cannot be guessed back


def purpose_of(operator_id: int) -> str:
    """The associated data of a sealed secret: copied to another operator it cannot be opened."""
    return f"second factor of operator {operator_id}"


async def enroll(
    pool: Pool, box: SecretBox, operator: Operator, secret: bytes, code: str, *, notify: Notify
) -> tuple[str, ...]:
    """Require codes of this app from now on; returns the recovery codes, this once.

    Raises `BadInput` for a code that is not of this app, or if the operator has a second factor.
    """
    step = find_step(secret, _digits(code), now=time.time())
    if step is None:
        raise BadInput.of("code", "is not the present code of this app; compare the clock of the phone")
    codes, sealed = _recovery_codes(), box.seal(secret, purpose=purpose_of(operator.id))
    async with audited(pool, operator.actor, "operator.second_factor", operator.actor) as (connection, note):
        made = await store.set_second_factor(
            connection,
            operator_id=operator.id,
            totp_secret=sealed.data,
            totp_key_id=sealed.key_id,
            totp_step=step,
            recovery_hashes=[_hash(each) for each in codes],
        )
        if not made:
            raise BadInput.of("code", "cannot be used: a second factor is set up already; remove it first")
        note.after = {"is_set": True}
        await notify(connection, operator, OperatorNotice.SECOND_FACTOR_SET)
    return codes


async def check_code(pool: Pool, box: SecretBox, operator: Operator, code: str, *, notify: Notify) -> bool:
    """Whether this is an unused code of the operator's app, or an unused recovery code, which is used now.

    Each call counts as a try. Raises `SecondFactorTooOften`.
    """
    async with pool.acquire() as connection, connection.transaction():
        tried = await store.try_second_factor(connection, operator_id=operator.id, most_tries=MOST_TRIES)
        if tried is None:
            raise SecondFactorTooOften
        secret = box.open(tried.totp_secret, purpose=purpose_of(operator.id))
        step = find_step(secret, _digits(code), now=time.time(), after=tried.totp_step)
        if step is not None:
            return await store.use_totp_step(connection, operator_id=operator.id, step=step)
        found = _hash(code)
        if found not in tried.recovery_hashes:
            return False
        await record_audit(connection, operator.actor, "operator.recovery_code", operator.actor)
        await notify(connection, operator, OperatorNotice.RECOVERY_CODE_USED)
        return await store.use_recovery_code(connection, operator_id=operator.id, code_hash=found)


async def count_recovery_codes(pool: Pool, operator: Operator) -> int:
    """The number of unused recovery codes."""
    return await store.count_recovery_codes(pool, operator_id=operator.id)


async def renew_recovery_codes(pool: Pool, operator: Operator, *, notify: Notify) -> tuple[str, ...]:
    """New recovery codes, shown this once; the former ones end."""
    codes = _recovery_codes()
    async with audited(pool, operator.actor, "operator.recovery_codes", operator.actor) as (connection, _note):
        hashes = [_hash(each) for each in codes]
        if not await store.set_recovery_codes(connection, operator_id=operator.id, recovery_hashes=hashes):
            raise BadInput.of("code", "cannot be made: set up a second factor first")
        await notify(connection, operator, OperatorNotice.RECOVERY_CODES)
    return codes


async def remove_second_factor(
    pool: Pool, operator_id: int, *, actor: str, by: Principal | None = None, notify: Notify
) -> Operator:
    """Sign an operator in without a second factor, for example after the loss of the phone. Idempotent."""
    async with audited(pool, actor, "operator.second_factor") as (connection, note):
        before = OperatorNotFound.unless(await store.find_operator(connection, operator_id=operator_id))
        check_role(by, before.role)
        removed = await store.remove_second_factor(connection, operator_id=operator_id)
        note.subject, note.after, note.is_dropped = before.actor, {"is_set": False}, removed is None
        if removed is not None:
            await notify(connection, removed, OperatorNotice.SECOND_FACTOR_REMOVED)
    return removed or before


async def rotate_keys(pool: Pool, box: SecretBox, *, actor: str) -> int:
    """Seal every secret again with the current key; returns the number of operators. It can be interrupted."""
    waiting = await store.list_second_factors(pool)
    for operator_id in waiting:
        async with audited(pool, actor, "operator.rotate_key", f"operator:{operator_id}") as (connection, note):
            old = await store.lock_second_factor(connection, operator_id=operator_id)
            note.is_dropped = old is None  # it was removed meanwhile
            if old is not None:
                purpose = purpose_of(operator_id)
                new = box.seal(box.open(old, purpose=purpose), purpose=purpose)
                await store.seal_second_factor(
                    connection, operator_id=operator_id, totp_secret=new.data, totp_key_id=new.key_id
                )
    return len(waiting)


def _recovery_codes() -> tuple[str, ...]:
    """Codes in groups of four letters and digits."""
    made = (base64.b32encode(secrets.token_bytes(_RECOVERY_BYTES)).decode().lower() for _ in range(RECOVERY_CODES))
    return tuple("-".join(each[at : at + 4] for at in range(0, len(each), 4)) for each in made)


def _digits(code: str) -> str:
    return "".join(each for each in code if not each.isspace())


def _hash(code: str) -> bytes:
    """The stored hash of a recovery code. It is random and long, so one round of SHA-256 cannot be guessed back."""
    letters = "".join(each for each in code.lower() if each.isalnum())
    return hashlib.sha256(letters.encode("utf-8", "replace")).digest()
