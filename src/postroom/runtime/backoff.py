"""Exponential back-off: the pause before the next try doubles with each failure in a row, up to a limit."""

import random
from dataclasses import dataclass


@dataclass(slots=True)
class Backoff:
    """Counts failures in a row. `jitter` is the largest share of a pause left out at random, to spread retries."""

    first_s: float
    longest_s: float
    jitter: float = 0.25
    failures: int = 0

    def fail(self) -> float:
        """Count one more failure; returns the pause before the next try, in seconds."""
        self.failures += 1
        return self.pause_s

    @property
    def pause_s(self) -> float:
        """The pause after the failures counted so far, at least the first one."""
        doubled = self.first_s * (1 << min(max(self.failures - 1, 0), 32))
        return min(doubled, self.longest_s) * random.uniform(1 - self.jitter, 1)  # noqa: S311 - spreads load, guards nothing

    def reset(self) -> None:
        """A try succeeded."""
        self.failures = 0
