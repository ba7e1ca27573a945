"""One module per target; each has an `attack` that runs one case."""

from collections.abc import Awaitable, Callable
from random import Random

from fuzz.arena import Arena
from fuzz.tally import Case
from fuzz.targets import bounces, dashboard, endpoints, files, http, inbox, mime, providers, smtp, templates, uploads

Attack = Callable[[Arena, Random, Case], Awaitable[None]]

TARGETS: dict[str, Attack] = {
    "http": http.attack,
    "endpoints": endpoints.attack,
    "dashboard": dashboard.attack,
    "providers": providers.attack,
    "smtp": smtp.attack,
    "bounces": bounces.attack,
    "mime": mime.attack,
    "inbox": inbox.attack,
    "templates": templates.attack,
    "uploads": uploads.attack,
    "files": files.attack,
}
