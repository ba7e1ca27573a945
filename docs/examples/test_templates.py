#!/usr/bin/env python3
"""Your own templates in tests with the pytest plugin. The fixture usually stands in `conftest.py`, for all tests."""

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from postroom.inbox.pytest_plugin import PytestInbox


@pytest.fixture(scope="session")
def postroom_settings() -> dict[str, str]:
    return {"POSTROOM_TEMPLATE_DIR": "mail/templates"}


def test_order_is_in_the_subject(postroom_inbox: "PytestInbox") -> None:
    postroom_inbox.send(to=["ada@example.org"], template="order-shipped", variables={"number": 42})

    assert postroom_inbox.wait_for("ada@example.org")["subject"] == "Order 42 is on its way"
