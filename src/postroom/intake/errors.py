"""The errors of intake; the whole tree is drawn in `postroom.errors`."""

from postroom.errors import ConflictError, NotFoundError


class AlreadyResubmitted(ConflictError):
    """The malformed command was resubmitted already."""

    def __init__(self, delivery_id: int | None) -> None:
        super().__init__(f"The malformed command was resubmitted already, as delivery {delivery_id}.")
        self.delivery_id = delivery_id


class MalformedCommandNotFound(NotFoundError):
    """There is no such malformed command."""
