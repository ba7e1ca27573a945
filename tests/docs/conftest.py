"""Fixtures of the tests of the documentation."""

from tests.dashboard.conftest import chromium

__all__ = ["chromium"]
