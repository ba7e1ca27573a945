"""The API keys behind the pairs: found when a request comes, shown when an operator asks."""

from postroom.db.pool import Pool
from postroom.db.room import Room
from postroom.dropins.ses import store
from postroom.dropins.ses.credentials import LARGEST_ID, SesKey, derive_credentials
from postroom.errors import KeyNotFound, SecretKeyMissing
from postroom.events.audit import audited
from postroom.runtime.aws import AwsCredentials


async def use_key(pool: Pool, key_id: int) -> SesKey | None:
    """The API key, unless it is unknown or revoked; records its use, once a minute."""
    return await store.use_key(pool, key_id=key_id)


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
