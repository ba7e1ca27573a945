"""The errors of outbox; the whole tree is drawn in `postroom.errors`."""

from collections.abc import Sequence

from postroom.errors import ConflictError, NotFoundError, PostroomError


class NotNext(ConflictError):
    """The event is not the publisher's next one; nothing was skipped."""

    def __init__(self, position: int, next_position: int | None, *, stall: str | None = None) -> None:
        following = "no event follows" if next_position is None else f"the next one is at position {next_position}"
        waiting = f", and later events wait for the open transaction of {stall}" if stall else ""
        super().__init__(
            f"The event at position {position} is not the next; {following}{waiting}. Nothing was skipped."
        )
        self.position = position
        self.next_position = next_position


class TopicExists(ConflictError):
    """A topic with this name already exists; nothing was changed."""


class TopicNeeded(ConflictError):
    """Webhook endpoints, rules or a view still use the topic; nothing was changed."""

    def __init__(self, topic: str, needed_by: Sequence[str]) -> None:
        super().__init__(f"The topic {topic!r} is still used by {', '.join(needed_by)}. Nothing was changed.")
        self.topic = topic
        self.needed_by = tuple(needed_by)


class EndpointDisabled(ConflictError):
    """The webhook endpoint is disabled: nothing is posted to it. Enable it first."""


class EndpointNotFound(NotFoundError):
    """The webhook endpoint does not exist."""


class ProgressNotFound(NotFoundError):
    """The publisher is not subscribed to this topic."""


class RuleNotFound(NotFoundError):
    """The mail rule does not exist."""


class TopicNotFound(NotFoundError):
    """The topic does not exist."""


class PublishFailed(PostroomError):
    """The batch could not be published."""

    def __init__(self, reason: str, *, published: int = 0) -> None:
        """`published` is the number of messages at the beginning of the batch that were published."""
        super().__init__(reason)
        self.published = published


class ViewFailed(PostroomError):
    """The view has failed and must be restarted by an operator."""

    def __init__(self, view: str, position: int | None, reason: str | None) -> None:
        place = "" if position is None else f" at position {position}"
        super().__init__(
            f"The view {view} has failed{place} and must be restarted by an operator: {reason or 'reason unknown'}"
        )
        self.view = view
        self.position = position
        self.reason = reason
