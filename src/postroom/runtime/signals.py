"""Test signals: a loop announces its steps; in production nobody listens.

Concurrency and crash tests hang on a step by name ("claimed", "started", "sent", "completed", "asleep") instead of
sleeping themselves.
"""

from collections.abc import Callable

Signal = Callable[[str], None]


def unheard(_step: str) -> None:
    """The production signal."""
