"""The settings of rooms, read from the environment by `postroom.settings`."""

import re
from dataclasses import dataclass

from postroom.runtime.setting import positive, postgres_url, setting


def _servers(value: str) -> tuple[tuple[str, str], ...]:
    """`eu=postgresql://… us=postgresql://…`: pairs of a name and a URL, separated by spaces or newlines."""
    pairs = [pair.partition("=") for pair in value.split()]
    names = [name for name, _, _ in pairs]
    if any(not re.fullmatch(r"[a-z][a-z0-9_-]{0,47}", name) for name in names):
        raise ValueError("must be name=postgresql://… pairs, separated by spaces; a name has letters, digits, - and _")
    if len(set(names)) != len(names):
        raise ValueError("has a name twice")
    return tuple((name, postgres_url(url)) for name, _, url in pairs)


@dataclass(frozen=True, kw_only=True)
class RoomsSettings:
    servers: tuple[tuple[str, str], ...] = setting(
        _servers,
        (),
        "PostgreSQL servers of many rooms: name=URL pairs, separated by spaces or newlines; "
        "absent: the one of POSTROOM_DATABASE_URL",
        secret=True,
    )
    server_replicas: tuple[tuple[str, str], ...] = setting(
        _servers,
        (),
        "streaming replicas of POSTROOM_SERVERS, which the API reads as POSTROOM_DATABASE_REPLICA_URL: name=URL pairs",
        secret=True,
    )
    rooms_awake: int = setting(
        positive,
        50,
        "most rooms of one server that a worker of many rooms serves at the same time; the others wait for their turn",
    )
