"""Plots for a terminal: a sparkline, and horizontal bars. Pure."""

from collections.abc import Sequence

_EIGHTHS = "▁▂▃▄▅▆▇█"
_LAST_PARTS = ("", "▏", "▎", "▍", "▌", "▋", "▊", "▉")


def sparkline(amounts: Sequence[int]) -> str:
    """One character per amount, its height relative to the largest amount; a blank for zero."""
    most = max(amounts, default=0)
    return "".join(_EIGHTHS[(amount * len(_EIGHTHS) - 1) // most] if amount > 0 else " " for amount in amounts)


def bar(amount: int, most: int, *, width: int) -> str:
    """A bar relative to the largest amount, to an eighth of a character; never empty for a positive amount."""
    if amount <= 0 or most <= 0:
        return ""
    whole, rest = divmod(max(amount * width * 8 // most, 1), 8)
    return "█" * whole + _LAST_PARTS[rest]
