"""Errors of the demo."""

from postroom.errors import PostroomError


class StoryStuck(PostroomError):
    """A part of the demo did not happen in time, or the running system lacks something that it needs."""


class NotCaptured(PostroomError):
    """Mail of the room is not captured, and the mail of the demo must stay in the inbox."""

    def __init__(self, transport: str) -> None:
        super().__init__(f"The demo needs POSTROOM_TRANSPORT=capture, which keeps its mail; it is {transport} here.")


class NotForDevelopment(PostroomError):
    """The room is not one for development, so the demo changes nothing in it."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"This room is not for development: {reason}. `--force` plays the demo in it anyway.")
