"""The errors of embedded; the whole tree is drawn in `postroom.errors`."""

from postroom.errors import ConfigurationError


class EmbeddedServerError(ConfigurationError):
    """The embedded PostgreSQL server cannot run."""
