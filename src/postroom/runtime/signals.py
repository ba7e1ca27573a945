"""Test signals: loops announce their steps; production ignores them.

Concurrency and crash tests wait for a step by name ("claimed", "started", "sent", "completed", "asleep") instead of
sleeping.
"""

from collections.abc import Callable

Signal = Callable[[str], None]


def unheard(_step: str) -> None:
    """The production signal."""
