"""The administrator's API key, which the first `postroom up` creates in the data directory."""

from pathlib import Path

from postroom.db.pool import Pool
from postroom.http.service import ensure_admin_key
from postroom.runtime.secret_key import read_private, write_private

API_KEY_FILE = "api-key"


async def admin_key(pool: Pool, path: Path, *, actor: str) -> tuple[Path | None, str | None]:
    """The file that holds the administrator's key, if it does, and the key itself if it was made just now."""
    made, row = await ensure_admin_key(pool, actor=actor)
    if made is not None:
        write_private(path, made)
        return path, made
    return (path if _holds(path, row.prefix) else None), None


def _holds(path: Path, prefix: str) -> bool:
    """True if the file's key is the one whose first characters the room knows, not one of another room."""
    return path.exists() and read_private(path).startswith(prefix)
