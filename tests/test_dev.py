"""`./dev`: what each word does, tried with a copy of it beside an environment that is already made."""

import importlib.util
import os
import shutil
import subprocess
import sys
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[1]
PROGRAMS = ("postroom", "pytest", "ruff", "mypy", "lint-imports", "python")
# Stands for a program of the environment: says how it was called, and fails if its name is in FAILING.
ECHO = """#!/bin/sh
name=$(basename "$0")
echo "$name $* [$TEST_POSTGRES_MAJOR]"
case " $FAILING " in *" $name "*) exit 3;; esac
"""


def _load(path: Path) -> ModuleType:
    loader = SourceFileLoader("dev", str(path))
    spec = importlib.util.spec_from_loader("dev", loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of `dev` with an environment whose programs only say how they were called."""
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    for name in ("dev", "pyproject.toml", "requirements.lock", "requirements-dev.lock"):
        shutil.copy(ROOT / name, tmp_path / name)
    (tmp_path / "tests" / "schema").mkdir(parents=True)
    binaries = tmp_path / ".venv" / "bin"
    binaries.mkdir(parents=True)
    for name in PROGRAMS:
        (binaries / name).write_text(ECHO)
        (binaries / name).chmod(0o755)
    module = _load(tmp_path / "dev")
    (tmp_path / ".venv" / module.STAMP).write_text(module.fingerprint([module.LOCK]))
    return tmp_path


def _dev(repository: Path, *arguments: str, failing: str = "") -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "FAILING": failing, "TEST_POSTGRES_MAJOR": ""}
    command = [sys.executable, str(repository / "dev"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment, cwd="/")


def test_help_names_every_command(repository: Path) -> None:
    """The page is the documentation: no command is missing from it, and no argument means help."""
    done = _dev(repository, "help")
    assert done.returncode == 0
    for word in (*_load(repository / "dev").COMMANDS, "up", "help"):
        assert f"./dev {word}" in done.stdout
    assert _dev(repository).stdout == done.stdout


def test_any_other_word_is_passed_to_postroom(repository: Path) -> None:
    """Arguments and exit code are those of the program."""
    done = _dev(repository, "send", "--to", "a b@example.org")
    assert (done.returncode, done.stdout) == (0, "postroom send --to a b@example.org []\n")
    (repository / ".venv" / "bin" / "postroom").write_text("#!/bin/sh\necho $STARTED_BY\n")
    assert _dev(repository, "up").stdout == "./dev\n"
    (repository / ".venv" / "bin" / "postroom").write_text(ECHO)
    assert _dev(repository, "up", failing="postroom").returncode == 3


def test_test_checks_then_tests_then_tests_the_older_postgres(repository: Path) -> None:
    """Everything runs, in this order; the older PostgreSQL gets the folders about SQL that exist."""
    done = _dev(repository, "test")
    called = done.stdout.splitlines()
    assert [line.partition(" ")[0] for line in called] == ["ruff", "ruff", "mypy", "lint-imports", "pytest", "pytest"]
    assert called[-2:] == ["pytest -n 3 --dist worksteal []", "pytest -n 3 --dist worksteal tests/schema [16]"]
    assert done.returncode == 0


def test_quick_and_chosen_tests_run_once(repository: Path) -> None:
    """`--quick` leaves out the checks; arguments go to pytest, and then the older PostgreSQL is left out."""
    assert _dev(repository, "test", "--quick").stdout == "pytest -n 3 --dist worksteal []\n"
    assert _dev(repository, "test", "--quick", "-k", "x").stdout == "pytest -n 3 --dist worksteal -k x []\n"
    assert _dev(repository, "test", "-n", "0", "tests/a.py").stdout.splitlines()[-1] == "pytest -n 0 tests/a.py []"


def test_world_runs_the_long_form_too(repository: Path) -> None:
    """An empty mark expression overrides the project's, which leaves the long form out."""
    assert _dev(repository, "world").stdout == "pytest -n 2 --dist loadfile -m  tests/world []\n"
    assert _dev(repository, "world", "-k", "nginx").stdout.endswith("-m  tests/world -k nginx []\n")
    assert _dev(repository, "world", "tests/world/test_nginx.py").stdout.endswith("-m  tests/world/test_nginx.py []\n")


def test_one_failure_hides_no_other(repository: Path) -> None:
    """Every step runs after one has failed, the last line lists the failed ones, and the exit is 1."""
    done = _dev(repository, "test", failing="mypy ruff pytest")
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == "==> failed: format, lint, types, pytest, pytest on PostgreSQL 16"
    assert "lint-imports" in done.stdout
    assert done.stdout.count("pytest") == 2
    assert _dev(repository, "check", failing="mypy").stderr.splitlines()[-1] == "==> failed: types"


def test_running_needs_only_the_packages_of_running(repository: Path) -> None:
    """Without an environment for development, a word of the product uses the small one."""
    module = _load(repository / "dev")
    (repository / ".venv").rename(repository / ".venv-run")
    (repository / ".venv-run" / module.STAMP).write_text(module.fingerprint([module.RUN_LOCK]))
    assert _dev(repository, "up").stdout == "postroom up []\n"
    assert not (repository / ".venv").exists()


def test_the_packages_of_running_are_those_of_development() -> None:
    """Both locks, and that of pure tests, have the same versions, so that tests see the packages that will run."""
    pins = [
        {line.split()[0] for line in (ROOT / name).read_text().splitlines() if "==" in line}
        for name in ("requirements-dev.lock", "requirements.lock", "requirements-pure.lock")
    ]
    assert pins[1] < pins[0]
    assert pins[2] < pins[0]


def test_pure_tests_exist_and_other_pythons_are_supported(repository: Path) -> None:
    """The list names files, and each Python that is found is another version from 3.11 to 3.14."""
    module = _load(ROOT / "dev")
    assert [name for name in module.PURE_TESTS if not (ROOT / name).is_file()] == []
    own = ".".join(map(str, sys.version_info[:3]))
    assert all(version != own and 11 <= int(version.split(".")[1]) <= 14 for version in module.other_pythons())


def test_tests_of_mail_run_on_the_python_of_the_distribution(
    repository: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Its name and version are shown and a failure is reported; where it runs `./dev` itself, the step is left out."""
    module = _load(repository / "dev")
    for found, expected in (({"3.11.2": "/usr/bin/python3"}, "tests/mail"), ({"3.12.1": "/opt/python3"}, "")):
        monkeypatch.setattr(module, "other_pythons", lambda found=found: found)
        monkeypatch.setattr(module, "ensure_distribution", lambda version: str(repository / ".venv" / "bin" / "python"))
        assert module.on_distribution(["-n", "3"]) == []
        (repository / "tests" / "mail").mkdir(exist_ok=True)
        monkeypatch.setenv("FAILING", "python")
        failed = module.on_distribution(["-n", "3"])
        assert failed == (["pytest on /usr/bin/python3, Python 3.11.2"] if expected else [])
        assert (f"python -m pytest -n 3 {expected} []" in capfd.readouterr().out) == bool(expected)
        (repository / "tests" / "mail").rmdir()
        monkeypatch.delenv("FAILING")


def test_a_changed_lock_makes_the_environment_stale(repository: Path) -> None:
    """The stamp holds for this lock, these entry points, this Python and this place, and no other."""
    module = _load(repository / "dev")
    before = module.fingerprint([module.LOCK])
    assert module.stamp_of(module.VENV) == before
    with module.LOCK.open("a") as lock:
        lock.write("another==1\n")
    assert module.fingerprint([module.LOCK]) != before
    assert module.stamp_of(repository / "nowhere") is None


@pytest.mark.parametrize(
    "changed", ['postroom = "postroom.cli:main"', 'postroom_inbox = "postroom.inbox.pytest_plugin"']
)
def test_a_changed_entry_point_makes_the_environment_stale(repository: Path, changed: str) -> None:
    """Scripts and plugins are written at installation, so a renamed one needs another."""
    module = _load(repository / "dev")
    project = repository / "pyproject.toml"
    assert changed in project.read_text()
    project.write_text(project.read_text().replace(changed, f"other_{changed}"))
    assert module.fingerprint([module.LOCK]) != module.stamp_of(module.VENV)


def test_a_word_that_takes_no_arguments_says_so(repository: Path) -> None:
    """A stray argument is wrong usage, not ignored."""
    done = _dev(repository, "schema", "now")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "dev: `./dev schema` takes no arguments\n"


def test_the_build_server_runs_dev_test() -> None:
    """CI runs the same command as developers."""
    script = (ROOT / ".ci" / "run").read_text()
    assert script.rstrip().endswith("exec ./dev test")
    subprocess.run(["bash", "-n", str(ROOT / ".ci" / "run")], check=True)
    assert os.access(ROOT / "dev", os.X_OK)
    assert os.access(ROOT / ".ci" / "run", os.X_OK)


def test_every_named_test_exists() -> None:
    """The lists of pure, soaking and older-PostgreSQL tests name files and folders of the repository."""
    dev = _load(ROOT / "dev")
    named = (*dev.PURE_TESTS, *dev.SOAKING, *dev.OLDER_POSTGRES_TESTS, *dev.DISTRIBUTION_TESTS, dev.WORLD)
    assert [path for path in named if not (ROOT / path).exists()] == []
