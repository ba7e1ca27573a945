"""Refused sign-ins of this process, as they are logged and counted."""

from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

from structlog.testing import capture_logs

from postroom.runtime import refusals
from postroom.runtime.metrics import REGISTRY


@contextmanager
def logged_refusals() -> Iterator[list[tuple[str, str]]]:
    """Way and reason of the refusals in the block that are logged, without those of earlier tests."""
    told = list[tuple[str, str]]()
    with patch.object(refusals._REFUSED, "_warned", {}), capture_logs() as lines:
        yield told
        told += [(line["way"], line["reason"]) for line in lines if line["event"] == "sign_in_refused"]


def count_sign_ins(way: str, result: str) -> float:
    """How often that was counted in this process."""
    return REGISTRY.get_sample_value("postroom_sign_ins_total", {"way": way, "result": result}) or 0.0
