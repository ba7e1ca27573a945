"""The installation's secret key: from the environment, or a file in the data directory with mode 0600."""

import os
import secrets
from dataclasses import replace
from pathlib import Path

from postroom.errors import ConfigurationError
from postroom.settings import Settings, read_settings

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
    found = read_settings({"POSTROOM_SECRET_KEY": read_private(path)})
    return replace(settings, secret_key=found.secret_key)


def write_private(path: Path, text: str) -> None:
    """Write a file with mode 0600, atomically."""
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


def read_private(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError as error:
        raise ConfigurationError(f"POSTROOM_DATA_DIR: {path} cannot be read: {error.strerror}") from error
