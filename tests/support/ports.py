"""Ports that stay free until a test binds them by number.

A port that the kernel chose and that was given back may be chosen again for anybody's next connection, also between a
server's end and its new start. The kernel never chooses these.
"""

import contextlib
import secrets
import socket

BELOW_THE_KERNEL_S = range(20_000, 32_000)


def free_port() -> int:
    """A port of loopback without a listener."""
    while True:
        port = secrets.choice(BELOW_THE_KERNEL_S)
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port
