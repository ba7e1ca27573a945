"""The settings of outbox, read from the environment by `postroom.settings`."""

import re
from dataclasses import dataclass

from postroom.runtime.setting import one_of, positive, setting, up_to


def _source(value: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}", value):
        raise ValueError("must be letters, digits, dashes and underscores, at most 64")
    return value


@dataclass(frozen=True, kw_only=True)
class OutboxSettings:
    outbox_source: str | None = setting(
        _source, None, "name of this installation in message ids of a shared broker; absent: the room's name"
    )
    outbox_format: str = setting(
        one_of("postroom", "cloudevents"), "postroom", "format of messages to Redis and NATS: postroom or cloudevents"
    )
    outbox_batch: int = setting(up_to(1000), 100, "most events in one published batch, at most 1000")
    outbox_max_errors: int = setting(
        positive, 10, "consecutive errors after which a publisher stops until an operator resumes it"
    )
    outbox_stream_length: int = setting(positive, 100_000, "approximate length of a Redis stream of events")
