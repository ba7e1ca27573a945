"""Numbers over time as a terminal can show them: a line of small bars, and a bar for each moment. Pure."""

from collections.abc import Sequence

_EIGHTHS = "▁▂▃▄▅▆▇█"
_LAST_PARTS = ("", "▏", "▎", "▍", "▌", "▋", "▊", "▉")


def sparkline(amounts: Sequence[int]) -> str:
    """One character per amount, as high as its share of the largest; a blank where there was nothing."""
    most = max(amounts, default=0)
    return "".join(_EIGHTHS[(amount * len(_EIGHTHS) - 1) // most] if amount > 0 else " " for amount in amounts)


def bar(amount: int, most: int, *, width: int) -> str:
    """A bar as long as the amount's share of the largest, to an eighth of a character; never nothing for something."""
    if amount <= 0 or most <= 0:
        return ""
    whole, rest = divmod(max(amount * width * 8 // most, 1), 8)
    return "█" * whole + _LAST_PARTS[rest]
