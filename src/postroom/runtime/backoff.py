"""Exponential back-off: the pause before the next try doubles with each failure in a row, up to a limit."""

import random
from dataclasses import dataclass


@dataclass(slots=True)
class Backoff:
    """Counts failures in a row. `jitter` is the largest random share subtracted from a pause, to spread retries."""

    first_s: float
    longest_s: float
    jitter: float = 0.25
    failures: int = 0

    def fail(self) -> float:
        """Count a failure; returns the pause before the next try, in seconds."""
        self.failures += 1
        return self.pause_s

    @property
    def pause_s(self) -> float:
        """The pause after the failures counted so far, at least the first one."""
        doubled = self.first_s * (1 << min(max(self.failures - 1, 0), 32))
        return min(doubled, self.longest_s) * random.uniform(1 - self.jitter, 1)  # noqa: S311 - spreads load, guards nothing

    def reset(self) -> None:
        """Reset the count after a success."""
        self.failures = 0
