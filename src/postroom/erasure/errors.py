"""The errors of erasure; the whole tree is drawn in `postroom.errors`."""

from postroom.errors import NotFoundError


class ErasureNotFound(NotFoundError):
    """There is no such erasure."""
