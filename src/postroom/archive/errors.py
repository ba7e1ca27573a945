"""The errors of archive; the whole tree is drawn in `postroom.errors`."""

from postroom.errors import ConfigurationError, ConflictError, NotFoundError, PostroomError


class ArchiveExtraMissing(ConfigurationError):
    """The archive needs packages that are not installed: pip install 'postroom[archive]'."""

    def __init__(self, package: str) -> None:
        super().__init__(f"The archive needs {package}, which is not installed: pip install 'postroom[archive]'.")
        self.package = package


class ArchiveLocked(ConflictError):
    """Another transaction holds a lock on the table; nothing was changed. End that transaction, or try again later."""


class ArchiveBusy(ConflictError):
    """Another process is using the archive; try again when it has finished."""


class MonthTaken(ConflictError):
    """The month cannot be restored or released: it is already restored, or has rows the archive does not."""

    sqlstate = "PR112"


class SegmentNotFound(NotFoundError):
    """The archive has no such segment."""


class ArchiveDamaged(PostroomError):
    """A file of the archive does not match its record."""


class ArchivePathTaken(PostroomError):
    """A file already exists at the path of a new one; it was not changed."""


class ArchiveUnreachable(PostroomError):
    """The archive's object store does not respond."""


class ArchiveForeign(ArchiveUnreachable):
    """Another room wrote the file, and only that room may change it; see `postroom archive adopt`."""
