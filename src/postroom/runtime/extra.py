"""Packages that `pip install postroom` leaves out."""

from collections.abc import Iterator
from contextlib import contextmanager

from postroom.errors import SettingInvalid


@contextmanager
def extra_needed(variable: str, extra: str) -> Iterator[None]:
    """Name the extra to install if an import in the block fails."""
    try:
        yield
    except ImportError:
        raise SettingInvalid(variable, f"needs more packages: pip install 'postroom[{extra}]'") from None
