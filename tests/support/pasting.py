"""Paste the blocks of a documentation page, in their order, as a reader does: a terminal, psql, and a Python prompt.

Languages of a fence: `sh` is pasted into a shell, `sql` into `postroom psql`, `python` into a Python prompt that knows
`await`, `output` is what the block before it prints (`…` stands for any text). Every other language is an illustration.
Hosts on the internet have stand-ins on loopback (`stand_ins.py`). A comment above a fence says what is special:

    <!-- not run: needs a Gmail account -->   the block is not pasted, for this reason
    <!-- own terminal -->                     a server; the page goes on in a second terminal once it is up
    <!-- until Ctrl-C; meanwhile: command --> runs on a host of its own until the command succeeds there, then Ctrl-C
    <!-- exits 1 -->                          the block's last command fails with this code, on purpose
    <!-- examples/send.py -->                 a part of that file, which another test runs
    <!-- as the owner -->                     statements for a role that another test makes
"""

import os
import re
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from tests.support.patience import PATIENCE_S
from tests.support.ports import free_port
from tests.support.stand_ins import StandIns

PASTED = ("sh", "sql", "python")
ILLUSTRATIONS = ("text", "ini", "json", "html", "mermaid", "jinja", "javascript", "go", "ruby")
_BLOCK = re.compile(
    r"^(?:<!-- (?P<note>[^\n]*?) -->\n)?```(?P<language>\w*)\n(?P<code>.*?)^```$", re.MULTILINE | re.DOTALL
)
_PORTS = {"8025": "POSTROOM_HTTP_ADDR", "2525": "POSTROOM_SMTP_ADDR"}
_UNTIL = "until Ctrl-C; meanwhile: "

# A prompt as that of `python -m asyncio`: one namespace and one event loop for all blocks, which come as file names.
_PROMPT = """
import ast, asyncio, inspect, sys, traceback
names = {"__name__": "__main__"}
async def main():
    while path := (await asyncio.to_thread(sys.stdin.readline)).strip():
        try:
            found = eval(compile(open(path).read(), path, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT), names)
            if inspect.iscoroutine(found):
                await found
            code = 0
        except BaseException:
            traceback.print_exc()
            code = 1
        print(f"{sys.argv[1]} {code}", flush=True)
asyncio.run(main())
"""


@dataclass(frozen=True, slots=True)
class Block:
    """A fence of a page, with the comment above it."""

    line: int
    language: str
    code: str
    note: str

    @property
    def not_run(self) -> str | None:
        """Why the block is not pasted; None if it is."""
        return self.note.removeprefix("not run: ") if self.note.startswith("not run: ") else None

    @property
    def is_pasted(self) -> bool:
        return self.language in PASTED and self.not_run is None and not self.note.startswith(("examples/", "as "))


def blocks_of(page: Path) -> list[Block]:
    text = page.read_text("utf-8")
    return [
        Block(text.count("\n", 0, found.start("language")) + 1, found["language"], found["code"], found["note"] or "")
        for found in _BLOCK.finditer(text)
    ]


def shown_by(shown: str, printed: str) -> bool:
    """True if every line that a page shows is printed, in this order; runs of spaces count as one."""
    place = 0
    lines = [" ".join(line.split()) for line in printed.splitlines()]
    for line in filter(None, (" ".join(line.split()) for line in shown.splitlines())):
        wanted = re.compile(".*".join(map(re.escape, line.split("…"))))
        found = next((n for n in range(place, len(lines)) if wanted.fullmatch(lines[n])), None)
        if found is None:
            return False
        place = found + 1
    return True


class Prompt:
    """A program that runs files whose names it reads, and says after each how it ended."""

    def __init__(self, command: Sequence[str], mark: str, *, directory: Path, environment: Mapping[str, str]) -> None:
        self._mark = mark
        self._process = subprocess.Popen(
            command,
            cwd=directory,
            env=dict(environment),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def run(self, line: str) -> tuple[int, str]:
        """The exit code and everything printed meanwhile."""
        stdin, stdout = self._pipes()
        stdin.write(line + "\n")
        stdin.flush()
        said: list[str] = []
        for answer in stdout:
            before, found, code = answer.partition(self._mark + " ")
            said.append(before)
            if found:
                return int(code), "".join(said)
        raise AssertionError(f"the prompt ended with {self._process.wait()} after:\n{''.join(said)}")

    def wait_for(self, words: str) -> None:
        """Read until a line holds these words; then leave the rest unread."""
        _stdin, stdout = self._pipes()
        said = []
        for line in stdout:
            said.append(line)
            if words in line:
                return
        raise AssertionError(f"ended with {self._process.wait()} after:\n{''.join(said)}")

    def interrupt(self) -> tuple[int, str]:
        """Press Ctrl-C; returns the exit code and the rest of the output."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGINT)
        said, _errors = self._process.communicate(timeout=PATIENCE_S)
        return self._process.returncode, said

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    def close(self) -> None:
        """End the program and everything it has started."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            try:
                os.killpg(self._process.pid, number)
                self._process.communicate(timeout=PATIENCE_S)
            except ProcessLookupError:
                pass
            except subprocess.TimeoutExpired:
                continue
            break
        self._process.wait()

    def _pipes(self) -> tuple[IO[str], IO[str]]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        return self._process.stdin, self._process.stdout


class Reader:
    """A user with a terminal in an empty folder who pastes the commands of a page."""

    def __init__(self, directory: Path, environment: Mapping[str, str], hosts: StandIns) -> None:
        self._directory, self._environment, self._hosts = directory, dict(environment), hosts
        self._mark = f"done-{secrets.token_hex(8)}"
        self._servers: list[Prompt] = []
        self._shell = Prompt(["bash"], self._mark, directory=directory, environment=environment)
        self._python: tuple[Prompt, str] | None = None
        self._count = 0

    def paste(self, block: Block) -> tuple[int, str]:
        """Paste a block where it belongs; returns its exit code and its output."""
        if block.note == "own terminal":
            self.start(["bash", str(self._file(block.code))])
            return 0, ""
        if block.note.startswith(_UNTIL):
            program = sys.executable if block.language == "python" else "bash"
            return self._until_stopped(program, block.code, block.note.removeprefix(_UNTIL))
        if block.language == "python":
            return self._in_python(block.code)
        code = block.code
        if block.language == "sql":
            code = f"postroom psql -q -v ON_ERROR_STOP=1 -P pager=off -f {self._file(block.code)}\n"
        return self._in_shell(code, stops=not block.note.startswith("exits "))

    def start(self, command: Sequence[str]) -> None:
        """Start `postroom up` in a terminal of its own, and wait until it is up."""
        server = Prompt(command, self._mark, directory=self._directory, environment=self._environment)
        self._servers.append(server)
        server.wait_for("Ctrl-C stops.")

    def close(self) -> None:
        for prompt in [self._python[0] if self._python else None, self._shell, *self._servers]:
            if prompt is not None:
                prompt.close()

    def _in_shell(self, code: str, *, stops: bool = True) -> tuple[int, str]:
        path = self._file(code)
        # A command that fails ends the shell, unless the page says that it does.
        return self._shell.run(f"set {'-' if stops else '+'}e; . {path} </dev/null; echo {self._mark} $?")

    def _until_stopped(self, program: str, code: str, meanwhile: str) -> tuple[int, str]:
        """Run a server with the variables of the shell and ports of its own, as on a host of its own."""
        ports = {name: f"127.0.0.1:{free_port()}" for name in _PORTS.values()}
        environment = {**_variables(self._exported()), **ports}
        command = [program, str(self._file(code, ports))]
        server = Prompt(command, self._mark, directory=self._directory, environment=environment)
        self._servers.append(server)
        check = ["bash", str(self._file(meanwhile + "\n", ports))]
        end = time.monotonic() + PATIENCE_S
        while subprocess.run(check, cwd=self._directory, env=environment, capture_output=True, check=False).returncode:
            if not server.is_running or time.monotonic() > end:
                _code, said = server.interrupt()
                return 1, f"{said}\nit did not happen: {meanwhile}"
        return server.interrupt()

    def _exported(self) -> str:
        """The variables of the shell, one per line."""
        return self._in_shell("env -0 | sort -z | tr '\\0\\n' '\\n\\r'")[1]

    def _in_python(self, code: str) -> tuple[int, str]:
        environment = self._exported()
        if self._python is None or self._python[1] != environment:  # variables exported since: a new prompt
            if self._python:
                self._python[0].close()
            known = _variables(environment)
            command = [sys.executable, "-c", _PROMPT, self._mark]
            self._python = (Prompt(command, self._mark, directory=self._directory, environment=known), environment)
        return self._python[0].run(str(self._file(code)))

    def _file(self, code: str, ports: Mapping[str, str] | None = None) -> Path:
        self._count += 1
        path = self._directory.parent / f"{self._directory.name}-block-{self._count}"
        for port, variable in _PORTS.items():
            code = code.replace(f"127.0.0.1:{port}", (ports or self._environment)[variable])
        code = self._hosts.in_place(code)
        path.write_text(code, "utf-8")
        return path


def _variables(exported: str) -> dict[str, str]:
    lines = exported.split("\n")
    return dict(line.replace("\r", "\n").split("=", 1) for line in lines if "=" in line)


@contextmanager
def reading(directory: Path, environment: Mapping[str, str], hosts: StandIns) -> Iterator[Reader]:
    reader = Reader(directory, environment, hosts)
    try:
        yield reader
    finally:
        reader.close()
