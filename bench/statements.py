"""Reads the named statements of a .sql file: `-- name: claim` starts one, the next name ends it."""

import re
from pathlib import Path

NAME = re.compile(r"^-- name: (\w+)$", re.MULTILINE)


def read_statements(path: Path) -> dict[str, str]:
    _, *parts = NAME.split(path.read_text("utf-8"))
    return {name: text.strip() for name, text in zip(parts[::2], parts[1::2], strict=True)}
