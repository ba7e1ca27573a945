"""A real PgBouncer before the test server."""

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import unquote, urlsplit

import pytest
from tests.support.patience import PATIENCE_S
from tests.support.ports import free_port

PROGRAM = shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin:/usr/local/sbin")
NEEDS_PGBOUNCER = pytest.mark.skipif(PROGRAM is None, reason="pgbouncer is not installed")
_NOBODY = 65534


@contextmanager
def pgbouncer(url: str, *, mode: str = "transaction", user: str | None = None, ignore: str = "") -> Iterator[str]:
    """The URL of a database behind PgBouncer, as this user or as the URL's user; the server's other databases too."""
    parts, port = urlsplit(url), free_port()
    login = f"user={user or parts.username}" + ("" if user else f" password={unquote(parts.password or '')}")
    server = f"host={parts.hostname} port={parts.port} {login}"
    with TemporaryDirectory(prefix="postroom-pgbouncer-") as directory:
        Path(directory).chmod(0o755)  # PgBouncer refuses to run as root, and its account must read this
        config = Path(directory, "pgbouncer.ini")
        config.write_text(
            f"[databases]\n* = {server}\n[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\n"
            f"unix_socket_dir =\nauth_type = any\npool_mode = {mode}\ndefault_pool_size = 40\n"
            f"ignore_startup_parameters = {ignore or 'extra_float_digits'}\n"
            # Its log is a pipe that fills up: tests that open hundreds of connections would stop it.
            "log_connections = 0\nlog_disconnections = 0\nlog_pooler_errors = 0\nlog_stats = 0\n"
            "max_client_conn = 1000\nserver_login_retry = 1\nquery_wait_timeout = 5\n"
        )
        account = {"user": _NOBODY, "group": _NOBODY, "extra_groups": []} if os.geteuid() == 0 else {}
        process = subprocess.Popen(
            [str(PROGRAM), str(config)],
            stderr=subprocess.PIPE,
            text=True,
            **account,  # type: ignore[call-overload]
        )
        try:
            _wait_until_up(process)
            yield f"postgresql://postroom@127.0.0.1:{port}{parts.path}"
        finally:
            process.kill()
            process.communicate()


def _wait_until_up(process: "subprocess.Popen[str]") -> None:
    assert process.stderr is not None
    ends_at = time.monotonic() + PATIENCE_S
    said = []
    for line in process.stderr:
        said.append(line)
        if "process up" in line:
            return
        assert time.monotonic() < ends_at
    raise AssertionError("".join(said))
