"""A test signal that kills its own process."""

import os
import signal


class Doom:
    """Kills the process with SIGKILL at the n-th occurrence of a step, as the kernel would; None: never."""

    def __init__(self, step: str | None, occurrence: int = 1) -> None:
        self._step, self._left = step, occurrence

    def __call__(self, step: str) -> None:
        if step == self._step:
            self._left -= 1
            if self._left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
