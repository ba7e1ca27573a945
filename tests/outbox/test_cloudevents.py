"""The CloudEvents 1.0 envelope: required, forbidden and optional attributes."""

from datetime import UTC, datetime
from typing import Any
from urllib.parse import parse_qsl

import msgspec
import pytest
from tests.support.cloudevents import read_cloud_event

from postroom.events import SequencedEvent
from postroom.outbox.cloudevents import cloud_event
from postroom.outbox.publisher import Message

EVENT = SequencedEvent(
    position=73,
    transaction_id=5,
    occurred_at=datetime(2026, 11, 15, 9, 30, 0, 250_000, tzinfo=UTC),
    type="Deposited",
    tags=("wallet=1", "month=2026-11"),
    data={"amount": 5},
    correlation_id="order-7",
    causation_id="72",
)


def envelope(base_url: str = "", **changes: Any) -> dict[str, Any]:
    event = msgspec.structs.replace(EVENT, **changes)
    return read_cloud_event(cloud_event(Message(f"shop:2:{event.position}", event), base_url=base_url))


def test_envelope_has_all_attributes() -> None:
    """The envelope has exactly these attributes and values."""
    assert envelope("https://mail.example.org") == {
        "specversion": "1.0",
        "id": "shop:2:73",
        "source": "https://mail.example.org/shop",
        "type": "Deposited",
        "subject": "wallet=1",
        "time": "2026-11-15T09:30:00.250000Z",
        "datacontenttype": "application/json",
        "position": "73",
        "tags": "wallet=1&month=2026-11",
        "correlationid": "order-7",
        "causationid": "72",
        "data": {"amount": 5},
    }


def test_missing_attributes_are_omitted() -> None:
    """Attributes without a value are omitted; without a public URL the source is a path."""
    bare = envelope(tags=(), correlation_id=None, causation_id="", data=None)
    assert set(bare) == {"specversion", "id", "source", "type", "time", "datacontenttype", "position", "data"}
    assert (bare["source"], bare["data"]) == ("/shop", None)


def test_tags_can_be_read_back() -> None:
    """A parser of query strings reads back the same tags, with any characters and repetitions."""
    tags = ("name=Smith, John & Söhne", "sum=1+1=2", "wallet=1", "wallet=2", "empty=", "line=a\nb\x85\ufffe")
    read = parse_qsl(envelope(tags=tags)["tags"], keep_blank_values=True, strict_parsing=True)
    assert tuple(f"{key}={value}" for key, value in read) == tags


@pytest.mark.parametrize("forbidden", ["\n", "\x1f", "\x7f", "\x85", "\ufdd0", "\uffff", "\U0010fffe"])
def test_forbidden_characters_are_percent_encoded(forbidden: str) -> None:
    """Control characters and noncharacters are percent-encoded in attributes."""
    text = f"a{forbidden}b"
    made = envelope(type=text, tags=(f"k={text}",), correlation_id=text, causation_id=text, data=text)
    assert made["data"] == text
    for name in ("type", "subject", "tags", "correlationid", "causationid"):
        assert made[name].endswith("b")
        assert "a%" in made[name]


def test_a_large_position_stays_exact() -> None:
    """The position is a string, because CloudEvents integers have 32 bits and positions 64."""
    assert envelope(position=2**63 - 1)["position"] == "9223372036854775807"
