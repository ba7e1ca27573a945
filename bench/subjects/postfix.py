"""Postfix, the field's reference, when the machine has it: mail goes in by SMTP, through its queue, out to the sink.

An instance of its own in a temporary directory, on a port of loopback, with concurrency 20 to the sink and no delays;
the machine's Postfix, if it runs, is not touched. It has to be started by root. Mail goes in over ten persistent,
pipelined connections; the measurement ends when the sink has it all.
"""

import asyncio
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from bench import letters, load
from bench.harness import Measure, Readings
from bench.postroom_process import free_port
from bench.server import Arena
from bench.sink import Sink, start_sink
from bench.subjects.smtp_pipeline import connect_all, send_over

PATIENCE_S = 120
CONNECTIONS = 10
MAIN = """\
compatibility_level = 3.6
queue_directory = {home}/queue
data_directory = {home}/data
inet_interfaces = 127.0.0.1
inet_protocols = ipv4
myhostname = bench.invalid
mydestination =
mynetworks = 127.0.0.0/8
smtpd_recipient_restrictions = permit_mynetworks, reject
relayhost = [127.0.0.1]:{sink}
smtp_tls_security_level = none
smtp_destination_concurrency_limit = 20
initial_destination_concurrency = 20
default_process_limit = 100
in_flow_delay = 0
smtp_connection_cache_on_demand = yes
maillog_file_prefixes = {home}
maillog_file = {home}/log
"""


def is_available() -> bool:
    return shutil.which("postfix") is not None and os.geteuid() == 0


class Postfix:
    name = "postfix"

    def __init__(self) -> None:
        self._numbers = load.Numbers()

    async def open(self, _arena: Arena) -> None:
        # Not the arena's scratch directory: Postfix's daemons are another user, who may not look into that.
        self._home = Path(tempfile.mkdtemp(prefix="postroom-bench-postfix-"))
        self._home.chmod(0o755)

    async def close(self) -> None:
        shutil.rmtree(self._home)

    def measures(self) -> Mapping[str, Measure]:
        return {"end-to-end": self._end_to_end}

    async def _end_to_end(self, count: int) -> Readings:
        with start_sink() as sink:
            port = free_port()
            configuration = write_configuration(self._home, port, sink.port)
            with running_instance(configuration):
                seconds = await self._deliver(count, port, sink)
        return {"end-to-end": count / seconds}

    async def _deliver(self, count: int, port: int, sink: Sink) -> float:
        recipients = [letters.recipient(number) for number in self._numbers.take(count)]
        connections = await connect_all(port, CONNECTIONS, letters.SENDER, letters.prepared_message())
        started = time.perf_counter()
        await send_over(connections, recipients)
        while sink.counts().messages < count:
            if time.perf_counter() - started > PATIENCE_S:
                raise TimeoutError(f"the sink has {sink.counts().messages} of {count}")
            await asyncio.sleep(0.05)
        seconds = time.perf_counter() - started
        for connection in connections:
            connection.close()
        return seconds


@contextmanager
def running_instance(configuration: Path) -> Iterator[None]:
    """Postfix with this configuration, until the end of the block."""
    command = ["postfix", "-c", str(configuration)]
    subprocess.run([*command, "start"], check=True, capture_output=True)
    try:
        yield
    finally:
        subprocess.run([*command, "stop"], check=False, capture_output=True)


def write_configuration(home: Path, port: int, sink_port: int) -> Path:
    """A whole instance: its own queue, its own port, the machine's programs."""
    configuration = home / "configuration"
    for folder in (configuration, home / "queue", home / "data"):
        folder.mkdir(parents=True, exist_ok=True)
    shutil.chown(home / "data", "postfix")
    (configuration / "main.cf").write_text(MAIN.format(home=home, sink=sink_port))
    usual = Path("/etc/postfix/master.cf.proto")
    lines = (usual if usual.exists() else usual.with_suffix("")).read_text().splitlines()
    kept = [f"127.0.0.1:{port}" + line[4:] if line.startswith("smtp ") and " inet " in line else line for line in lines]
    (configuration / "master.cf").write_text("\n".join(line.replace("  y  ", "  n  ") for line in kept) + "\n")
    return configuration
