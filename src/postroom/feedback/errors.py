"""The errors of feedback; the whole tree is drawn in `postroom.errors`."""

from postroom.errors import NotFoundError


class SuppressionNotFound(NotFoundError):
    """The address is not suppressed."""

    code = "suppression_not_found"
