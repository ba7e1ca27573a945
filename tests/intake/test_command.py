"""The command: what it means, and every way in which it can be wrong."""

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.intake import PAYLOAD, raw

from postroom.delivery.model import DeliveryRequest, Lane
from postroom.intake.command import FIELDS, decode_command, pack_fields, read_fields
from postroom.intake.model import Malformed
from postroom.post.address import Address

# Other programs may keep the machine busy: how long an example takes says nothing about the rule.
MODEST = settings(max_examples=50)
TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"


def accepted(data: bytes) -> DeliveryRequest:
    decoded = decode_command(data)
    assert isinstance(decoded, DeliveryRequest), decoded
    return decoded


def refused(data: bytes) -> Malformed:
    decoded = decode_command(data)
    assert isinstance(decoded, Malformed), decoded
    return decoded


def test_a_rendered_command_is_the_request_its_payload_is() -> None:
    """The payload is what POST /v1/deliveries takes; source and key are the command's."""
    payload = {**PAYLOAD, "cc": ["Bob <bob@example.org>"], "lane": "bulk", "tags": {"a": "b"}}
    request = accepted(raw(payload))
    assert request.to == (Address("ada@example.org"),)
    assert request.cc == (Address("bob@example.org", "Bob"),)
    assert (request.lane, request.tags) == (Lane.BULK, {"a": "b"})
    assert (request.source, request.idempotency_key) == ("shop", "k1")


def test_a_template_command_names_its_template() -> None:
    """With payload_mode=template the payload has a template and variables instead of content."""
    payload = {"to": "ada@example.org", "template": "welcome", "variables": {"name": "Ada"}, "locale": "fr"}
    request = accepted(raw(payload, payload_mode="template"))
    assert (request.template, request.variables, request.locale) == ("welcome", {"name": "Ada"}, "fr")


def test_the_delivery_id_stands_in_for_a_missing_key() -> None:
    """Without an idempotency key the producer's own id makes the command happen once."""
    assert accepted(raw(idempotency_key=None, delivery_id="d-7")).idempotency_key == "d-7"
    assert accepted(raw(idempotency_key="", delivery_id="d-7")).idempotency_key == "d-7"
    assert accepted(raw(idempotency_key="k", delivery_id="d-7")).idempotency_key == "k"


def test_the_payload_may_stand_as_an_object() -> None:
    """A JSON command may give its payload as an object instead of a string."""
    assert accepted(raw(payload_json=PAYLOAD)) == accepted(raw())


@pytest.mark.parametrize(
    "trace,parent",
    [
        pytest.param(f"00-{TRACE}-00f067aa0ba902b7-01", f"00-{TRACE}-00f067aa0ba902b7-01", id="traceparent"),
        pytest.param(TRACE, f"00-{TRACE}-", id="trace id"),
        pytest.param("nonsense", None, id="broken"),
        pytest.param("0" * 32, None, id="zeros"),
        pytest.param(None, None, id="none"),
    ],
)
def test_the_trace_goes_on(trace: str | None, parent: str | None) -> None:
    """A trace is carried on if it can be, and is never a reason to refuse."""
    found = accepted(raw(trace_id=trace)).traceparent
    assert found == parent or (parent is not None and found is not None and found.startswith(parent))


def test_ids_of_the_request_are_not_its_content() -> None:
    """Two commands that differ only in request, trace and delivery ids ask for the same thing."""
    one = accepted(raw(request_id="r1", delivery_id="d1", requested_at_ms="1700000000000"))
    two = accepted(raw(request_id="r2", delivery_id="d2", requested_at_ms=1700000000001))
    assert one == two


@pytest.mark.parametrize(
    "data,reason,fields",
    [
        pytest.param(b"\xff\x00", "not_a_command", ["command"], id="not text"),
        pytest.param(b"[1]", "not_a_command", ["command"], id="not an object"),
        pytest.param(b"{}", "bad_field", ["source", "idempotency_key", "payload_mode", "payload_json"], id="empty"),
        pytest.param(raw(source=None), "bad_field", ["source"], id="no source"),
        pytest.param(raw(source=7), "bad_field", ["source"], id="source is a number"),
        pytest.param(raw(idempotency_key=None), "bad_field", ["idempotency_key"], id="no key"),
        pytest.param(raw(idempotency_key="k" * 300), "bad_field", ["idempotency_key"], id="long key"),
        pytest.param(raw(payload_mode="mjml"), "bad_field", ["payload_mode"], id="mode"),
        pytest.param(raw(payload_json=["x"]), "bad_field", ["payload_json"], id="payload is a list"),
        pytest.param(raw(requested_at_ms="yesterday"), "bad_field", ["requested_at_ms"], id="moment"),
        pytest.param(raw(requested_at_ms=-1), "bad_field", ["requested_at_ms"], id="before 1970"),
        pytest.param(raw(prioriti="high"), "bad_field", ["prioriti"], id="unknown field"),
        pytest.param(raw(payload_json="{"), "bad_payload", ["payload_json"], id="payload is no JSON"),
        pytest.param(raw({"subject": "s"}), "bad_payload", ["payload_json.to"], id="nobody"),
        pytest.param(raw({**PAYLOAD, "too": 1}), "bad_payload", ["payload_json.too"], id="unknown in payload"),
        pytest.param(raw({**PAYLOAD, "to": ["a", "b@c.org"]}), "bad_payload", ["payload_json.to[0]"], id="address"),
        pytest.param(raw({**PAYLOAD, "subject": "a\r\nBcc: x"}), "bad_payload", ["payload_json.subject"], id="CRLF"),
        pytest.param(raw({**PAYLOAD, "headers": {"Bcc": "x"}}), "bad_payload", ["payload_json.headers.Bcc"], id="Bcc"),
        pytest.param(raw(payload_mode="template"), "bad_payload", ["payload_json.template"], id="template missing"),
        pytest.param(raw({"to": "a@b.org", "template": "t"}), "bad_payload", ["payload_json.template"], id="template"),
        pytest.param(raw(source="a\tb"), "bad_payload", ["source"], id="control character in source"),
        pytest.param(
            pack_fields({b"source": b"shop", b"payload_json": b"\xff"}), "bad_field", ["payload_json"], id="not UTF-8"
        ),
    ],
)
def test_a_malformed_command_says_why(data: bytes, reason: str, fields: list[str]) -> None:
    """A value names the reason and every field that is wrong."""
    malformed = refused(data)
    assert malformed.reason == reason
    assert [error.field for error in malformed.errors] == fields


def test_invalid_text_is_described() -> None:
    """Bytes that are no text, and a character that no name may hold, are what the operator reads about."""
    assert refused(pack_fields({b"payload_json": b"\xff"})).detail == "payload_json: is not UTF-8"
    assert "without control characters" in refused(raw(source="a\tb")).detail


def test_a_malformed_command_keeps_its_source_where_it_can_be_read() -> None:
    """An operator sees whose command it was."""
    assert refused(raw(payload_mode="x")).source == "shop"
    assert refused(raw(source="a\nb")).source is None


def test_packed_fields_lose_nothing() -> None:
    """Bytes that are not text are kept in base64, so that the operator sees what came."""
    packed = read_fields(pack_fields({b"source": b"shop", b"payload_json": b"\xff\xfe", b"\xff": b"x"}))
    assert packed == {"source": "shop", "payload_json": {"base64": "//4="}, "\\xff": "x"}


@MODEST
@given(st.binary() | st.dictionaries(st.sampled_from(FIELDS), st.text() | st.integers(0, 9)).map(msgspec.json.encode))
def test_whatever_comes_is_answered(data: bytes) -> None:
    """No bytes make the decoder raise."""
    assert isinstance(decode_command(data), DeliveryRequest | Malformed)


@MODEST
@given(st.dictionaries(st.binary(), st.binary()))
def test_whatever_fields_come_they_can_be_packed(fields: dict[bytes, bytes]) -> None:
    """No stream entry makes the packing raise, and what it packs is an object."""
    assert isinstance(read_fields(pack_fields(fields)), dict)


@pytest.mark.parametrize("source", ["accounts", "admin", "campaigns", "operators", "outbox", "schedule"])
def test_reserved_source_is_refused(source: str) -> None:
    """A command under a source of Postroom's own could take the idempotency keys of its mail."""
    problem = refused(raw(source=source))
    assert [(error.field, "reserved" in error.message) for error in problem.errors] == [("source", True)]
