"""The pairs, shown when an operator asks, and the signatures that were accepted."""

import hashlib

from postroom.db.pool import Pool
from postroom.db.room import Room
from postroom.dropins.ses import store
from postroom.dropins.ses.credentials import LARGEST_ID, SesKey, derive_credentials
from postroom.errors import KeyNotFound, SecretKeyMissing
from postroom.events.audit import audited
from postroom.runtime.aws import AwsCredentials


class SignatureReused(Exception):  # noqa: N818 - a condition, like the leaves of errors.py
    """Another call had the same signature."""

    def __init__(self) -> None:
        super().__init__("Another call had the same signature. Sign this call again, with the present second.")


async def claim_signature(pool: Pool, signature: str, invocation: str) -> None:
    """Reserve a signature for one call of a client. Raises `SignatureReused` if another call has used it."""
    digest = bytes.fromhex(signature)
    if digest[0] == 0:  # one call of 256
        await store.drop_signatures(pool)
    if not await store.claim_signature(pool, signature=digest, call_hash=hashlib.sha256(invocation.encode()).digest()):
        raise SignatureReused


async def show_credentials(room: Room, wanted: str, *, actor: str) -> tuple[SesKey, AwsCredentials]:
    """The pair of a key, named by its id or its name. Raises `KeyNotFound` and `SecretKeyMissing`."""
    secret_key = room.settings.secret_key
    if secret_key is None:
        raise SecretKeyMissing
    key_id = int(wanted) if wanted.isascii() and wanted.isdigit() and int(wanted) <= LARGEST_ID else None
    async with audited(room.pool, actor, "key.ses_credentials") as (connection, note):
        key = KeyNotFound.unless(await store.find_key(connection, key_id=key_id, name=wanted))
        note.subject = f"key:{key.id}"
    return key, derive_credentials(key, room=room.name, secret_key=secret_key)
