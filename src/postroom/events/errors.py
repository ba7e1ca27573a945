"""The errors of events; the whole tree is drawn in `postroom.errors`."""

from collections.abc import Sequence

from postroom.errors import ConflictError, PostroomError


class AppendConditionFailed(ConflictError):
    """An event that the decision depends on was appended since it was read; nothing was appended."""

    def __init__(self, position: int, type_: str, tags: Sequence[str]) -> None:
        super().__init__(f"The event {type_} at position {position} was appended since; nothing was appended.")
        self.position = position
        self.type = type_
        self.tags = tuple(tags)


class DuplicateAppend(ConflictError):
    """The event was already appended; nothing was appended."""

    def __init__(self, position: int, type_: str, tags: Sequence[str]) -> None:
        super().__init__(f"The event was already appended as {type_} at position {position}; nothing was appended.")
        self.position = position
        self.type = type_
        self.tags = tuple(tags)


class EventUnreadable(ConflictError):
    """A stored event has data that cannot be read."""

    def __init__(self, position: int, reason: str, *, beyond: str | None = None) -> None:
        """`beyond` is the cursor after this event."""
        way = f" To continue after it, read after the cursor {beyond}" if beyond else ""
        super().__init__(f"The event at position {position} cannot be read: {reason}.{way}")
        self.position = position
        self.reason = reason
        self.beyond = beyond


class EventsBusy(PostroomError):
    """Nothing was appended: timed out waiting for a lock that another transaction holds. Try again later."""

    retry_after_s = 10  # most transactions that hold a lock so long end within seconds
