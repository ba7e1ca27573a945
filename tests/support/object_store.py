"""A bucket on loopback, for the archive and for backups."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module

import pytest

from postroom.archive.model import ArchiveOptions

# One request at a time: concurrent claims race in moto, which checks and writes in two steps.
STORE = """
from moto.server import DomainDispatcherApplication, MotoRequestHandler, create_backend_app
from werkzeug.serving import run_simple
store = DomainDispatcherApplication(create_backend_app)
run_simple("127.0.0.1", 0, store, threaded=False, request_handler=MotoRequestHandler)
"""
CREDENTIALS = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_REGION": "us-east-1"}


@contextmanager
def running_store() -> Iterator[str]:
    """An S3-compatible store in a process of its own on loopback."""
    environment = {**os.environ, **CREDENTIALS, "PYTHONUNBUFFERED": "1"}
    process = subprocess.Popen(
        [sys.executable, "-c", STORE],
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    try:
        yield next(line.split()[-1] for line in process.stderr if "Running on" in line)
    finally:
        process.terminate()
        process.wait()
        process.stderr.close()


@pytest.fixture(scope="module")
def s3_endpoint() -> Iterator[str]:
    with running_store() as endpoint:
        yield endpoint


@pytest.fixture
def bucket(s3_endpoint: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[ArchiveOptions]:
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    client = import_module("boto3").client(
        "s3", endpoint_url=s3_endpoint, aws_access_key_id="test", aws_secret_access_key="test", region_name="us-east-1"
    )
    client.create_bucket(Bucket="mail")
    yield ArchiveOptions(url="s3://mail/archive", endpoint=s3_endpoint, pages=2)
    found = client.list_objects_v2(Bucket="mail").get("Contents", [])
    for item in found:
        client.delete_object(Bucket="mail", Key=item["Key"])
    client.delete_bucket(Bucket="mail")
    client.close()
