"""The address at which `up` or `serve` answers, kept in the data directory for commands of other terminals."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

from postroom.runtime.setting import parse_address
from postroom.settings import Settings

HTTP_ADDRESS_FILE = "http-address"


def with_running_address(settings: Settings) -> Settings:
    """The settings with the address of the process that runs here, unless the environment gives one."""
    if os.environ.get("POSTROOM_HTTP_ADDR") and settings.http_addr[1]:
        return settings
    try:
        found = parse_address(_file_of(settings).read_text("utf-8").strip())
    except (OSError, ValueError):  # no process has run here, or it cannot be read
        return settings
    return replace(settings, http_addr=found)


@contextmanager
def remembered(settings: Settings, address: tuple[str, int]) -> Iterator[None]:
    """Keep an address while this process answers there. Without a data directory nothing is written."""
    host, port = address
    path, text = _file_of(settings), f"{f'[{host}]' if ':' in host else host}:{port}\n"
    with suppress(OSError):
        path.write_text(text, "utf-8")
    try:
        yield
    finally:
        with suppress(OSError):
            if path.read_text("utf-8") == text:  # a process that started later has its own address there
                path.unlink()


def _file_of(settings: Settings) -> Path:
    return settings.data_dir.absolute() / HTTP_ADDRESS_FILE
