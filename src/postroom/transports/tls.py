"""TLS of outgoing connections, shared by all transports of a process.

Loading the certificate authorities takes up to 80 ms and a megabyte; a worker of many rooms opens transports whenever a
room wakes.
"""

import ssl
from functools import lru_cache
from pathlib import Path


def client_context(ca_file: Path | None = None, *, verify: bool = True) -> ssl.SSLContext:
    """The context with the system's authorities, or with the authorities in a file; a changed file is read again."""
    return _context(ca_file, verify, ca_file.stat().st_mtime_ns if ca_file else 0)


@lru_cache(maxsize=64)
def _context(ca_file: Path | None, verify: bool, _changed_at: int) -> ssl.SSLContext:  # noqa: FBT001 - a part of the key
    context = ssl.create_default_context(cafile=ca_file)
    if not verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context
