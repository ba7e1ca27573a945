"""Traces: nothing while off, a child of the stored parent while on."""

from collections.abc import Iterator

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

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


def test_an_attempt_hangs_from_the_request_that_caused_it(exporter: InMemorySpanExporter) -> None:
    """The stored traceparent becomes the parent, hours later and in another process."""
    tracing.enable_tracing()
    with tracing.span("attempt", traceparent=PARENT, delivery_id=42):
        pass
    (span,) = exporter.get_finished_spans()
    assert span.name == "attempt"
    assert span.parent is not None
    assert f"{span.parent.trace_id:032x}" == PARENT.split("-")[1]
    assert span.attributes is not None
    assert span.attributes["postroom.delivery_id"] == 42
