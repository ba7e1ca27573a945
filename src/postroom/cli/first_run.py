"""What the first `postroom up` makes and later ones find: a secret key and an administrator's API key.

Both are files under the data directory that only their owner can read.
"""

import os
import secrets
from dataclasses import replace
from pathlib import Path

from postroom.db.pool import Pool
from postroom.errors import ConfigurationError
from postroom.http.service import ensure_admin_key
from postroom.settings import Settings, read_settings

API_KEY_FILE = "api-key"
SECRET_KEY_FILE = "secret-key"  # noqa: S105 - the name of a file


def with_secret_key(settings: Settings, *, making: bool) -> Settings:
    """The settings with the data directory's secret key, unless the environment gives one."""
    if settings.secret_key is not None:
        return settings
    path = settings.data_dir.absolute() / SECRET_KEY_FILE
    if making and not path.exists():
        write_private(path, secrets.token_hex(32))
    if not path.exists():
        return settings
    found = read_settings({"POSTROOM_SECRET_KEY": _read(path)})
    return replace(settings, secret_key=found.secret_key)


async def admin_key(pool: Pool, path: Path, *, actor: str) -> tuple[Path | None, str | None]:
    """The file that holds the administrator's key, if it does, and the key itself if it was made just now."""
    made, row = await ensure_admin_key(pool, actor=actor)
    if made is not None:
        write_private(path, made)
        return path, made
    return (path if _holds(path, row.prefix) else None), None


def write_private(path: Path, text: str) -> None:
    """Write a file that only we can read, at once: a reader finds all of it or none."""
    fresh = path.with_suffix(".fresh")
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        fresh.unlink(missing_ok=True)
        handle = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "w") as file:
            file.write(text + "\n")
        fresh.replace(path)
    except OSError as error:
        raise ConfigurationError(f"POSTROOM_DATA_DIR: {path} cannot be written: {error.strerror}") from error


def _holds(path: Path, prefix: str) -> bool:
    """True if the file's key is the one whose first characters the room knows, not one of another room."""
    return path.exists() and _read(path).startswith(prefix)


def _read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError as error:
        raise ConfigurationError(f"POSTROOM_DATA_DIR: {path} cannot be read: {error.strerror}") from error
