"""Tracing: no spans while off, children of the stored parent while on."""

from collections.abc import Iterator
from urllib.request import urlopen

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from tests.support.command_line import running

from postroom.runtime import tracing

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.fixture
def exporter(monkeypatch: pytest.MonkeyPatch) -> Iterator[InMemorySpanExporter]:
    memory = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(memory))
    monkeypatch.setattr(trace, "get_tracer", provider.get_tracer)
    monkeypatch.setattr(tracing, "_tracer", None)
    yield memory
    provider.shutdown()


def test_while_off_nothing_happens(exporter: InMemorySpanExporter) -> None:
    """Without `enable_tracing` a span is a null context."""
    with tracing.span("attempt", traceparent=PARENT):
        pass
    assert exporter.get_finished_spans() == ()


def test_attempt_span_is_a_child_of_the_request(exporter: InMemorySpanExporter) -> None:
    """The stored traceparent becomes the parent, also hours later in another process."""
    tracing.enable_tracing()
    with tracing.span("attempt", traceparent=PARENT, delivery_id=42):
        pass
    (span,) = exporter.get_finished_spans()
    assert span.name == "attempt"
    assert span.parent is not None
    assert f"{span.parent.trace_id:032x}" == PARENT.split("-")[1]
    assert span.attributes is not None
    assert span.attributes["postroom.delivery_id"] == 42


def test_a_server_exports_the_spans_of_its_requests(database_url: str) -> None:
    """The exporter of the standard variable is used."""
    settings = {
        "POSTROOM_DATABASE_URL": database_url,
        "POSTROOM_HTTP_ADDR": "127.0.0.1:0",
        "POSTROOM_TRACING": "1",
        "OTEL_TRACES_EXPORTER": "console",
    }
    with running("serve", settings=settings) as server:
        url = server.line(lambda line: "Postroom answers at" in line).rpartition(" ")[2]
        with urlopen(f"{url}/healthz") as answer:
            assert answer.status == 200
        assert server.stop() == 0
        spans = server.rest()
    assert '"name": "GET /healthz"' in spans
    assert '"service.name": "postroom"' in spans
